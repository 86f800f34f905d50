"""A function calls itself without an end.

## What happens

"RecursionError: maximum recursion depth exceeded": the traceback repeats the same lines ("Previous line repeated 996
more times"). In trainings it is mostly a wrapper of a data set or a model that hands on what it does not have
(`def __getattr__(self, name): return getattr(self.dataset, name)`): copies and pickles, as a loader's workers and
`copy.deepcopy` make them, ask for attributes before `__init__` has set `self.dataset`, so `__getattr__` asks itself for
it. One deep structure (a linked list, a graph that a loss keeps) does it as well, in pickle or backward.

## How to be sure

The line that repeats is the one; `__getattr__` beside copy, pickle or a worker's start is the case above.

## How to mend it

    def __getattr__(self, name):
        if name.startswith("__") or name == "dataset":
            raise AttributeError(name)
        return getattr(self.dataset, name)

## Versions and sources

Holds for all versions of Python and torch. Source: CPython documentation, "object.__getattr__", and Lib/copy.py,
`_reconstruct`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Place, Record, Severity, log_pattern

AILMENT = Ailment("DDP428", Severity.ERROR)
ASKS = ("__getattr__", "__getattribute__")


@log_pattern(r"RecursionError: maximum recursion depth exceeded[^\n]{0,200}")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Find the user's line that repeats."""
    lines = Counter((frame.file, frame.line, frame.function) for frame in record.frames if frame.is_users)
    repeated = lines.most_common(1)
    if not repeated:
        return
    (file, line, function), _ = repeated[0]
    by_attribute = function in ASKS
    yield Finding(
        f"{function} asks itself for the attribute that it hands on to"
        if by_attribute
        else f"{function} calls itself without an end",
        (record.proof(match, "an end"),),
        Fix(
            "let it refuse what is asked before __init__ has run: copies and pickles do so",
            diff=" def __getattr__(self, name):\n"
            '+    if name.startswith("__") or name == "dataset":   # the attribute that it hands on to\n'
            "+        raise AttributeError(name)\n"
            "     return getattr(self.dataset, name)",
        )
        if by_attribute
        else Fix(f"give {function} an end: a case in which it does not call itself"),
        Place(file=file, line=line, rank=record.rank),
    )
