"""Connections that were lost: caught as a bad batch is, or for a message that nobody waited for."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ddpdoctor.checks.collectives.absent._gone import lost_by
from ddpdoctor.checks.collectives.absent.ended.rank_left_early import by_those_who_lost_it
from ddpdoctor.checks.collectives.hangs.reasons._swallowed import lost_and_swallowed, swallowed
from ddpdoctor.checks.collectives.left.exception_swallowed import at_the_end
from ddpdoctor.watch.events import Communication, ErrorSeen, Event, Failed, Left, PeerLost, Progress, Site
from ddpdoctor.watch.rank.end.leaving import Leaving
from ddpdoctor.watch.training import Training

CLOSED = "[pair.cc:553] Connection closed by peer [127.0.0.1]:31663."


def seen(*events: Event) -> Training:
    """Return a training in which these were seen."""
    training = Training()
    for each in events:
        training.add(each)
    return training


def lost(site: Site) -> tuple[Event, ...]:
    """Return that rank 1 ended, that rank 0 lost it at a line, and ended too."""
    return (
        Left(pid=2, time=1.0, rank=1, ended=True),
        ErrorSeen(pid=1, time=1.5, rank=0, error="RuntimeError", text=CLOSED, forwards=8, site=site),
        Left(pid=1, time=2.0, rank=0, ended=True),
    )


@pytest.mark.parametrize(("code", "told"), [("loss.backward()", True), ("dist.barrier()", False)])
def test_it_is_told_unless_it_was_lost_in_what_ends_a_program(tmp_path: Path, code: str, told: bool) -> None:  # noqa: FBT001
    """A last barrier is often tried, and let fail."""
    file = tmp_path / "train.py"
    file.write_text(f"{code}\n")

    assert (lost_and_swallowed(seen(*lost(Site(str(file), 1, "main")))) is not None) is told


@pytest.mark.parametrize("handled", ["ValueError: a bad row (train.py:9)", ""])
def test_what_the_other_rank_handled_as_it_left_is_told_first(tmp_path: Path, handled: str) -> None:
    """Its error is the cause, at the line that it left by; without it, what remains is told."""
    file = tmp_path / "train.py"
    file.write_text("loss.backward()\n")
    left, *rest = lost(Site(str(file), 1, "main"))
    left = Left(pid=2, time=1.0, rank=1, ended=True, by="os._exit(0)", handled=handled, site=Site("train.py", 20, "f"))
    (finding,) = at_the_end.functions[0](seen(left, *rest))

    assert finding.place.line == (20 if handled else 1)
    assert (finding.ambiguity is None) is bool(handled)
    assert (finding.evidence[0].seen == handled) is bool(handled)


@pytest.mark.parametrize(
    ("exc", "is_told"), [(ValueError("a bad row"), True), (ValueError(CLOSED), False), (StopIteration(3), False)]
)
def test_an_exit_tells_what_is_handled_there(exc: Exception, *, is_told: bool) -> None:
    """With the line that raised it; neither that a peer is gone, nor the end of what is iterated."""
    told: list[dict[str, object]] = []
    recorder: Any = SimpleNamespace(is_rank=True, emit=lambda _, **values: told.append(values))
    leaving = Leaving(recorder)

    def safely() -> None:
        leaving.at_once(0)

    def stands_in() -> None:  # for os._exit
        safely()

    try:
        raise exc
    except (ValueError, StopIteration):
        stands_in()
    stands_in()

    first, second = (str(each["handled"]) for each in told)
    assert first.startswith("ValueError: a bad row (") is is_told
    assert bool(first) is is_told
    assert not second


@pytest.mark.parametrize("handled", ["ValueError: a bad row (train.py:9)", ""])
def test_a_rank_that_leaves_in_a_handler_is_to_end_of_its_error(handled: str) -> None:
    """Where nothing is handled, it is the way out of the loop that all have to take."""
    left = Left(pid=2, time=1.0, rank=1, ended=True, by="sys.exit(0)", handled=handled, site=Site("train.py", 20, "f"))
    failed = Failed(pid=1, time=1.6, rank=0, error="RuntimeError", text=f"RuntimeError: {CLOSED}")
    event = PeerLost(pid=0, time=2.0, first=None, others=(failed,), ended=(1,))
    (finding,) = by_those_who_lost_it.examine(event, seen(left))

    assert ("where it handles ValueError;" in finding.message) is bool(handled)
    assert ("+    raise" in finding.fix.diff) is bool(handled)


@pytest.mark.parametrize("by_gloo", [True, False])
def test_gloo_can_have_ended_a_rank_that_is_gone(*, by_gloo: bool) -> None:
    """It aborts a rank that gets a message of another size: that is a cause beside memory where gloo lost the rank."""
    said = f"[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537] {CLOSED}" if by_gloo else "NCCL error"
    failed = Failed(pid=1, time=1.6, rank=0, error="RuntimeError", text=f"RuntimeError: {said}")
    finding = lost_by(PeerLost(pid=0, time=2.0, first=None, others=(failed,), gone=(1,)))

    assert finding.ambiguity is not None
    assert any("op.preamble.length" in each for each in finding.ambiguity.causes) is by_gloo


def test_a_rank_that_fails_of_it_has_not_swallowed_it(tmp_path: Path) -> None:
    """Its exception is explained by other checks, and it is no error of a batch."""
    site = Site(str(tmp_path / "train.py"), 1, "main")
    failed = Failed(pid=1, time=1.6, rank=0, error="RuntimeError", text=f"RuntimeError: {CLOSED}")

    assert lost_and_swallowed(seen(*lost(site), failed)) is None


@pytest.mark.parametrize(("code", "told"), [("dist.isend(x, 1)", True), ("dist.send(x, 1)", False)])
def test_a_message_that_nobody_waited_for_is_named(tmp_path: Path, code: str, told: bool) -> None:  # noqa: FBT001
    """One that was sent in full has arrived: the other rank asks for one more."""
    file = tmp_path / "train.py"
    file.write_text(f"{code}\n")
    sent = Communication(1, 0.5, "send", "0", "[4] to 1", Site(str(file), 1, "main"))
    received = Communication(1, 0.6, "recv", "0", "[4] from 0", Site(str(file), 1, "main"))
    event = PeerLost(
        pid=0,
        time=2.0,
        first=None,
        others=(Failed(pid=2, time=1.6, rank=1, error="RuntimeError", text=f"RuntimeError: {CLOSED}"),),
        ended=(0,),
        progress=(
            Progress(rank=0, forwards=0, recent=(sent,), ended=True),
            Progress(rank=1, forwards=0, recent=(received,)),
        ),
    )

    found = [each.message for each in by_those_who_lost_it.examine(event, Training())]
    assert [("isend" in each) for each in found] == [told]


def test_a_lost_connection_is_no_error_that_another_rank_has_not_met() -> None:
    """It follows from what the other rank did."""
    site = Site("train.py", 1, "main")
    later = Communication(9, 3.0, "all_reduce", "0", "", site)
    ranks = (Progress(rank=0, forwards=9, recent=(later,)), Progress(rank=1, forwards=9, recent=(later,)))

    assert swallowed(ranks, seen(*lost(site))) is None
