"""The start method of multiprocessing is set a second time.

## What happens

`set_start_method` works once in a process. A second call, also one that a library made before, raises "RuntimeError:
context has already been set". Often it stands at the top level of a script whose processes are spawned: each of them
imports the script again.

## How to be sure

The traceback ends in `multiprocessing/context.py`, `set_start_method`.

## How to mend it

Call it once, under `if __name__ == "__main__":`, or with `force=True`; or leave it out: `mp.spawn` spawns whatever is
set, and a DataLoader takes `multiprocessing_context="spawn"`.

## Versions and sources

Holds for all versions of Python and torch. Source: CPython's Lib/multiprocessing/context.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP444", Severity.ERROR)


@log_pattern(r"RuntimeError: context has already been set\s*$")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Quote the refusal; not where a new process runs the script again, whose launch has no main guard."""
    if "in _fixup_main_from_path" in record.text:
        return
    yield Finding(
        "set_start_method is called, and the start method was set before",
        (record.proof(match, "one call in a process, under the main guard"),),
        Fix(
            "set it once, in the process that starts the others",
            diff='-mp.set_start_method("spawn")\n+if __name__ == "__main__":\n'
            '+    mp.set_start_method("spawn", force=True)',
        ),
        record.place,
    )
