"""What the lines of the last calls tell of a loop, a step or a function that a rank has left."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import CHECKS

from ddpdoctor.watch.dispatcher import Dispatcher
from ddpdoctor.watch.events import (
    Communication,
    Doing,
    Failed,
    Joined,
    PeerLost,
    Position,
    Progress,
    Site,
    Stalled,
)

SCRIPT = """\
def fit(model):
    for epoch in range(9):
        for step in range(5):
            {skip}
            model(x).backward()
            if step % 5 == 0:
                dist.all_reduce(loss)
        {leave}
    dist.all_reduce(stats)

def evaluate(found):
    {early}
    dist.all_reduce(score)

def main():
    for epoch in range(2):
        evaluate(results)
        dist.barrier()
"""
SKIP, STEP, IN_LOOP, LEAVE, BEHIND, EARLY, SCORE, BARRIER = 4, 5, 7, 8, 9, 12, 13, 18


def script(folder: Path, skip: str = "pass", leave: str = "pass", early: str = "pass") -> str:
    """Write the script, and return its path."""
    path = folder / "fit.py"
    path.write_text(SCRIPT.format(skip=skip, leave=leave, early=early), encoding="utf-8")
    return str(path)


def call(file: str, number: int, operation: str, line: int, function: str) -> Communication:
    """Return a call of the default group."""
    return Communication(number, float(number), operation, "0", "", Site(file, line, function))


def lost(
    file: str, last: Communication, forwards: tuple[int, int], line: int = STEP
) -> list[tuple[str, str, int | None]]:
    """Ask about rank 0, lost in a backward, and rank 1, gone in that call; ``forwards`` are theirs."""
    judge = Dispatcher(CHECKS)
    for rank in range(2):
        list(judge.see(Joined(pid=rank + 1, time=1.0, rank=rank, world_size=2, backend="gloo")))
    stack = (Site(file, line, "fit"), Site(file, 99, "<module>"))
    failed = Failed(pid=1, time=2.0, rank=0, error="RuntimeError", text="RuntimeError: Connection reset", site=stack[0])
    progress = (
        Progress(rank=0, forwards=forwards[0], recent=()),
        Progress(rank=1, forwards=forwards[1], recent=(last,)),
    )
    event = PeerLost(pid=0, time=3.0, first=None, others=(failed,), gone=(1,), progress=progress, stack=stack)
    found = list(judge.see_of(judge.trainings.of(1), event))
    assert judge.crashes == []
    return [(each.check.slug, each.finding.message, each.finding.place.line) for each in found]


def test_the_break_by_which_the_rank_that_is_gone_left_the_loop(tmp_path: Path) -> None:
    """It has made fewer forwards, and called what comes behind; where two ways lead out, none is named as the one."""
    file = script(tmp_path, leave="if patience.is_over(): break")
    [(slug, message, line)] = lost(file, call(file, 1, "all_reduce", BEHIND, "fit"), (16, 15))
    assert (slug, line) == ("loop-left-early", LEAVE)
    assert "by `break` at line 8, under `if patience.is_over()`" in message

    (tmp_path / "two").mkdir()
    file = script(tmp_path / "two", leave="if a: break\n        if b: break")
    [(slug, _, _)] = lost(file, call(file, 1, "all_reduce", BEHIND + 1, "fit"), (16, 15))
    assert slug == "ranks-diverge"


@pytest.mark.parametrize(
    ("skip", "slug", "said"),
    [
        ("if loss > 9: continue", "loop-left-early", "by `continue` at line 4, under `if loss > 9`"),
        ("try: pass\n            except ValueError: continue", "exception-swallowed", "under `except ValueError`"),
    ],
)
def test_the_step_that_the_rank_that_is_gone_left_out(tmp_path: Path, skip: str, slug: str, said: str) -> None:
    """It is in a call below the step in the loop, after as many forwards: it is ahead by a step that it left out."""
    file = script(tmp_path, skip=skip)
    below = skip.count("\n")
    [(told, message, _)] = lost(file, call(file, 1, "all_reduce", IN_LOOP + below, "fit"), (6, 6), STEP + below)

    assert told == slug
    assert said in message


def test_the_handler_by_which_a_rank_left_out_a_whole_pass(tmp_path: Path) -> None:
    """One rank is a forward on without the call that the other one has made: the only way past both is named."""
    file = script(tmp_path, skip="try: pass\n            except ValueError: continue")
    [(slug, message, line)] = lost(file, call(file, 1, "all_reduce", IN_LOOP + 1, "fit"), (6, 5), STEP + 1)

    assert (slug, line) == ("ranks-diverge", SKIP + 1)
    assert "`continue` at line 5, under `except ValueError`, leaves a forward out on some ranks only" in message


def test_no_step_is_said_to_be_left_out_where_no_way_leads_past_it(tmp_path: Path) -> None:
    """Then all that is known is that one rank is gone."""
    file = script(tmp_path)
    [(slug, _, _)] = lost(file, call(file, 1, "all_reduce", IN_LOOP, "fit"), (6, 6))

    assert slug == "rank-died-or-stuck"


def waits(rank: int, *stack: Site, made: tuple[Communication, ...] = (), operation: str = "") -> Position:
    """Return a rank that waits in its last call."""
    return Position(
        rank=rank, pid=rank + 1, doing=Doing.WAITING, seconds=9, site=stack[0], recent=made, stack=stack,
        operation=operation or made[-1].operation,
    )  # fmt: skip


def stalled(*ranks: Position) -> list[tuple[str, str, int | None]]:
    """Ask about ranks that wait."""
    judge = Dispatcher(CHECKS)
    found = list(judge.see(Stalled(pid=0, time=2.0, ranks=ranks, world_size=2)))
    assert judge.crashes == []
    return [(each.check.slug, each.finding.message, each.finding.place.line) for each in found]


@pytest.mark.parametrize(
    ("early", "line"), [("if not found: return", EARLY), ("pass", SCORE), ("if a: return\n    if b: return", SCORE + 1)]
)
def test_the_return_above_a_collective_that_one_rank_has_not_made(tmp_path: Path, early: str, line: int) -> None:
    """It is named where there is one; of several, and of none, the two calls are told."""
    file = script(tmp_path, early=early)
    more = early.count("\n")
    inside, outside = Site(file, SCORE + more, "evaluate"), Site(file, BARRIER + more, "main")
    zero = waits(0, inside, Site(file, 17 + more, "main"), made=(call(file, 1, "all_reduce", inside.line, "evaluate"),))
    one = waits(1, outside, made=(call(file, 1, "barrier", outside.line, "main"),))
    [(slug, message, at)] = stalled(zero, one)

    assert (slug, at) == ("collective-order-mismatch", line)
    assert ("rank 1 has left evaluate() before, by `return` at line 12" in message) is (line == EARLY)


def test_a_test_that_holds_on_one_rank_is_told(tmp_path: Path) -> None:
    """Of a rank that waits under it, in the loop that the other one is in; it can be a step ahead as well."""
    file = script(tmp_path)
    made = (call(file, 1, "all_reduce", IN_LOOP, "fit"),)
    zero = waits(0, Site(file, STEP, "fit"), operation="backward")
    [(slug, message, line)] = stalled(zero, waits(1, Site(file, IN_LOOP, "fit"), made=made))

    assert (slug, line) == ("ranks-diverge", IN_LOOP)
    assert "which is reached where `step % 5 == 0`; rank 0 has not come there, and waits in backward" in message


TWICE = """\
def sync(t):
    dist.all_gather(out, t)
for f in files:
    stats[f] = sync(t)
dist.barrier()
if find_last(own):
    dist.broadcast(t, 0)
fit(model)
"""


def test_a_loop_that_calls_what_communicates_ran_out_on_one_rank(tmp_path: Path) -> None:
    """The call stands in a function; the lines of the ranks tell which loop it is."""
    path = tmp_path / "twice.py"
    path.write_text(TWICE, encoding="utf-8")
    file = str(path)
    made = tuple(call(file, number, "all_gather", 2, "sync") for number in (1, 2, 3))
    zero = waits(0, Site(file, 2, "sync"), Site(file, 4, "<module>"), made=made)
    one = waits(1, Site(file, 5, "<module>"), made=(*made[:2], call(file, 3, "barrier", 5, "<module>")))
    [(slug, message, line)] = stalled(zero, one)

    assert (slug, line) == ("loop-left-early", 3)
    assert message == (
        "rank 1 has left the loop at twice.py:3, whose items were used up there; rank 0 is still in it, at twice.py:2"
    )


@pytest.mark.parametrize("came", [True, False])
def test_a_test_that_the_other_rank_has_passed_by(tmp_path: Path, *, came: bool) -> None:
    """It is behind all that the test decides; where it has made the call itself, that is not said."""
    path = tmp_path / "twice.py"
    path.write_text(TWICE, encoding="utf-8")
    made = (call(str(path), 1, "broadcast", 7, "<module>"),)
    zero = waits(0, Site(str(path), 7, "<module>"), made=made)
    one = waits(1, Site(str(path), 8, "<module>"), made=made if came else (), operation="backward")

    assert any("where `find_last(own)`" in message for _, message, _ in stalled(zero, one)) is not came
