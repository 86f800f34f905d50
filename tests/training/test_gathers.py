"""The weights that fully_shard gathers: what a rank tells of them, and which gathers of two ranks are one."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ddpdoctor.watch import event_log
from ddpdoctor.watch.dispatcher import Dispatcher
from ddpdoctor.watch.events import Event, Gathered, Gathers, Joined
from ddpdoctor.watch.rank.model.gathers import LONG, MOST, Course, Courses

if TYPE_CHECKING:
    from ddpdoctor.facets import Check

RANKS = (0, 1)
A, B, C = "blocks.0", "blocks.1", "blocks.2"


class _Process:
    """Stands for a watched process whose steps the test counts."""

    def __init__(self) -> None:
        self.writer = SimpleNamespace(counters=[0] * 8)
        self.told: list[Gathers] = []

    def emit(self, event: type[Event], /, **values: Any) -> None:
        self.told.append(event(pid=1, time=0.0, **values))  # type: ignore[arg-type]


def _recorded(*steps: tuple[str, ...], counter: int = event_log.STEPS) -> list[Gathers]:
    """Return what a process tells that gathers these modules, a step after the other."""
    process: Any = _Process()
    courses = Courses(groups={"dp": Course("dp", RANKS)})
    group = SimpleNamespace(group_name="dp")
    for names in steps:
        for name in names:
            parameter = SimpleNamespace(_param_fqn=f"{name}.weight" if name else None)
            courses.take(process, [parameter], group, list)
        process.writer.counters[counter] += 1
    courses.end(process, list)
    return list(process.told)


def _as_read(event: Gathers) -> list[str]:
    return [event.modules[each].module for each in event.row]


def test_a_step_is_told_where_it_gathers_other_modules() -> None:
    """And now and then, so that what did not change is known too."""
    told = _recorded((A, B), (A, B), (A, B), (A, C), (A, C), (A, C))

    assert [(each.before, each.step, _as_read(each)) for each in told] == [
        (0, 1, [A, B]),
        (2, 2, [A, B]),
        (6, 4, [A, C]),
        (10, 6, [A, C]),
    ]


def test_no_more_is_told_after_many_changes() -> None:
    """Nor at the end: what was not told would be read as unchanged."""
    told = _recorded(*[(A, B), (A, C)] * MOST)

    assert len(told) == MOST


def test_a_group_that_is_made_later_is_counted_anew() -> None:
    """Ranks that meet again can have failed at different places before."""
    process: Any = _Process()
    courses = Courses({"dp": Course("dp", RANKS)})

    courses.end(process, list)

    assert courses.groups == {}


def test_a_long_evaluation_is_told_in_rows() -> None:
    """Each ends where a forward begins."""
    told = _recorded(*[(A, B, C)] * LONG, counter=event_log.FORWARDS)

    assert {len(each.row) % 3 for each in told} == {0}
    assert max(len(each.row) for each in told) < LONG + 3


@pytest.mark.parametrize(
    ("ours", "theirs", "found"),
    [
        ([(A, B)] * 5, [(A, B)] * 3 + [(A, C)] * 2, "step 4"),
        ([(A, B)] * 3 + [(A, C)] * 2, [(A, B)] * 5, "step 4"),
        ([(A, B)] * 5, [(A, C)] * 5, "step 1"),
        ([(A, B), (A, C)] * 5, [(A, B), (A, C)] * 5, ""),
        ([(A, B)] * 5, [(A, B)] * 3, ""),
        ([(A, B)] * 5, [(A, B)] * 4 + [(A,)], ""),
        ([(A, B)] * 5, [(A, "")] * 5, ""),
        ([(A, B)] + [(A, C)] * 3, [(A,)] + [(A, C)] * 3, ""),
    ],
    ids=["once", "once, of the other", "always", "alike", "behind", "left", "unknown", "shifted"],
)
def test_the_gathers_of_two_ranks_are_compared_by_their_number(
    checks: dict[str, Check], ours: list[tuple[str, ...]], theirs: list[tuple[str, ...]], found: str
) -> None:
    """Only where both are known, and as long as the steps of both begin with the same gather."""
    said = _said(checks, lambda rank: _recorded(*(theirs if rank else ours)))

    assert len(said) == bool(found)
    assert all(f"gather 2 of {found} is" in each for each in said)


def test_ranks_with_other_parameters_are_not_compared(checks: dict[str, Check]) -> None:
    """A module that is called after its rank is no other one."""
    assert _said(checks, lambda rank: _recorded((A, f"expert_{rank}")), models=lambda rank: f"of {rank}") == []


def _said(
    checks: dict[str, Check], told: Callable[[int], list[Gathers]], models: Callable[[int], str] = lambda _: ""
) -> list[str]:
    """Return what is found in what two ranks tell, as it stands in the first line of evidence."""
    judge = Dispatcher(checks.values())
    for rank in RANKS:
        list(judge.see(Joined(pid=rank, rank=rank, time=0.0, world_size=2, backend="gloo")))
    return [
        found.finding.evidence[0].seen
        for rank in RANKS
        for each in told(rank)
        for found in judge.see(
            Gathers(
                pid=rank, rank=rank, time=1.0, group=each.group, ranks=each.ranks, before=each.before, step=each.step,
                modules=tuple(Gathered(*module) for module in each.modules), row=each.row, models=models(rank),
            )
        )
        if found.check.slug == "fsdp-branches-differ"
    ]  # fmt: skip
