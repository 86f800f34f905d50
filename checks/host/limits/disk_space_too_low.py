"""There is little room for checkpoints.

## What happens

A disk that becomes full while a checkpoint is written leaves a truncated file; torch.load then raises "failed finding
central directory". If each checkpoint overwrites the previous one, no whole checkpoint is left. In logs the same
fault shows as "No space left on device", "Disk quota exceeded", or torch.save's "unexpected pos", which is a write
that came out short.

## How to be sure

ddpdoctor reads the free space of the current directory and warns below 1 GiB: a model of 100 million parameters with
Adam's state takes 1.2 GB. `df -h .` shows the same number. A quota can be reached while `df` still shows space. "No
space left on device" for a file in /dev/shm is not this fault (shm-too-small).

## How to mend it

- Find what takes the space, `du -xh --max-depth=1 . | sort -h | tail`, and delete what is not needed.
- Delete the truncated checkpoint. Go back to the last whole one.
- Write checkpoints to a disk with more space. Write each into a temporary file and rename it when it is complete, so
  that a full disk does not destroy the one before it.

## Versions and sources

Holds for all versions of torch. The free space is what statvfs reports. The 1.2 GB are 12 bytes for each parameter in
float32: the weight and Adam's two moments.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Ambiguity,
    Evidence,
    Finding,
    Fix,
    Record,
    Role,
    Severity,
    human_size,
    log_pattern,
    probe,
)

from ._written import written

if TYPE_CHECKING:
    from ddpdoctor.check import Facts

AILMENT = Ailment("DDP156", Severity.WARNING)
ENOUGH = 2**30  # bytes
FULL = r"No space left|quota exceeded|Errno (?:28|122)\b"
NOT_SAID = Ambiguity(
    (
        "the disk, or the quota on it, is full",
        "the server of a network file system (NFS, Lustre) failed for a moment: the same write succeeds later",
    ),
    "df -h . /tmp; df -i .; quota -s; sudo dmesg -T | grep -iE 'nfs|lustre|i/o error' | tail   # of the file's folder",
)
IMAGE = r"\bpyxis:|\benroot\b|squashfs|/var/lib/(?:docker|containerd|containers)\b"
SHARED = r"SemLock|/dev/shm|</torch_|NCCL WARN|posix_fallocate|shared memory"


@probe
def free(facts: Facts) -> Iterator[Finding]:
    """Look at the file system of the current directory."""
    if facts.limits.disk_free < ENOUGH:
        yield Finding(
            f"{human_size(facts.limits.disk_free)} are free in {facts.limits.directory}",
            (Evidence(f"{human_size(facts.limits.disk_free)} free", f"{human_size(ENOUGH)} or more", "statvfs"),),
            Fix("see what takes the room", command=f"du -xh --max-depth=1 {facts.limits.directory} | sort -h | tail"),
        )


@log_pattern(
    r"No space left on device(?:: '([^'\n]+)')?|\[Errno 122\] Disk quota exceeded(?:: '([^'\n]+)')?"
    r"|PytorchStreamWriter failed writing file [^\n]{0,299}file wr(?:ite failed|\w{0,3}\s*$)"
    r"|(?P<ray>OutOfDiskError: Local disk is full)"
    r"|inline_container\.cc:\d+\] \. unexpected pos"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read the refusal of the file system; torch.save's "unexpected pos" is a write that came out short."""
    path = match[1] or match[2]
    if re.search(SHARED, record.text):
        return  # the memory of NCCL and of workers is other checks'
    if re.search(IMAGE, record.text):
        yield _of_an_image(record, match)
        return
    yield Finding(
        f"the disk is full: {path} could not be written"
        if path
        else "the disk on which Ray spills its objects is full"
        if match["ray"]
        else "the user's quota on that disk is used up; the disk itself can have room"
        if "Errno 122" in match[0]
        else "torch.save could not write all of its file: as a rule the disk is full"
        if _is_of_torch_alone(record, match)
        else "the disk, or the quota on it, is full",
        (record.proof(match, "room for what is written"),),
        Fix(
            "see what takes the room, and delete what is cut" if not match["ray"] else "give Ray a disk with more room",
            command="quota -s; lfs quota -h -u $USER . 2>/dev/null; du -xh --max-depth=1 ."
            if "Errno 122" in match[0]
            else _command(path or written(record))
            if not match["ray"]
            else "df -h /tmp/ray; ray memory   # then: ray start --temp-dir=/large/disk/ray ...",
        ),
        record.place,
        severity=Severity.ERROR,
        ambiguity=NOT_SAID if _is_of_torch_alone(record, match) else None,
    )


def _of_an_image(record: Record, match: re.Match[str]) -> Finding:
    return Finding(
        "the disk on which the image of the container is unpacked is full",
        (record.proof(match, "room for the image, unpacked"),),
        Fix(
            "clear that folder on the node, or name one on a larger disk; a node that never has room is left out by "
            "--exclude",
            command="grep -E 'ENROOT_(DATA|CACHE|TEMP)_PATH' /etc/enroot/enroot.conf; enroot list; df -h / /tmp /run "
            "/var/lib/docker",
        ),
        record.place,
        severity=Severity.ERROR,
    )


def _is_of_torch_alone(record: Record, match: re.Match[str]) -> bool:
    """Whether torch says that a write failed, and nobody the reason."""
    return "Stream" in match[0] and not re.search(FULL, record.text)


def _command(path: str) -> str:
    """Return how to look at the disk of a file; where nobody knows which one that is, at all of them."""
    folder = path.rpartition("/")[0] or ("/" if path.startswith("/") else ".")
    if not path:
        return "df -h --output=pcent,avail,target | sort -rn | head   # the full one comes first"
    quoted = shlex.quote(folder)
    return f"df -h {quoted}; du -xh --max-depth=1 {quoted}"


SAVES = re.compile(r"\bin (?:save|_open_zipfile_writer|_legacy_save|_save)\b|torch\.save\(|PyTorchFileWriter\(")


@log_pattern(
    r"RuntimeError: write\(\): fd \d+ failed with (?P<words>[A-Z][^\n]{1,60})"
    r"|RuntimeError: File (?P<path>[^\n]{1,300}?) cannot be opened\."
)
def of_torch(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """torch.save says what the system answered, or only that it could not make or go on with its file."""
    words, path = match["words"], match["path"] or written(record)
    if "No space" in match[0] or "quota" in match[0] or not (words or SAVES.search(record.text)):
        return
    folder = path.rpartition("/")[0] or "."
    yield Finding(
        f"torch.save could not write {path or 'its file'}: {words.strip()}"
        if words
        else f"torch.save could not make {path}",
        (record.proof(match, "a file that is written to its end"),),
        Fix(
            "see whether the disk is full or broken, whether the folder is there, and whether the rank can write to it",
            command=f"df -h {shlex.quote(folder)}; df -i {shlex.quote(folder)}; ls -ld {shlex.quote(folder)}; quota -s",
        ),
        record.place,
        severity=Severity.ERROR,
        ambiguity=Ambiguity(
            (
                "the disk, or the quota on it, is full: Docker Desktop and network file systems say so in these words",
                "the disk, or the server of the network file system, fails",
            )
            if words
            else ("the disk, or the quota on it, is full", "the folder is not there, or not the user's to write"),
            f"touch {shlex.quote(folder)}/probe && df -h {shlex.quote(folder)}; sudo dmesg -T | tail -n 20",
        ),
    )


@log_pattern(r"/\S{1,300} is over \d+% full, available space: [^;\n]{1,40}", role=Role.HARMLESS)
def nearly(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Ray warns long before, and goes on; where it then fails, another line says so."""
    yield Finding(
        "the disk on which Ray spills its objects is nearly full",
        (record.proof(match, "room for what the workers hand on"),),
        Fix(
            "give Ray a disk with more room",
            command="df -h /tmp/ray   # then: ray start --temp-dir=/large/disk/ray ...",
        ),
        record.place,
        severity=Severity.NOTE,
    )
