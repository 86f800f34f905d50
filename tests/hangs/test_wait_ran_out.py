"""A rank's wait in a collective has run out: who was elsewhere at that moment, and of whom nothing is said."""

from __future__ import annotations

import pytest
from helpers import CHECKS

from ddpdoctor.host.network_context import rendezvous
from ddpdoctor.watch.dispatcher import Dispatcher
from ddpdoctor.watch.events import Doing, Event, Failed, Joined, Left, Position, Site, Stalled, TimedOut, Whereabouts
from ddpdoctor.watch.failure_explainer import Explainer, RanksState

WAITS, VALIDATES = Site("train.py", 18, "main"), Site("train.py", 9, "validate")
SAID = (
    "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 12000ms for recv operation to complete"
)
BARRIER = "RuntimeError: [Rank 1]: Rank 0 failed to pass monitoredBarrier in 12000 ms"


def looked(operation: str = "", groups: tuple[str, ...] = ("", "0"), *, gone: bool = False) -> TimedOut:
    """Make what the monitor saw of rank 0 when rank 1 gave up."""
    other = Whereabouts(0, 1, VALIDATES, operation, "time.sleep")
    return TimedOut(pid=2, time=3.0, rank=1, site=WAITS, ranks=() if gone else (other,), groups=frozenset(groups))


def stalled(doing: Doing) -> Stalled:
    """Make a look at both ranks some time before."""
    ranks = (
        Position(rank=0, pid=1, doing=doing, seconds=9, site=VALIDATES),
        Position(rank=1, pid=2, doing=Doing.WAITING, seconds=9, site=WAITS, operation="barrier"),
    )
    return Stalled(pid=0, time=2.0, ranks=ranks, world_size=2)


def told(*before: Event, said: str = SAID) -> list[str]:
    """Return what is said of rank 1's failure by a watch facet, after these events."""
    judge = Dispatcher(CHECKS)
    joined = [Joined(pid=rank + 1, time=1.0, rank=rank, world_size=2, backend="gloo") for rank in range(2)]
    for event in (*joined, *before):
        list(judge.see(event))
    failed = Failed(pid=2, time=3.0, rank=1, site=WAITS, error="RuntimeError", text=said)
    return [found.finding.message for found in judge.see(failed) if found.check.slug == "slow-rank"]


WAS = "rank 0 was still in validate at train.py:9 when the wait of rank 1 at train.py:18 ran out, after 12 s"


@pytest.mark.parametrize("said", [SAID, BARRIER])
def test_the_rank_that_was_elsewhere_is_named_with_its_line(said: str) -> None:
    """Whatever the words of the time-out are."""
    assert told(looked(), said=said) == [WAS]


def test_a_barrier_has_a_time_out_of_its_own() -> None:
    """A few seconds are too few for a rank that works, and are no time-out of the group."""
    [said] = told(looked(), said=BARRIER.replace("12000", "5000"))
    assert said == WAS.replace("12 s", "5 s")
    assert told(looked(), said=SAID.replace("12000", "5000")) == []


def test_where_the_others_are_gone_already_an_earlier_look_tells() -> None:
    """The launcher can be quicker than the look; one that worked a moment before is the one."""
    assert told(stalled(Doing.WORKING), looked(gone=True)) == [WAS]


@pytest.mark.parametrize(
    "before",
    [
        [looked(operation="all_reduce")],
        [looked(groups=("0", "3"))],
        [looked(gone=True)],
        [stalled(Doing.STANDING), looked()],
        [Left(pid=1, time=2.0, rank=0, ended=True), looked()],
        [Failed(pid=1, time=2.9, rank=0, site=VALIDATES, error="KeyError", text="KeyError: 3"), looked()],
        [],
    ],
    ids=["in another collective", "in a group of some", "not seen", "stood still", "ended", "failed", "no look"],
)
def test_of_ranks_that_another_fault_explains_nothing_is_said(before: list[Event]) -> None:
    """Their own check speaks of them."""
    assert told(*before) == []


def test_another_failure_is_no_time_out() -> None:
    """The look belongs to the failure of a wait."""
    assert told(looked(), said="RuntimeError: mat1 and mat2 shapes cannot be multiplied") == []


@pytest.mark.parametrize(("hang", "slugs"), [(True, []), (False, ["rank-died-or-stuck"])])
def test_a_time_out_of_a_hang_that_was_told_is_nothing_new(*, hang: bool, slugs: list[str]) -> None:
    """What the ranks wait for was told with its line; the time-out names a rank that is neither gone nor stuck."""
    failed = Failed(pid=2, time=3.0, rank=1, site=WAITS, error="RuntimeError", text=BARRIER)
    found = Explainer(CHECKS).explain([failed], Dispatcher(CHECKS), RanksState(told_hang=hang))

    assert [each.check.slug for each in found] == slugs


REFUSED = (
    "RuntimeError: Gloo connectFullMesh failed with [pair.cc:152] SO_ERROR: Connection refused, remote=[127.0.0.1]:9"
)


@pytest.mark.parametrize(("starts", "expected"), [("1", "stale-rendezvous-store"), ("0", "hostname-loopback")])
def test_an_address_of_the_start_before_is_told_of_a_restart(
    starts: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One store of torchrun is there for all starts, and gloo leaves its addresses there under the same names."""
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", starts)
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    failed = Failed(pid=2, time=3.0, rank=1, error="RuntimeError", text=REFUSED, seen=rendezvous(("gloo",), {}))
    [found] = Explainer(CHECKS).explain([failed], Dispatcher(CHECKS))

    assert found.check.slug == expected
