"""A rank that gloo ended in a collective of its own, on a host that sees no other rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpdoctor.checks.collectives.hangs._losses import Loss, loss_of
from ddpdoctor.checks.collectives.skipped.rank0_only_collective import where_it_ended_the_rank_of_this_host
from ddpdoctor.watch.events import Communication, Joined, PeerLost, Site
from ddpdoctor.watch.events.failures import Progress
from ddpdoctor.watch.training import Training

SCRIPT = """
import torch.distributed as dist
def main(total, done):
    rank = dist.get_rank()
    {}:
        dist.all_reduce(total)
"""


@pytest.mark.parametrize(
    ("test", "group", "loss"),
    [
        ("if rank == 0", "0", Loss.LONE),
        ("if done", "0", Loss.UNSEEN),
        ("for _ in range(3)", "0", Loss.UNSEEN),
        ("if rank == 0", "7", Loss.UNSEEN),
    ],
)
def test_a_call_that_no_other_rank_makes_is_named(test: str, group: str, loss: Loss, tmp_path: Path) -> None:
    """By the source, which is certain; of a group of its own, or under any other test, the last call is a note."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(test))
    call = Communication(7, 1.0, "all_reduce", group, "(1,)", Site(str(script), 6, "main"))
    training = Training()
    training.add(Joined(pid=1, time=0.0, rank=0, world_size=2, backend="gloo"))
    progress = (Progress(rank=0, forwards=3, recent=(call,), steps=3),)
    event = PeerLost(pid=0, time=2.0, first=None, others=(), gone=(0,), progress=progress)

    assert loss_of(event, training) is loss
    if loss is Loss.LONE:
        (found,) = where_it_ended_the_rank_of_this_host.examine(event)
        assert "rank 0 called all_reduce at train.py:6" in found.message
        assert "if rank == 0" in found.message
        assert "the ranks of other hosts have skipped it and gone on" in found.message
