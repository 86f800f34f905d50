"""Too few files can be open at once.

Each tensor that a data loader worker hands over, each socket of a rank and each file of a data set takes a
descriptor. With too few: "Too many open files", "received 0 items of ancdata".

To be sure: `ulimit -n`, in the very shell that starts the training.

Source: torch.multiprocessing documentation, "File descriptor - file_descriptor". Below 1024 is a warning. Holds for
torch 2.2 to 2.13.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor import Card, Evidence, Finding, Fix, Severity
from ddpdoctor.check import probe
from ddpdoctor.probe.facts import Facts

CARD = Card("DDP153", Severity.WARNING)
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
