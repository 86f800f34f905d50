"""Too few files can be open at once.

## What happens

Each tensor that a data loader worker hands to its rank takes a file descriptor, and so does each socket of a rank and
each open file of a dataset. When a process reaches its limit, torch raises "Too many open files" or "received 0 items
of ancdata". The second is a descriptor that was lost on its way from the worker to the rank.

## How to be sure

Run `ulimit -n` in the same shell that starts the training. ddpdoctor reads the same soft limit (RLIMIT_NOFILE) and
warns below 1024, the usual one of Linux. In a log one of the two messages is enough, and it is an error.

## How to mend it

Best first: raise the limit in the shell that starts the training, `ulimit -n 65536`; without root it can go up to the
hard limit, which `ulimit -Hn` prints. Or share tensors by file name, which keeps no descriptor open:
`torch.multiprocessing.set_sharing_strategy("file_system")` at the start of the script.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch.multiprocessing documentation, "File descriptor - file_descriptor".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Record, Severity, log_pattern, probe

if TYPE_CHECKING:
    from ddpdoctor.check import Facts

AILMENT = Ailment("DDP153", Severity.WARNING)
ENOUGH = 1024  # Linux's usual soft limit


@probe
def limit(facts: Facts) -> Iterator[Finding]:
    """Compare the soft limit with the usual one."""
    soft, hard = facts.limits.open_files, facts.limits.open_files_hard
    if soft is not None and soft < ENOUGH:
        yield Finding(
            f"a process can have {soft} files open",
            (Evidence(f"RLIMIT_NOFILE is {soft}", f"{ENOUGH} or more", "getrlimit"),),
            _raised(hard),
        )


def _raised(hard: int | None) -> Fix:
    if hard is not None and 0 <= hard < ENOUGH:
        return Fix(
            f"raise the hard limit, which is {hard}: root does it for this shell, docker for a container",
            command="sudo prlimit --pid $$ --nofile=65536:65536\ndocker run --ulimit nofile=65536:65536 ...",
        )
    return Fix("raise the limit", command=f"ulimit -n {min(hard or 65536, 65536)}")


@log_pattern(
    r"received 0 items of ancdata|\[Errno 24\] Too many open files|Too many open files\. Communication with the workers"
    r"|accept: Too many open files|Too many open files \(24\)|(?m:Error: [^\n]{1,300}: Too many open files$)"
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
