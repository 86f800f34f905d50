"""A collective in a handler, filter or formatter of Python's logging: each rank that logs calls it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.check import Evidence, Finding, Fix, Position, Site, place, resolve, tests_around, tree_of

from ...hangs._told import seen, short, table, where

if TYPE_CHECKING:
    from ddpdoctor.check import Stalled

METHODS = frozenset({"emit", "handle", "format", "filter", "flush"})


class Logged(NamedTuple):
    """A rank that waits in such a method, its class, the line that logs, and a rank that is not in it."""

    rank: Position
    owner: str
    line: Site
    other: Position


def logged_by_some(event: Stalled) -> Logged | None:
    """Find it by the stack: the line that has called the logger is the next one of the script."""
    for one in event.ranks:
        for at, site in enumerate(one.stack[:-1]):
            owner = _handler(site)
            others = [each for each in event.ranks if each is not one and site not in each.stack]
            if owner and others:
                return Logged(one, owner, one.stack[at + 1], others[0])
    return None


def _handler(site: Site) -> str:
    """Return the class of logging's kind that a line of a method stands in; empty where it is none."""
    tree = tree_of(site.file)
    for each in tree.of(ast.ClassDef):
        if site.function in METHODS and each.lineno <= site.line <= (each.end_lineno or 0):
            bases = [resolve(tree, base) or "" for base in each.bases]
            return each.name if any(base.startswith("logging.") for base in bases) else ""
    return ""


def told_as_logged(event: Stalled) -> Finding | None:
    """Return that whoever logs alone waits for the others, which have nothing to log."""
    found = logged_by_some(event)
    if found is None:
        return None
    one, other, line = found.rank, found.other, found.line
    tests = [each for each in tests_around(line.file, line.line) if "__name__" not in each]
    under = f", under `if {tests[0]}`" if tests else ""
    return Finding(
        f"rank {one.rank} {where(one)}, in the logging of {short(line)}{under}: {found.owner} communicates each time a "
        f"rank logs, and rank {other.rank} has not logged, and {where(other)}",
        (
            Evidence(f"{found.owner} calls {one.operation}", "what a rank logs it writes itself", str(line)),
            *seen(event),
        ),
        Fix(
            "let each rank write what it logs, or rank 0 alone its own; collect from all ranks where all come",
            diff=f"-        dist.{one.operation}(...)   # in {found.owner}\n"
            "+        if dist.get_rank() == 0:\n+            super().emit(record)",
        ),
        place(line, rank=one.rank),
        table=table(event),
    )
