"""A script that starts processes starts them again when they import it.

## What happens

A process that is started by spawn (mp.spawn, mp.start_processes, a DataLoader's workers on macOS and Windows) imports
the main script anew to find the function that it is to run. Without `if __name__ == "__main__":` that import runs the
launch once more, within a process that is not yet up, and Python refuses: "An attempt has been made to start a new
process before the current process has finished its bootstrapping phase".

## How to be sure

The traceback goes through `_fixup_main_from_path` of multiprocessing/spawn.py into the script's own
line that starts the processes.

## How to mend it

Put what launches under `if __name__ == "__main__":`, or start with torchrun, which imports nothing.

## Versions and sources

Holds for all versions of torch. Source: Python documentation, "multiprocessing", "Safe importing of main module".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP417", Severity.ERROR)


@log_pattern(
    r"An attempt has been made to start a new process before the"
    r"|in _fixup_main_from_path\n(?s:.)*?RuntimeError: context has already been set"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read what multiprocessing says in the process that was started."""
    yield Finding(
        "the script starts its processes again when they import it: the launch is not under __main__",
        (record.proof(match, 'if __name__ == "__main__": around the launch'),),
        Fix(
            "launch only where the script is the program",
            diff='-mp.spawn(train, nprocs=world_size)\n+if __name__ == "__main__":\n'
            "+    mp.spawn(train, nprocs=world_size)",
        ),
        record.place,
    )
