"""Same data on all ranks: the fix is one that the code that was found can be mended by."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

from helpers import CHECKS, FIXTURES, TESTS

from ddpdoctor.selftest.trainings import watched

if TYPE_CHECKING:
    from ddpdoctor.jobs.pool import Jobs

HEAD = (TESTS / "heads" / "data_head.txt").read_text(encoding="utf-8")
END = "\ndist.destroy_process_group()\n"
BUCKETS = """
class Buckets(Sampler):
    def __init__(self, length):
        self.length, self.epoch = length, 0
    def set_epoch(self, epoch):
        self.epoch = epoch
    def __iter__(self):
        generator = torch.Generator().manual_seed(self.epoch)
        order = torch.randperm(self.length, generator=generator).tolist()
        batches = [order[at : at + 8] for at in range(0, self.length, 8)]
        yield from batches
    def __len__(self):
        return self.length // 8
loader = DataLoader(Numbers(), batch_sampler=Buckets(96))
model, optimizer = wrapped()
for epoch in range(2):
    loader.batch_sampler.set_epoch(epoch)
    for batch in loader:
        step(model, optimizer, batch)
"""
ONE_DIMENSION = (
    ('(1, dist.get_world_size()), mesh_dim_names=("dp", "tp")', '(dist.get_world_size(),), mesh_dim_names=("tp",)'),
    ('mesh["tp"]', "mesh"),
)


def test_batches_are_shared_out_by_their_own_sampler(tmp_path: Path, jobs: Jobs) -> None:
    """A DistributedSampler has no place beside a batch sampler; what it gives are batches."""
    path = tmp_path / "train.py"
    path.write_text(HEAD + dedent(BUCKETS) + END)
    (found,) = [each.finding for each in watched(path, CHECKS, jobs) if each.check.slug == "no-distributed-sampler"]

    assert "Buckets of 12 batches" in found.evidence[0].seen
    assert "class Buckets" in found.fix.diff
    assert "DistributedSampler" not in found.fix.diff

    mended = BUCKETS.replace("yield from batches", "yield from batches[rank : len(batches) // world * world : world]")
    path.write_text(HEAD + dedent(mended.replace("self.length // 8", "self.length // 8 // world")) + END)
    assert not watched(path, CHECKS, jobs)


def test_one_model_over_all_ranks_leaves_nothing_to_split_over(tmp_path: Path, jobs: Jobs) -> None:
    """Where the mesh has the dimension of the tensor parallelism alone, no other one is named."""
    text = (FIXTURES / "batches_differ_in_tensor_parallel" / "broken.py").read_text(encoding="utf-8")
    for old, new in ONE_DIMENSION:
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "train.py"
    path.write_text(text)
    (found,) = [each.finding for each in watched(path, CHECKS, jobs) if each.check.area == "collectives"]

    assert "num_replicas=1, rank=0" in found.fix.diff
    assert "mesh" not in found.fix.diff
