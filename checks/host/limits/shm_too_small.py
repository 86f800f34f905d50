# ruff: noqa: S108 - the directory is what this check is about
"""/dev/shm is too small for data-parallel training.

## What happens

Data loader workers hand their batches over in shared memory, and NCCL uses it between the GPUs of a host. A container
has 64 MiB of it unless it is started with more. A worker is then "killed by signal: Bus error", or NCCL reports
"Error while creating shared memory segment" and the rank dies by SIGBUS (exit code -7).

## How to be sure

Run `df -h /dev/shm` in the container, while the training runs. ddpdoctor warns below 64 MiB for each rank, and where
less than 64 MiB of it are free. With two GPUs or more it is an error where /dev/shm has 64 MiB or less in all, or
does not exist, and on any host where no file can be made in it (read-only, or of another user). Exit code -7 with 8 GiB
or more in /dev/shm has another cause: a memory-mapped data file that was cut (mmap-file-truncated).

In a file (`ddpdoctor lint`): `docker run`, a service of docker-compose or a PyTorchJob starts several ranks on GPUs,
and says nothing of /dev/shm.

## How to mend it

Best first: start the container with `--ipc=host`, or with `--shm-size=16g`; in Kubernetes mount an emptyDir with
`medium: Memory` at /dev/shm. Where the size is enough and little of it is free, look with `ls -lah /dev/shm` for what
an earlier run left there, and delete it. Or load with fewer data loader workers.

## Versions and sources

Holds for torch 2.2 to 2.13, on Linux. Source: PyTorch's README ("use --ipc=host or --shm-size"); NCCL documentation,
"Shared Memory".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Ambiguity,
    Evidence,
    Finding,
    Fix,
    Log,
    NotRun,
    Record,
    Severity,
    human_size,
    lint,
    log_pattern,
    probe,
)

from .._bus_error import CRASH, DF, DIED, MAPPED, WORKER, ample
from ._containers import bare_containers

if TYPE_CHECKING:
    from ddpdoctor.check import Facts, LaunchScript

AILMENT = Ailment("DDP151", Severity.WARNING)
EACH = 64 * 2**20  # bytes for a rank: the whole of a container's default


@probe
def size(facts: Facts) -> Iterator[Finding]:
    """Compare the size with the number of ranks."""
    if not facts.versions.system.startswith("Linux"):
        raise NotRun("only Linux has /dev/shm")
    total = facts.limits.shm_total
    if total is None or total < EACH * facts.ranks:
        said = "there is no /dev/shm" if total is None else f"/dev/shm holds {human_size(total)}"
        yield Finding(
            f"{said}, for {facts.ranks} ranks and their data loader workers",
            (Evidence(said, f"{human_size(EACH * facts.ranks)} or more", "/dev/shm"),),
            Fix("give the container more", command="docker run --ipc=host ...   # or --shm-size=16g"),
            severity=Severity.ERROR if len(facts.gpus.devices) > 1 and (total or 0) <= EACH else None,
        )
    elif not facts.limits.shm_writable:
        yield Finding(
            "no file can be made in /dev/shm: it is read-only, or this user is not allowed to write there",
            (Evidence("access(W_OK) is refused", "mode 1777, mounted rw", "/dev/shm"),),
            Fix(
                "give it back what each system has: data loader workers and NCCL hand over their data there",
                command="mount | grep /dev/shm; ls -ld /dev/shm\nsudo mount -o remount,rw,mode=1777 /dev/shm",
            ),
            severity=Severity.ERROR,
        )
    elif (facts.limits.shm_free or 0) < EACH:
        yield Finding(
            f"{human_size(facts.limits.shm_free or 0)} of {human_size(total)} are free in /dev/shm",
            (Evidence(f"{human_size(facts.limits.shm_free or 0)} free", f"{human_size(EACH)} or more", "/dev/shm"),),
            Fix("see what an earlier run left there, and delete it", command="ls -lah /dev/shm"),
        )


LARGER = Fix(
    "give the container more, or load with fewer workers", command="docker run --ipc=host ...   # or --shm-size=16g"
)


@log_pattern(
    WORKER + r"|unable to (?:write to file|allocate shared memory\(shm\) for file) </torch_"
    r"|unable to open shared memory object </torch_[^\n]{,80}No space left on device"
    r"|SemLock\([^\n]{0,200}\n(?:[^\n]{0,200}\n){0,3}OSError: \[Errno 28\]",
    context=(DF,),
)
def of_a_worker(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Take a worker's bus error for a full /dev/shm, unless the log shows that there is room."""
    if not ample(log):
        yield Finding(
            "a semaphore of multiprocessing found no room in shared memory (/dev/shm)"
            if "SemLock" in match[0]
            else "a data loader worker found no room in shared memory (/dev/shm)",
            (record.proof(match, "room in /dev/shm for the batches of all workers"),),
            LARGER,
            record.place,
            severity=Severity.ERROR,
        )


@log_pattern(r"unable to mmap \d+ bytes from file <[^>\n]*>: Cannot allocate memory \(12\)")
def of_a_mapping(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """ENOMEM of mmap: each tensor that a worker hands over is a mapping of its own."""
    yield Finding(
        "a tensor could not be mapped from shared memory: no memory, or too many mappings",
        (record.proof(match, "a mapping for each tensor that is handed over"),),
        Fix(
            "hand over fewer and larger tensors: collate in the worker, no lists of small tensors",
            command="cat /proc/sys/vm/max_map_count; wc -l /proc/PID/maps   # of the rank",
        ),
        record.place,
        severity=Severity.ERROR,
        ambiguity=Ambiguity(
            ("more mappings than vm.max_map_count allows", "the memory of the host or its container is used up"),
            "wc -l /proc/PID/maps; cat /proc/sys/vm/max_map_count; free -g   # PID: the rank",
        ),
    )


@log_pattern(DIED, context=(DF, MAPPED, CRASH, WORKER))
def of_a_rank(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Name SIGBUS where nothing tells whose memory it was."""
    if ample(log) or log.first(WORKER) or (log.first(CRASH) and log.first(MAPPED)):
        return
    yield Finding(
        "a rank died by SIGBUS, as it does when /dev/shm is full",
        (record.proof(match, "an exit by itself"),),
        LARGER,
        record.place,
        severity=Severity.ERROR,
        ambiguity=Ambiguity(
            ("/dev/shm is full: NCCL and data loader workers use it", "a memory-mapped data file was cut"),
            "df -h /dev/shm   # in the container, while the training runs",
        ),
    )


@lint
def in_launch_script(launch: LaunchScript) -> Iterator[Finding]:
    """Look for containers of several ranks that are started with the 64 MiB which they get unasked."""
    for each in bare_containers(launch):
        yield Finding(
            f"{each.what} starts several ranks on GPUs with the 64 MiB of /dev/shm that a container has unasked",
            (launch.seen(each.line, each.expected),),
            Fix("give the container more", diff=each.mend),
            launch.place(each.line),
        )
