"""Too few files can be open at once.

Each tensor that a data loader worker hands over, each socket of a rank and each file of a data set takes a
descriptor. With too few: "Too many open files", "received 0 items of ancdata".

To be sure: `ulimit -n`, in the very shell that starts the training.

Source: torch.multiprocessing documentation, "File descriptor - file_descriptor". Below 1024 is a warning. Holds for
torch 2.2 to 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor import Card, Evidence, Finding, Fix, Severity
from ddpdoctor.check import probe, sign
from ddpdoctor.explain.records import Record

if TYPE_CHECKING:
    from ddpdoctor.probe.facts import Facts

CARD = Card("DDP153", Severity.WARNING, known_as=("fd-limit",))
ENOUGH = 1024  # Linux's usual soft limit


@probe
def limit(facts: Facts) -> Iterator[Finding]:
    """Compare the soft limit with the usual one."""
    soft, hard = facts.limits.open_files, facts.limits.open_files_hard
    if soft is not None and soft < ENOUGH:
        yield Finding(
            f"a process can have {soft} files open",
            (Evidence(f"RLIMIT_NOFILE is {soft}", f"{ENOUGH} or more", "getrlimit"),),
            Fix("raise the limit", command=f"ulimit -n {min(hard or 65536, 65536)}"),
        )


@sign(
    r"received 0 items of ancdata|\[Errno 24\] Too many open files|Too many open files\. Communication with the workers"
    r"|accept: Too many open files|Too many open files \(24\)"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read the refusal of another descriptor; "0 items of ancdata" is one that was lost on the way to the rank."""
    yield Finding(
        "a process has no file descriptor left",
        (record.proof(match, "a limit above what tensors, sockets and files of the rank need"),),
        Fix(
            "raise the limit, or share tensors by file name, which keeps no descriptor open",
            command="ulimit -n 65536",
            diff='+torch.multiprocessing.set_sharing_strategy("file_system")',
        ),
        record.place,
        severity=Severity.ERROR,
    )
