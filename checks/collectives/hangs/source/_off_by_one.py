"""The one call for all ranks that one rank alone comes to: it met another call, and all after it are off by one."""

from __future__ import annotations

import ast
import functools
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.check import NO_PYTHON, Doing, Evidence, Finding, Script, Site, last_name, place

from ...._scripts.set_at import with_imported
from .._told import seen, short
from ..calls._compared import at_odds
from ..handed._called import told_of
from ..handed._logged import LOGS
from ._all_ranks import by_frameworks
from ._source_alone import calls_of_one_rank, helpers_of_one_rank

if TYPE_CHECKING:
    from ddpdoctor.check import Position, Stalled


class OffByOne(NamedTuple):
    """Two ranks that are not in one operation at one line; the call of one rank alone, and its test."""

    one: Position
    other: Position
    site: Site
    call: str
    test: str


def off_by_one(event: Stalled) -> OffByOne | None:
    """Find it where the files that train have one such call.

    Of ranks that were watched it is known what they called, which is better.
    """
    pair = at_odds(event) or _apart(event)
    sites = [each.site.file for each in pair if each.site] if pair is not None else []
    found = [(file, *each) for file in with_imported(sites) for each in _of_one_rank(file)]
    if pair is None or len(found) != 1:
        return None
    ((file, line, call, test),) = found
    return OffByOne(*pair, Site(file, line, ""), call, test)


def _apart(event: Stalled) -> tuple[Position, Position] | None:
    """Return two ranks that wait at two lines, as it is seen from outside."""
    waiting = event.doing(Doing.WAITING) if event.outside else ()
    pairs = ((waiting[0], each) for each in waiting[1:])
    return next(((one, each) for one, each in pairs if one.site and each.site and one.site != each.site), None)


@functools.cache
def _of_one_rank(file: str) -> list[tuple[int, str, str]]:
    """Return the line of each call of a file that is for all ranks and that one alone makes, what it is, and the test.

    What is logged has a check of its own.
    """
    try:
        text = Path(file).read_text(encoding="utf-8")
        script = Script(file, text, ast.parse(text))
    except (OSError, *NO_PYTHON):
        return []
    calls = [
        *calls_of_one_rank(script),
        *((call, test) for call, _, test in by_frameworks(script)),
        *((call, test) for call, test, _ in helpers_of_one_rank(script)),
    ]
    found = {call.lineno: (call, test) for call, test in calls if last_name(call.func) not in LOGS}
    return [(line, ast.unparse(call.func), " ".join(ast.unparse(test).split())) for line, (call, test) in found.items()]


def told_as_off_by_one(found: OffByOne, event: Stalled) -> Finding:
    """Return where the ranks are, and what one of them has called before."""
    one, other, at = found.one, found.other, short(found.site)
    if one.site == other.site:
        where = f"rank {other.rank} in {other.operation}, both within {short(one.site)}"
    else:
        where = f"at {short(one.site)}, rank {other.rank} in {other.operation} at {short(other.site)}"
    return Finding(
        f"rank {one.rank} waits in {one.operation}{',' if one.site == other.site else ''} {where}; of the calls that "
        f"all ranks have to make, {found.call} at {at} alone is made by one rank, under `if {found.test}`: it met "
        "another call of the others, and all after it are off by one",
        (Evidence(f"if {found.test}", "no condition on the rank around a collective", str(found.site)), *seen(event)),
        told_of(found.site, found.call, f"under `if {found.test}`").fix,
        place(found.site),
    )
