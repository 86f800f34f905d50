"""A rank that ended with fewer steps than another one: by a `continue` of the loop, where nothing else can be."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpdoctor.checks.collectives.absent.rank_left_early import by_those_who_lost_it
from ddpdoctor.watch.events import EpochStarted, Failed, PeerLost, Progress, Site
from ddpdoctor.watch.training import Training

BAD = """for x in loader:
    if x.isnan().any():
        continue
    step(x)
"""
COUNTED = "for i in range(9):\n    if i == 3:\n        continue\n    step(i)\n"
NONE = "for x in loader:\n    y = 1\n    z = 2\n    step(x)\n"


@pytest.mark.parametrize(
    ("code", "forwards", "batches", "line"),
    [(BAD, (7, 8), (8, 8), 3), (BAD, (8, 8), (8, 8), 4), (BAD, (7, 8), (7, 8), 4), (COUNTED, (7, 8), (8, 8), 4),
     (NONE, (7, 8), (8, 8), 4)],
)  # fmt: skip
def test_the_continue_is_named_where_batches_are_as_many(
    tmp_path: Path, code: str, forwards: tuple[int, int], batches: tuple[int, int], line: int
) -> None:
    """Ranks that made as many forwards, or were given other numbers of batches, have another cause."""
    file = tmp_path / "train.py"
    file.write_text(code)
    training = Training()
    for rank in (0, 1):
        training.add(
            EpochStarted(pid=rank, time=0.5, rank=rank, loader=0, number=0, batches=batches[rank], training=True,
                         dataset="TensorDataset", length=64, batch_size=4, drop_last=False, workers=0, iterable=False,
                         sampler=None, given=0, owning_library="", subgroups=False)
        )  # fmt: skip
    at = Site(str(file), 4, "main")
    lost = Failed(
        pid=1, time=1.6, rank=1, site=at, error="RuntimeError", text="RuntimeError: Connection closed by peer"
    )
    progress = tuple(Progress(rank=rank, forwards=forwards[rank], recent=(), ended=rank == 0) for rank in (0, 1))
    event = PeerLost(pid=0, time=2.0, first=None, others=(lost,), ended=(0,), progress=progress, stack=(at,))

    (finding,) = by_those_who_lost_it.examine(event, training)

    assert finding.place.line == line
    assert ("`continue` at line 3" in finding.message) is (line == 3)
