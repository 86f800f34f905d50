"""The trainings of one command: each is compared with itself, whatever else the command has started."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from typing import Any

import pytest
from helpers import TESTS, Run, Script
from hypothesis import given, strategies as st

from ddpdoctor.watch.events import Event, Failed, Joined, Joining, Left, Started
from ddpdoctor.watch.trainings import Trainings

SIZE = 2


def life(pid: int, rank: int, port: int, since: float, launch: str = "") -> list[Event]:
    """Return what a process tells that joins a group, and leaves it."""
    who: dict[str, Any] = {"pid": pid, "rank": rank}
    return [
        Started(**who, time=since, program="train.py", launch=launch, world_size=SIZE if launch else -1),
        Joining(**who, time=since + 1, world_size=SIZE, backend="gloo", address=f"localhost:{port}"),
        Joined(**who, time=since + 2, world_size=SIZE, backend="gloo"),
        Left(**who, time=since + 3, ended=False),
    ]


def sorted_out(events: list[Event]) -> set[frozenset[int]]:
    """Return the processes of each training, the events taken in the order in which they happened."""
    trainings = Trainings()
    for event in sorted(events, key=lambda event: event.time):
        trainings.add(event)
    return {frozenset(event.pid for event in each.of(Joined)) for each in trainings} - {frozenset()}


@given(st.randoms(use_true_random=False), st.integers(1, 4), st.booleans())
def test_ranks_that_meet_at_one_address_are_one_training(mixed: random.Random, number: int, launched: bool) -> None:  # noqa: FBT001
    """Several at once, each at a port of its own, whoever of them comes first."""
    events = []
    for job in range(number):
        for rank in range(SIZE):
            since = mixed.random() / 2
            events += life(10 * job + rank + 1, rank, 20_000 + job, since, f"{job}" if launched else "")

    assert sorted_out(events) == {frozenset({10 * job + 1, 10 * job + 2}) for job in range(number)}


@pytest.mark.parametrize("launch", ["", "localhost 29500 run 0"])
def test_one_after_another_at_one_port_are_several(launch: str) -> None:
    """A sweep in a shell, or folds of mp.spawn: a rank that is there again, as another process, begins a new one."""
    events = [
        each for job in range(3) for rank in range(2) for each in life(10 * job + rank, rank, 9, 10 * job, launch)
    ]

    assert sorted_out(events) == {frozenset({10 * job, 10 * job + 1}) for job in range(3)}


@pytest.mark.parametrize("ports", [(9, 9), (9, 10)], ids=["one port", "two ports"])
def test_a_process_that_joins_again_is_in_a_new_training(ports: tuple[int, int]) -> None:
    """After destroy_process_group, at the same port or at another one."""
    trainings = Trainings()
    for number, port in enumerate(ports):
        for event in sorted(
            (each for rank in range(2) for each in life(rank, rank, port, 10.0 * number)), key=lambda event: event.time
        ):
            trainings.add(event)

    assert [len(each.of(Joined)) for each in trainings] == [2, 2]
    assert len(trainings.all.of(Joined)) == 4


@pytest.mark.parametrize("first", [0, 1])
def test_a_process_that_joins_as_a_rank_of_another_process_is_its_rival(first: int) -> None:
    """Both were launched as ranks of their own and both join as rank 0, whoever of them comes first."""
    trainings = Trainings()
    lives = [life(pid, 0, 9, float(pid != first), "launch")[:2] for pid in range(2)]
    for pid, (started, joining) in enumerate(lives):
        trainings.add(replace(started, rank=pid))
        lives[pid] = [joining]
    for event in sorted((each for (each,) in lives), key=lambda event: event.time):
        trainings.add(event)

    assert [[told.pid for told in trainings.of(pid).rivals] for pid in range(2)] == [[1], [0]]


def test_two_groups_of_the_ranks_of_one_launch() -> None:
    """Four ranks of torchrun make two groups of two, at two ports: who meets nobody of the others is not compared."""
    events = []
    for pid in range(4):
        _, *rest = life(pid, pid % 2, 9 + pid // 2, float(pid % 2), "launch")
        events += [Started(pid=pid, time=0.0, rank=pid, program="", launch="launch", world_size=4), *rest]

    assert sorted_out(events) == {frozenset({0, 1}), frozenset({2, 3})}


def test_a_rank_that_has_not_joined_yet_is_where_it_was_launched() -> None:
    """So that it is known who is missing; and the failure of a launcher is one of the latest training."""
    trainings = Trainings()
    for rank in range(2):
        trainings.add(Started(pid=rank, time=0.0, rank=rank, program="", launch="launch", world_size=2))
    joining = Joining(pid=0, time=1.0, rank=0, world_size=2, backend="gloo", address="elsewhere:1")
    failed = Failed(pid=99, time=2.0, error="ChildFailedError", text="")

    assert trainings.add(joining) is trainings.of(1) is trainings.add(failed)


FOLDS = (TESTS / "heads" / "folds.txt").read_text(encoding="utf-8")


@pytest.mark.usefixtures("no_process_left")
@pytest.mark.parametrize("how", ["at once", "inside"])
def test_folds_of_a_cross_validation_are_not_compared_with_each_other(
    python: str, ddpdoctor: Run, script: Script, how: str
) -> None:
    """Other data, another model, another length; while one fold trains, the ranks of the others have ended."""
    done = ddpdoctor("run", "--hang-after", "2", "--", python, script(FOLDS), how)

    assert done.returncode == 0, done.stderr
    assert not re.findall(r"DDP\d{3}", done.stderr), done.stderr
    assert "Nothing wrong was found" in done.stderr
