"""The checkpoint file is cut off or broken.

## What happens

torch.save writes a zip archive since torch 1.6, and the directory of the archive is at its end. A file that was
truncated at any point has none, and torch.load raises "PytorchStreamReader failed reading zip archive: failed finding
central directory", or "not a ZIP archive" where there are less than 22 bytes. Of the first two bytes alone, "PK",
weights_only=True says "Unsupported operand 80". A safetensors file says at its start how long it is; a file of the
format before torch 1.6 ends too early.

Usual causes: the disk or the quota was full, the job was killed while it saved, a download or a copy was interrupted,
or several ranks wrote the same path at once. A wrong CRC-32 means that other bytes were read than were written:
torch.load does not check it (seen with torch 2.13) and loads the wrong bytes without an error.

## How to be sure

`ddpdoctor inspect last.pt` says how the file is broken. Compare size and checksum with the original,
`sha256sum last.pt`; `unzip -t last.pt` checks every record. Where only one rank failed and `ddpdoctor inspect` finds
the file whole now, another rank was still writing it.

## How to mend it

No tool brings back bytes that are not there: fetch the file again, or go back to the last whole checkpoint. From now
on write on rank 0 only, into a temporary file, and rename it when it is complete; a barrier lets the other ranks wait
before they read.

## Versions and sources

Holds for all versions of torch; seen with torch 2.13 CPU. Source: PyTorch documentation, "Serialization semantics".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Ambiguity,
    CheckpointFile,
    Evidence,
    Finding,
    Fix,
    Format,
    Log,
    Place,
    Record,
    Severity,
    log_pattern,
    probe,
)

AILMENT = Ailment("DDP807", Severity.ERROR)
HOLES = {
    Format.TORCH: "the directory of the archive at its end, and every record as it was written",
    Format.LEGACY: "all tensors up to the end of the file",
    Format.SAFETENSORS: "as many bytes as its header says",
}
SAVE = """\
- torch.save(state, path)
+ if torch.distributed.get_rank() == 0:
+     torch.save(state, f"{path}.tmp")
+     os.replace(f"{path}.tmp", path)"""


@probe
def in_the_file(checkpoint: CheckpointFile) -> Iterator[Finding]:
    """Report what the reader found broken."""
    if checkpoint.damage and checkpoint.format.loads:
        yield Finding(
            f"{checkpoint.path} is broken: {checkpoint.damage}",
            (
                Evidence(
                    f"{checkpoint.size} bytes; {checkpoint.damage}",
                    HOLES.get(checkpoint.format, "a whole file"),
                    checkpoint.path,
                ),
            ),
            Fix(
                "fetch the file again or go back to the checkpoint before it; save under another name, then rename",
                diff=SAVE,
            ),
            place=Place(file=checkpoint.path),
        )


DISK_FULL = r"No space left on device|Disk quota exceeded"


BROKEN = (
    r"PytorchStreamReader failed reading (?:zip archive|file [^\n:]{1,300}): [^\n]{0,80}"
    r"(?:failed finding central directory|archive is corrupted|file read failed|invalid header|not a ZIP archive)"
    r"|unexpected EOF, expected \d+ more bytes\. The file might be corrupted"
    r"|RuntimeError: storage has wrong size: expected -?\d+ got \d+"  # of the format before torch 1.6
    r"|SafetensorError: [^\n]{0,60}(?:MetadataIncompleteBuffer|incomplete metadata|InvalidHeaderDeserialization)"
    r"|Unsupported operand 80\b"  # the P of PK, which an archive begins with: it had no third byte yet
)
RACE = Ambiguity(
    ("another rank was still writing the file: no barrier after torch.save", "the file is cut off or broken for good"),
    "ddpdoctor inspect last.pt  # whole by now: it was being written",
)


@log_pattern(BROKEN, context=(DISK_FULL,))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Recognise what torch.load and safetensors raise; a disk that was full; one rank alone: the file was growing."""
    full = log.first(DISK_FULL)
    others = {each.rank for each in log.records if each.error and each.rank is not None} - log.ranks(BROKEN)
    race = not full and record.rank is not None and (bool(others) or match[0].startswith("Unsupported operand"))
    yield Finding(
        "the checkpoint file is cut off or broken" + (": the disk was full" if full else ""),
        (record.proof(match, "a whole file"), *((full[0].proof(full[1]),) if full else ())),
        Fix(
            "delete the file and fetch it again, or go back to the last whole one; save on rank 0, then rename",
            command="ddpdoctor inspect last.pt\nsha256sum last.pt  # compare with the original\ndf -h .",
            diff="-torch.save(state, path)\n"
            '+if rank == 0:\n+    torch.save(state, f"{path}.part")\n+    os.replace(f"{path}.part", path)'
            + ("\n+dist.barrier()\n torch.load(path)" if race else ""),
        ),
        record.place,
        ambiguity=RACE if race else None,
    )


@log_pattern(r"(?m)^EOFError(?:$|: Ran out of input)")
def of_an_empty_file(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """torch.load takes what is no archive for a pickle, and finds that there is none."""
    if not any(re.search(r"torch[/\\]serialization\.py$", frame.file) for frame in record.frames):
        return
    yield Finding(
        "the checkpoint file was empty when it was read",
        (record.proof(match, "a whole file"),),
        Fix("write it on one rank, under another name; rename it when it is whole, and let the others wait", diff=SAVE),
        record.place,
        ambiguity=RACE,
    )
