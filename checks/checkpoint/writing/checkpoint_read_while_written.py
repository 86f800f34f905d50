"""A rank reads a checkpoint that another rank has not finished writing.

## What happens

Without a barrier between the `torch.save` of rank 0 and the `torch.load` of the others, these find no file, or only
the beginning of one: FileNotFoundError, "PytorchStreamReader failed reading zip archive", on some ranks, on some
days. To wait until the path exists does not help: it exists from the first byte on.

## How to be sure

ddpdoctor (`ddpdoctor run`) compares when each rank began to read the path with when another rank began and ended to
write it. A rank that failed with FileNotFoundError at a path that another rank then wrote is the same race. Ranks on
several hosts are compared host by host.

## How to mend it

Put a barrier after the write, on all ranks. Write beside the final name and rename when the file is complete, so that
no reader finds a part of it.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch tutorial, "Getting Started with Distributed
Data Parallel", save and load checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Failed,
    FileRead,
    FileWritten,
    Finding,
    Fix,
    Severity,
    Training,
    place,
    watch,
)

AILMENT = Ailment("DDP852", Severity.ERROR)


@watch(FileWritten)
def when_written(event: FileWritten, training: Training) -> Iterator[Finding]:
    """Look for reads that began while this rank wrote, and for ranks that failed to find the file."""
    for read in training.of(FileRead, path=event.path):
        if read.pid != event.pid and event.began < read.time < event.time:
            yield _finding(event, read, "while it was being written", training)
    for failed in training.of(Failed, error="FileNotFoundError"):
        yield from _not_found(failed, event, training)


@watch(Failed)
def when_failed(event: Failed, training: Training) -> Iterator[Finding]:
    """Look for a rank that wrote the file after this one did not find it."""
    if event.error == "FileNotFoundError":
        for written in training.of(FileWritten):
            yield from _not_found(event, written, training)


def _not_found(failed: Failed, written: FileWritten, training: Training) -> Iterator[Finding]:
    reads = training.of(FileRead, pid=failed.pid, path=written.path)
    if reads and failed.pid != written.pid and reads[-1].time < written.time and _names(failed, written.path):
        yield _finding(written, reads[-1], "before it was there", training)


def _names(failed: Failed, path: str) -> bool:
    """Whether the error is about this file, as an absolute path or as the script spelled it."""
    return path.rpartition("/")[2] in failed.text.strip().rpartition("\n")[2]


def _finding(written: FileWritten, read: FileRead, when: str, training: Training) -> Finding:
    framework = training.framework
    waits = framework.wait if framework is not None else "torch.distributed.barrier()"
    zero, end = written.began, written.time
    return Finding(
        f"a rank reads {written.path} {when}",
        (
            Evidence(f"begins to read at {(read.time - zero) * 1e3:.1f} ms", "after the write", f"rank {read.rank}"),
            Evidence(f"writes from 0.0 to {(end - zero) * 1e3:.1f} ms, {written.site}", "", f"rank {written.rank}"),
        ),
        Fix(
            "wait for the write, on all ranks",
            diff=f" if rank == 0:\n     torch.save(state, path)\n+{waits}\n state = torch.load(path)",
        ),
        place(read.site),
    )
