"""A loop that runs as often on all ranks: who is past it has left out a call that another rank waits in."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from ddpdoctor.check import Ambiguity, Doing, Evidence, Finding, Fix, Site, place

from ...hangs._told import seen, short, table
from ...hangs.source._deciding import deciding
from ._went_on import SKIPPED

if TYPE_CHECKING:
    from ddpdoctor.check import Guard, Position, Stalled

    from ...hangs.source._exits import LeftBy

LONGEST = 80  # characters of a test that are shown


def left_out_of_loop(found: LeftBy, ahead: Position, behind: Position, event: Stalled) -> Finding | None:
    """Return which test has let the rank outside leave the call out; what remains where there are several, or none.

    None of a loop that can have ended earlier on one rank.
    """
    if not found.loop.alike:
        return None
    loop = Site(found.loop.file, found.loop.line, "")
    tests = deciding(found.loop, behind)
    passed = f", {_told(tests[0])}" if len(tests) == 1 else ""
    site, guard = tests[0] if tests else (loop, None)
    return Finding(
        f"the loop at {short(loop)} runs as often on all ranks, and rank {ahead.rank}, which {_past(ahead)}, has "
        f"made a call of it less than rank {behind.rank}, which waits in "
        f"{behind.operation} at {short(behind.site)}{passed}",
        (
            *(
                Evidence(each.words, "the same answer on all ranks", f"{at.file}:{each.test.lineno}")
                for at, each in tests
            ),
            *seen(event),
        ),
        way_removed(guard) if guard and passed else SKIPPED,
        place(Site(site.file, guard.test.lineno, site.function), rank=ahead.rank)
        if guard
        else place(behind.site, rank=behind.rank),
        table=table(event),
        ambiguity=None if passed else _what_remains(tests, ahead, behind),
    )


def _past(ahead: Position) -> str:
    if ahead.doing is Doing.ENDED:
        return "has come to its end"
    return f"is past it in {ahead.operation} at {short(ahead.site)}"


def _told(test: tuple[Site, Guard]) -> str:
    site, guard = test
    return f"reached only {guard.words}, {short(Site(site.file, guard.test.lineno, site.function))}"


def way_removed(guard: Guard) -> Fix:
    """Return the line that is to go, where a rank returns before the call; how ranks decide together elsewhere."""
    test = " ".join(ast.unparse(guard.test).split())
    if guard.holds or len(test) > LONGEST:
        return SKIPPED
    return replace(SKIPPED, diff=f"-if {test}:\n-    return ...   # the other ranks wait in the call below")


def _what_remains(tests: list[tuple[Site, Guard]], ahead: Position, behind: Position) -> Ambiguity:
    what = behind.operation
    if not tests:
        return Ambiguity(
            (
                f"rank {ahead.rank} has left out a call of the loop, in a function that it calls: a test, a handler",
                f"rank {behind.rank} has made one more: a test that only it has passed led to a collective",
            ),
            "ddpdoctor run -- torchrun ...   # lists the last communications of each rank",
        )
    return Ambiguity(
        tuple(f"{each.words}, at {short(Site(at.file, each.test.lineno, ''))}" for at, each in tests),
        f"print the rank, the step and these tests: one of them lets rank {behind.rank} come to {what} alone",
    )
