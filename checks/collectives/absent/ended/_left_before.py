"""A rank that came to its end without a call that another one waits in, by the one test that decides about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpdoctor.check import Evidence, Finding, Site, decided_at, place

from ...hangs._told import short
from ...hangs.calls._callers import share_a_loop
from ..diverged._alike import way_removed

if TYPE_CHECKING:
    from ddpdoctor.check import Failed, PeerLost


def left_before(event: PeerLost, gone: int, lost: Failed) -> Finding | None:
    """Return the test; None of a call in a loop, which the rank that ended can have left, or where several decide."""
    at = next(iter(event.stack), None)
    calls = {each.rank: each.recent for each in event.progress}
    made = calls.get(-1 if lost.rank is None else lost.rank, ())
    if at is None or not made or any(share_a_loop(each, each) for each in event.stack):
        return None
    if any(each.site is not None and (each.site.file, each.site.line) == at[:2] for each in calls.get(gone, ())):
        return None
    tests = [(site, each) for site in event.stack for each in decided_at(site.file, site.line)]
    if len(tests) != 1:
        return None
    ((site, guard),) = tests
    line = Site(site.file, guard.test.lineno, site.function)
    return Finding(
        f"rank {gone} has come to the end of the script without the {made[-1].operation} at {short(at)} in which rank "
        f"{lost.rank} waited for it: that is reached only {guard.words}, {short(line)}",
        (
            Evidence(guard.words, "the same answer on all ranks", str(line)),
            Evidence("its program came to its end", "all ranks make the call", f"rank {gone}"),
            Evidence(lost.said, "", f"rank {lost.rank}"),
        ),
        way_removed(guard),
        place(line, rank=gone),
    )
