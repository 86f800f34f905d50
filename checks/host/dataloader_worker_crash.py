"""A data loader worker crashed in native code.

## What happens

A worker is a process of its own; when it dies by a signal the rank learns only the signal: "DataLoader worker (pid N)
is killed by signal: Segmentation fault", "Unexpected segmentation fault encountered in worker", or without it
"DataLoader worker (pid(s) N) exited unexpectedly". The crash is in the library that decodes or augments (OpenCV,
decord, PIL, HDF5), often since it was used before the fork, or is not safe with several threads.

## How to be sure

With num_workers=0 the same crash ends the rank itself, and faulthandler prints the line.

## How to mend it

`cv2.setNumThreads(0)`, open files (h5py, lmdb, decord) in the worker at first use, or
`multiprocessing_context="spawn"`. A bus error is shm-too-small; "Killed" is a matter of memory.

## Versions and sources

Source: torch.utils.data documentation; torch/csrc/DataLoader.cpp. Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Log, Record, Role, Severity, log_pattern

AILMENT = Ailment("DDP161", Severity.ERROR)
CRASHED = (
    r"DataLoader worker \(pid \d+\) is killed by signal: (Segmentation fault|Aborted|Floating point exception"
    r"|Illegal instruction)|Unexpected (segmentation fault|floating-point exception) encountered in worker"
)
SIGNALLED = r"DataLoader worker \(pid \d+\) is killed by signal|Unexpected [\w -]+ encountered in worker"
LOST = (
    r"DataLoader worker \(pid\(s\) [\d, ]+\) exited unexpectedly|DataLoader worker \(pid \d+\) exited unexpectedly"
    r"(?: with exit code (?P<status>[1-9]\d{0,2})\b)?"
    r"|MultiThreadedAugmenter\.abort_event was set|One or more background workers are no longer alive"
    r"|(?P<pin>Pin memory thread exited unexpectedly)|what\(\):\s+could not unlink the shared memory file /torch_\w+"
)
FAILED = r"Received (?:Signals\.)?(?:SIG\w+|\d+) death signal|KeyboardInterrupt|oom[-_]kill|Killed process"
ENDED = Ambiguity(
    (
        "the out-of-memory killer ended it",
        "a crash in native code: decoding, augmentation, HDF5",
        "too little shared memory in a container",
    ),
    "sudo dmesg -T | tail -50 | grep -iE 'killed process|segfault|bus error'; df -h /dev/shm",
)
LAST_WORDS = (
    r"LLVM ERROR: [^\n]{1,200}|terminate called after throwing an instance of '[^'\n]{1,200}'"
    r"|double free or corruption|free\(\): invalid pointer"
)
GONE = re.compile(r"^(?:Connection(?:Refused|Reset)|FileNotFound|EOF|BrokenPipe)Error$")
FIX = Fix(
    "load without workers once: the rank itself then shows the line that crashes",
    command="PYTHONFAULTHANDLER=1 python train.py   # with DataLoader(..., num_workers=0)",
)


@log_pattern(CRASHED, context=(LAST_WORDS,))
def by_signal(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Yield the name of the signal, and what the library said that gave up."""
    last = log.before(record, LAST_WORDS)
    yield Finding(
        f"a data loader worker crashed in native code: {(match[1] or match[2]).lower()}"
        + (f", {last[1][0].strip()}" if last else ""),
        (record.proof(match, "a batch"), *((last[0].proof(last[1]),) if last else ())),
        FIX,
        record.place,
    )


@log_pattern(LOST, context=(SIGNALLED, FAILED))
def without_a_signal(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """List what ends a worker without a word, where nothing tells the signal."""
    if log.first(SIGNALLED) or log.first(FAILED):
        return
    if match["status"]:
        yield _by_itself(record, match, match["status"])
        return
    yield Finding(
        ("the thread that pins batches" if match["pin"] else "a data loader worker") + " ended, and nothing tells why",
        (record.proof(match, "a batch"),),
        FIX,
        record.place,
        ambiguity=ENDED,
    )


@log_pattern(r"\bin rebuild_storage_f(?:d|ilename)\b", context=(SIGNALLED, FAILED))
def where_a_batch_is_fetched(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Read what a rank raises that fetches a batch of a worker which has gone."""
    fetches = "torch/utils/data/dataloader.py" in record.text
    if fetches and GONE.search(record.error) and not log.first(SIGNALLED) and not log.first(FAILED):
        yield Finding(
            f"a data loader worker had ended before this rank fetched a batch of it ({record.error})",
            (record.proof(expected="a worker that lives until its batch is fetched"), record.proof(match)),
            FIX,
            record.place,
            ambiguity=ENDED,
        )


@log_pattern(r"torch/utils/data/_utils/pin_memory\.py\"", role=Role.CONSEQUENCE)
def where_batches_are_pinned(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read what the thread of the rank raises when it fetches a batch of a worker that has gone."""
    if not GONE.search(record.error):
        return
    yield Finding(
        "the thread that pins batches did not find the worker that held one: it had ended, or the rank was ending",
        (record.proof(expected="a worker that lives until its batch is fetched"), record.proof(match)),
        FIX,
        record.place,
    )


@log_pattern(
    r"DataLoader worker \(pid \d+\) is killed by signal: (?:Terminated|Hangup|Interrupt)", role=Role.CONSEQUENCE
)
def from_outside(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read a signal that launchers and terminals send when they end a training."""
    yield Finding(
        "a data loader worker was ended along with its rank",
        (record.proof(match, "a batch"),),
        Fix(
            "see what ended the training: it stands further up, or in the launcher's own output",
            command="torchrun --max_restarts=0 --tee=3 --log-dir=logs --nproc_per_node=2 train.py",
        ),
        record.place,
    )


def _by_itself(record: Record, match: re.Match[str], status: str) -> Finding:
    """A status of its own is that of no signal: neither the kernel nor a crash has ended the worker."""
    return Finding(
        f"a data loader worker ended by itself, with status {status}",
        (record.proof(match, "a batch, or an exception that the rank is told"),),
        Fix(
            "find what ends the program there: an error has to be raised, so that the rank hears of it",
            command=r"grep -rnE 'os\._exit|sys\.exit|\bexit\(|quit\(' --include='*.py' .",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "the data set, its transforms or worker_init_fn call os._exit(), sys.exit() or exit()",
                "a library that they call ends the program by itself when it fails: its own output says why",
                "the worker could not start: what it is given cannot be unpickled in a new process (spawn)",
            ),
            "python train.py   # with DataLoader(..., num_workers=0): the rank ends at that line",
        ),
    )
