"""A rank that came to the end of a loop and left out a step of it: told by its batches, and the ways past a step."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpdoctor.checks.collectives.hangs.source._exits import step_skipped
from ddpdoctor.watch.events import Doing, EpochEnded, EpochStarted, Position, Site, Stalled
from ddpdoctor.watch.training import Training

SOURCE = """\
def main():
    for batch in loader:
        try:
            step(batch)
        except ValueError:
            print("skipped")
    dist.barrier()
main()
"""
LOOP, STEP, BARRIER, CALL = 2, 4, 7, 8


def hang(path: Path, batches: tuple[int, int], *, complete: bool = True, moved: int = 0) -> tuple[Stalled, Training]:
    """Return rank 0 in a step, and rank 1 behind the loop, each with so many batches."""
    training = Training()
    loop = Site(str(path), LOOP, "main")
    for rank in (0, 1):
        training.add(
            EpochStarted(
                pid=rank + 1, time=1.0, rank=rank, site=loop, loader=0, number=0, training=True, dataset="a",
                length=64, batches=8, batch_size=8, drop_last=False, workers=0, iterable=False, sampler=None, given=0,
                owning_library="", subgroups=False,
            )
        )  # fmt: skip
    training.add(EpochEnded(pid=2, time=2.0, rank=1, loader=0, number=0, batches=batches[1], complete=complete))
    at = [
        (Site(str(path), line, "main"), Site(str(path), CALL + moved, "<module>")) for line in (STEP, BARRIER + moved)
    ]
    ranks = tuple(
        Position(
            pid=rank + 1, rank=rank, doing=Doing.WAITING, seconds=9.0, operation="barrier", site=stack[0], stack=stack,
            batches=batches[rank],
        )
        for rank, stack in enumerate(at)
    )  # fmt: skip
    return Stalled(pid=0, time=9.0, ranks=ranks, world_size=2), training


@pytest.mark.parametrize(
    ("more", "ways"), [("", ["except ValueError"]), ("        if bad(): continue\n", ["continue", "except ValueError"])]
)
def test_the_ways_past_a_step_are_told(tmp_path: Path, more: str, ways: list[str]) -> None:
    """A handler alone is an exception that was swallowed; beside a `continue` under a test it is one of two."""
    path = tmp_path / "train.py"
    path.write_text(SOURCE.replace('            print("skipped")\n', f"            pass\n{more}"))
    event, training = hang(path, (8, 8), moved=more.count("\n"))
    found = step_skipped(event, training)

    assert found is not None
    assert sorted(each.kind for each in found.ways) == ways
    assert found.in_handlers is not bool(more)


@pytest.mark.parametrize(("batches", "complete"), [((9, 8), True), ((8, 8), False)])
def test_fewer_batches_or_a_loop_that_was_left_are_no_skipped_step(
    tmp_path: Path,
    batches: tuple[int, int],
    complete: bool,  # noqa: FBT001
) -> None:
    """The rank outside has taken all that the other one has, and came to the end."""
    path = tmp_path / "train.py"
    path.write_text(SOURCE)

    assert step_skipped(*hang(path, batches, complete=complete)) is None
