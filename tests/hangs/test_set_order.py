"""Collectives in a loop through a set: each process has another order of it, and parts of different sizes meet."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from ddpdoctor.checks.collectives._sets import loop_through_a_set
from ddpdoctor.checks.collectives.hangs._hangs import hang_of
from ddpdoctor.checks.collectives.hangs._kinds import Hang
from ddpdoctor.checks.collectives.hangs._losses import Loss, loss_of
from ddpdoctor.checks.collectives.unequal import collective_order_mismatch
from ddpdoctor.watch.events import Communication, Doing, Joining, PeerLost, Position, Progress, Site, Stalled
from ddpdoctor.watch.training import Training

RETURNED = """
def sizes(names):
    return {each: len(each) for each in {'a', 'b'}}
def step(counts):
    for name, count in counts.items():
        reduce(name)
step(sizes(1))
"""
FILLED = """
class Meter:
    def __init__(self):
        self.sums = {}
        for name in {'a', 'b'}:
            self.sums[name] = 0
    def step(self):
        for name in self.sums:
            reduce(name)
"""
SETS = (
    "for name in {'a', 'b'}:\n    reduce(name)\n",
    "for name in set(names):\n    reduce(name)\n",
    "for name in list(set(names)):\n    reduce(name)\n",
    "wanted = {each for each in names}\nfor name in wanted & tables.keys():\n    reduce(name)\n",
    "for name in frozenset(names).union(others):\n    if name:\n        reduce(name)\n",
    "for name, part in {each: 1 for each in set(names)}.items():\n    reduce(name)\n",
    RETURNED,
    FILLED,
    "found = []\nfor name in set(names):\n    found.append(name)\nfor i, name in enumerate(found):\n    reduce(name)\n",
    "def used():\n    return {'a'} - done\nfor name in used():\n    reduce(name)\n",
)
ORDERED = (
    "for name in sorted({'a', 'b'}):\n    reduce(name)\n",
    "for name in names:\n    reduce(name)\n",
    "for name in dict.fromkeys(names):\n    reduce(name)\n",
    "for name in set(names):\n    for part in parts[name]:\n        reduce(part)\n",
    "for number in {3, 1, 2}:\n    reduce(number)\n",
    "for number in set(range(8)):\n    reduce(number)\n",
    "for number in {each for each in range(8) if each}:\n    reduce(number)\n",
    "names = {'a'}\nnames = sorted(names)\nfor name in names:\n    reduce(name)\n",
    "def step(counts):\n    for name in counts:\n        reduce(name)\nstep(set(names))\nstep(['a', 'b'])\n",
    "sums = {}\nfor name in {'a', 'b'}:\n    sums[name] = 0\nsums['c'] = 1\nfor name in sums:\n    reduce(name)\n",
    "for name in {each: 1 for each in sorted(set(names))}:\n    reduce(name)\n",
    "while set(names):\n    reduce(name)\n",
    "reduce(set(names))\n",
)


def site_in(code: str, folder: Path) -> Site:
    """Return the line that reduces."""
    file = folder / "train.py"
    file.write_text(code)
    lines = code.splitlines()
    return Site(str(file), next(at for at, line in enumerate(lines, 1) if "reduce(" in line), "step")


@pytest.mark.parametrize("code", SETS)
def test_a_loop_through_a_set_is_known(code: str, tmp_path: Path) -> None:
    """By how the set is written, made or returned, as far as the file tells."""
    assert loop_through_a_set(site_in(code, tmp_path)) is not None


@pytest.mark.parametrize("code", ORDERED)
def test_what_has_an_order_is_none(code: str, tmp_path: Path) -> None:
    """Sorted, a list, a dict; and a loop of its own within that of the set."""
    assert loop_through_a_set(site_in(code, tmp_path)) is None


def calls(site: Site) -> list[tuple[Communication, ...]]:
    """Return the call of each of two ranks, with parts of different sizes."""
    return [(Communication(5, 1.0, "all_reduce", "0", shapes, site),) for shapes in ("[4, 8]", "[9, 8]")]


@pytest.mark.parametrize("code", [SETS[0], ORDERED[1]])
def test_the_loop_is_named_where_its_parts_meet(code: str, tmp_path: Path) -> None:
    """In a hang, and where gloo has ended a rank; without a set it is a mismatch of shapes."""
    site = site_in(code, tmp_path)
    is_set = code == SETS[0]
    training = Training()
    for rank in (0, 1):
        training.add(Joining(pid=rank + 1, time=0.0, rank=rank, world_size=2, backend="gloo"))
    positions = tuple(
        Position(
            rank=rank, pid=rank + 1, doing=Doing.WAITING, seconds=9, operation="all_reduce", site=site, recent=recent
        )
        for rank, recent in enumerate(calls(site))
    )
    progress = tuple(Progress(rank=rank, forwards=3, recent=recent) for rank, recent in enumerate(calls(site)))
    stalled = Stalled(pid=0, time=9.0, ranks=positions, world_size=2)
    lost = PeerLost(pid=0, time=9.0, first=None, others=(), gone=(0, 1), progress=progress)

    assert hang_of(stalled, training) is (Hang.ORDER if is_set else Hang.SHAPES)
    assert loss_of(lost, training) is (Loss.ORDER if is_set else Loss.SHAPES)
    if is_set:
        for found in (
            *collective_order_mismatch.while_training.examine(stalled),
            *collective_order_mismatch.by_those_who_lost_it.examine(lost, training),
        ):
            assert "is called in the order of a set, `for name in {'a', 'b'}` at line 1" in found.message
            assert "+for name in sorted({'a', 'b'}):" in found.fix.diff


@pytest.mark.parametrize("code", [SETS[0], ORDERED[1]])
def test_groups_joined_in_the_order_of_a_set(code: str, tmp_path: Path) -> None:
    """Each part has a group of its own, and its tensors may all be of one size."""
    site = site_in(code, tmp_path)
    positions = tuple(
        Position(
            rank=rank, pid=rank + 1, doing=Doing.WAITING, seconds=9, operation="all_reduce", site=site,
            recent=(Communication(1, 1.0, "all_reduce", group, "[4]", site),), stack=(site,),
        )
        for rank, group in enumerate("12")
    )  # fmt: skip
    stalled = Stalled(pid=0, time=9.0, ranks=positions, world_size=2)
    is_set = code == SETS[0]

    assert (hang_of(stalled, Training()) is Hang.ORDER) == is_set
    if is_set:
        (found,) = collective_order_mismatch.while_training.examine(stalled)
        assert "is called in the order of a set" in found.message
        assert [each.seen for each in found.evidence[:2]] == ["in group 1", "in group 2"]


@pytest.mark.parametrize(("after", "expected"), [("", Loss.JOINS), ("    meter.update(last)\n", Loss.SHAPES)])
def test_a_call_within_join_is_known_through_its_function(tmp_path: Path, after: str, expected: Loss) -> None:
    """The collective stands in a method, and all lines that call it within Join."""
    code = (
        dedent("""
        class Meter:
            def update(self, loss):
                dist.all_reduce(loss)
        def train(model, meter):
            with model.join():
                for batch in loader:
                    meter.update(model(batch))
    """)
        + after
    )
    file = tmp_path / "train.py"
    file.write_text(code)
    ours, theirs = Site(str(file), 4, "Meter.update"), Site(str(file), 6, "train")
    progress = tuple(
        Progress(rank=rank, forwards=3, recent=(Communication(7, 1.0, "all_reduce", "0", shapes, site),))
        for rank, (shapes, site) in enumerate((("[]", ours), ("[1]", theirs)))
    )
    lost = PeerLost(pid=0, time=9.0, first=None, others=(), gone=(0, 1), progress=progress)

    assert loss_of(lost, Training()) is expected
