"""Signs of SIGBUS, and of how much shared memory there is."""

from __future__ import annotations

import re

from ddpdoctor.check import Log, Record

from ._exits import died_by

WORKER = r"DataLoader worker \(pid \d+\) is killed by signal: Bus error|Unexpected bus error encountered in worker"
DIED = died_by(7, "SIGBUS") + r"|\bBus error +\(core dumped\)"
CRASH = r"Fatal Python error: Bus error"
DF = r"^(?:shm|tmpfs|none)\s+([\d.]+)([MG])i?\s+[\d.]+[KMG]?i?\s+[\d.]+[KMGT]?i?\s+(\d+)%\s+/dev/shm\b"
MAPPED = r"numpy[/\\](?:_?core)[/\\]memmap\.py|\blmdb\b|np\.(?:memmap|load)\(|mmap_mode=|safe_open\(|\bmmap\.mmap\("
AMPLE = 8  # GiB: more than workers of one host keep in flight


def ample(log: Log) -> tuple[Record, re.Match[str]] | None:
    """Find a `df` line that shows a /dev/shm that is large and not nearly full."""
    return next(
        (
            (record, found)
            for record, found in log.find(DF)
            if float(found[1]) * (1 if found[2] == "G" else 1 / 1024) >= AMPLE and int(found[3]) < 90  # noqa: PLR2004 - per cent
        ),
        None,
    )
