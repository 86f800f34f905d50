"""Healthy loaders of many designs: no check says anything of them."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest
from helpers import CHECKS

from ddpdoctor.examine.loader.exam import LoaderExam, examine_loader
from ddpdoctor.examine.target import Target
from ddpdoctor.facets import Check, Instrument, NotRun
from ddpdoctor.findings import Finding, Severity
from ddpdoctor.jobs.outcome import Returned
from ddpdoctor.selftest.result import fixture

if TYPE_CHECKING:
    from ddpdoctor.jobs.pool import Jobs

HEAD = """
import itertools, os, random, sys, time
from dataclasses import dataclass
import numpy as np
import torch
import torch.distributed as dist
from torch.utils.data import *
from torch.utils.data.distributed import DistributedSampler

class Numbers(Dataset):
    def __init__(self, length=64):
        self.rows = torch.randn(length, 8, generator=torch.Generator().manual_seed(0))
    def __len__(self):
        return len(self.rows)
    def __getitem__(self, index):
        return self.rows[index], index % 3

"""
FATAL = {"batch-sizes-differ", "sampler-and-shuffle", "uneven-inputs"}
SET_EPOCH = """
def train(epochs, loader):
    for epoch in range(epochs):
        loader.sampler.set_epoch(epoch)
"""


def examine(jobs: Jobs, folder: Path, text: str, name: str = "build_loader") -> LoaderExam:
    """Examine the loader that a script builds."""
    path = folder / "train.py"
    path.write_text(HEAD + dedent(text))
    return examine_loader(jobs, Target(str(path), name))


def said(exam: LoaderExam) -> dict[str, list[Finding]]:
    """Return what the data checks say, by their slug; nothing of those that found nothing."""
    findings: dict[str, list[Finding]] = {}
    for check in CHECKS:
        if check.area == "data":
            for facet in check.of(Instrument.PROBE):
                try:
                    found = list(facet.examine(exam))
                except NotRun:
                    continue
                if found:
                    findings.setdefault(check.slug, []).extend(found)
    return findings


OWN_SHARE = """
class Own(Sampler):
    def __init__(self, n, rank, world):
        self.n, self.rank, self.world, self.epoch = n, rank, world, 0
    def set_epoch(self, epoch):
        self.epoch = epoch
    def __iter__(self):
        order = {order}
        return iter(order[self.rank :: self.world])
    def __len__(self):
        return self.n // self.world
def build_loader(rank, world_size):
    return DataLoader(Numbers(), batch_size=4, sampler=Own(64, rank, world_size))
"""
HEALTHY = {
    "an endless stream of indices behind a wrapper that has a length": """
        class Endless(Sampler):
            def __init__(self, rank, world):
                self.rank, self.world = rank, world
            def __iter__(self):
                generator = torch.Generator().manual_seed(5)
                while True:
                    yield from torch.randperm(64, generator=generator).tolist()[self.rank :: self.world]
        class Epochs:
            def __init__(self, loader):
                self.loader, self.dataset, self.sampler = loader, loader.dataset, loader.sampler
            def __len__(self):
                return 8
            def __iter__(self):
                return itertools.islice(iter(self.loader), 8)
        def build_loader(rank, world_size):
            return Epochs(DataLoader(Numbers(), batch_size=4, sampler=Endless(rank, world_size)))
    """,
    "a sampler of one's own, that shuffles as the training has seeded": OWN_SHARE.format(
        order="np.random.permutation(self.n).tolist()"
    )
    + SET_EPOCH,
    "one that permutes by the epoch": OWN_SHARE.format(order="random.Random(self.epoch).sample(range(self.n), self.n)")
    + SET_EPOCH,
    "one that shuffles each rank's share by itself": OWN_SHARE.format(order="list(range(self.n))").replace(
        "return iter(order[self.rank :: self.world])",
        "mine = order[self.rank :: self.world]; random.Random(self.epoch + self.rank).shuffle(mine); return iter(mine)",
    )
    + SET_EPOCH,
    "one that draws by weight, with replacement": OWN_SHARE.format(
        order="random.Random(self.epoch + self.rank).choices(range(self.n), k=self.n)"
    )
    + SET_EPOCH,
    "a distributed sampler": """
        def build_loader():
            data = Numbers()
            return DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
    """,
    "one in a tuple with its loader": """
        def build_loader():
            data = Numbers()
            sampler = DistributedSampler(data)
            return DataLoader(data, batch_size=8, sampler=sampler), sampler
    """,
    "one that pads": """
        def build_loader():
            data = Numbers(63)
            return DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
    """,
    "one that drops": """
        def build_loader():
            data = Numbers(63)
            return DataLoader(data, batch_size=5, drop_last=True, sampler=DistributedSampler(data, drop_last=True))
    """,
    "one that does not shuffle": """
        def build_loader():
            data = Numbers()
            return DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=False))
    """,
    "one of a random split": """
        def build_loader():
            data, rest = random_split(Numbers(), [50, 14], generator=torch.Generator().manual_seed(1))
            return DataLoader(data, batch_size=5, sampler=DistributedSampler(data))
    """,
    "one under a batch sampler": """
        def build_loader():
            data = Numbers()
            return DataLoader(data, batch_sampler=BatchSampler(DistributedSampler(data), 4, True))
    """,
    "a single sample": """
        def build_loader():
            data = Numbers(1)
            return DataLoader(data, sampler=DistributedSampler(data))
    """,
    "a single sample without a sampler": """
        def build_loader():
            return DataLoader(Numbers(1), shuffle=True)
    """,
    "batches of varying size": """
        class Buckets:
            def __init__(self, rank):
                self.rank, self.epoch = rank, 0
            def set_epoch(self, epoch):
                self.epoch = epoch
            def __len__(self):
                return 8
            def __iter__(self):
                order = torch.randperm(64, generator=torch.Generator().manual_seed(self.epoch)).tolist()[self.rank::2]
                cuts = [0, 1, 5, 9, 12, 17, 20, 26, 32]
                return iter([order[a:b] for a, b in zip(cuts, cuts[1:])])
        def build_loader(rank):
            return DataLoader(Numbers(), batch_sampler=Buckets(rank))
    """,
    "shards of accelerate": """
        class BatchSamplerShard(BatchSampler):
            def __init__(self, batch_sampler, num_processes, process_index):
                self.batch_sampler, self.num_processes, self.process_index = batch_sampler, num_processes, process_index
                self.batch_size, self.drop_last = batch_sampler.batch_size, batch_sampler.drop_last
            def __len__(self):
                return len(self.batch_sampler) // self.num_processes
            def __iter__(self):
                yield from itertools.islice(self.batch_sampler, self.process_index, None, self.num_processes)
        def build_loader(rank, world_size):
            seeded = RandomSampler(Numbers(), generator=torch.Generator().manual_seed(3))
            whole = BatchSampler(seeded, 8, False)
            return DataLoader(Numbers(), batch_sampler=BatchSamplerShard(whole, world_size, rank))
    """,
    "a Subset for each rank": """
        def build_loader(rank, world_size):
            data = Numbers()
            return DataLoader(Subset(data, range(rank, 64, world_size)), batch_size=8, shuffle=True)
    """,
    "a data set for each rank": """
        class Mine(Numbers):
            def __init__(self):
                super().__init__()
                self.rows = self.rows[dist.get_rank()::dist.get_world_size()]
        def build_loader():
            torch.manual_seed(0)
            return DataLoader(Mine(), batch_size=8, shuffle=True)
    """,
    "a data set for each rank, augmented by itself, whose labels are alike": """
        class Mine(Dataset):
            def __init__(self):
                self.rng = np.random.default_rng(dist.get_rank())
            def __len__(self):
                return 32
            def __getitem__(self, index):
                return torch.randn(3, 8, 8) + self.rng.random(), (2 * index + dist.get_rank()) // 8
        def build_loader():
            torch.manual_seed(0)
            return DataLoader(Mine(), batch_size=8, shuffle=True)
    """,
    "constant samples": """
        class Zeros(Dataset):
            def __len__(self):
                return 32
            def __getitem__(self, index):
                return torch.zeros(3, 8, 8)
        def build_loader():
            torch.manual_seed(0)
            return DataLoader(Zeros(), batch_size=8, shuffle=True)
    """,
    "a SubsetRandomSampler for each rank": """
        def build_loader(rank, world_size):
            return DataLoader(Numbers(), batch_size=8, sampler=SubsetRandomSampler(range(rank, 64, world_size)))
    """,
    "a list for each rank": """
        def build_loader(rank, world_size):
            return DataLoader(Numbers(), batch_size=8, sampler=list(range(rank, 64, world_size)))
    """,
    "draws with replacement": """
        def build_loader():
            return DataLoader(Numbers(), batch_size=8, sampler=WeightedRandomSampler([1.0] * 64, 64))
    """,
    "random crops": """
        def build_loader():
            return DataLoader(Numbers(), batch_size=8, sampler=RandomSampler(Numbers(), replacement=True))
    """,
    "a sampler that shuffles by itself": """
        class Own(Sampler):
            def __init__(self, rank, world_size):
                self.rank, self.world_size, self.rounds = rank, world_size, 0
            def __len__(self):
                return 32
            def __iter__(self):
                self.rounds += 1
                generator = torch.Generator().manual_seed(self.rounds)
                return iter(torch.randperm(64, generator=generator).tolist()[self.rank::self.world_size])
        def build_loader(rank, world_size):
            return DataLoader(Numbers(), batch_size=8, sampler=Own(rank, world_size))
    """,
    "a sampler of sizes": """
        class Sized(DistributedSampler):
            def __iter__(self):
                return ((index, 32 + index % 3) for index in super().__iter__())
        class Scaled(Numbers):
            def __getitem__(self, pair):
                return self.rows[pair[0]] * pair[1]
        def build_loader():
            return DataLoader(Scaled(), batch_size=8, sampler=Sized(Scaled()))
    """,
    "a data set of names": """
        NAMES = [f"name {number}" for number in range(32)]
        class Named(dict):
            def __len__(self):
                return 32
        class ByName(DistributedSampler):
            def __iter__(self):
                return (NAMES[index] for index in super().__iter__())
        def build_loader():
            data = Named({name: torch.ones(2) for name in NAMES})
            return DataLoader(data, batch_size=4, sampler=ByName(range(32)))
    """,
    "dictionaries, texts and dataclasses": """
        @dataclass
        class Pair:
            text: str
            row: torch.Tensor
        class Pairs(Numbers):
            def __getitem__(self, index):
                return {"pair": Pair(f"line {index}", self.rows[index]), "more": ("a", [index, None]), "o": object()}
        def build_loader():
            return DataLoader(Pairs(), batch_size=8, sampler=DistributedSampler(Pairs()), collate_fn=list)
    """,
    "persistent workers and pinned memory": """
        def build_loader():
            data = Numbers()
            return DataLoader(data, batch_size=8, sampler=DistributedSampler(data), num_workers=2,
                              persistent_workers=True, pin_memory=True)
    """,
    "spawned workers": """
        def build_loader():
            data = Numbers()
            return DataLoader(data, batch_size=8, sampler=DistributedSampler(data), num_workers=2,
                              multiprocessing_context="spawn")
    """,
    "augmentation by the global generators": """
        class Noisy(Numbers):
            def __getitem__(self, index):
                flip = random.random() < 0.5
                return (-1 if flip else 1) * self.rows[index] + torch.rand(8) + float(np.random.rand())
        def build_loader():
            return DataLoader(Noisy(), batch_size=8, sampler=DistributedSampler(Noisy()), num_workers=2)
    """,
    "a rare flip": """
        class Flipped(Numbers):
            def __getitem__(self, index):
                return self.rows[index].flip(0) if torch.rand(1) < 0.5 else self.rows[index]
        def build_loader():
            return DataLoader(Flipped(), batch_size=8, sampler=DistributedSampler(Flipped()), num_workers=2)
    """,
    "a file that is opened at the first fetch": """
        class Lazy(Numbers):
            opened = None
            def __getitem__(self, index):
                self.opened = self.opened or os.getpid()
                if self.opened != os.getpid():
                    os.abort()
                return self.rows[index]
        def build_loader():
            return DataLoader(Lazy(), batch_size=8, sampler=DistributedSampler(Lazy()), num_workers=2)
    """,
    "a stream split by rank and worker": """
        class Lines(IterableDataset):
            def __iter__(self):
                info = get_worker_info()
                part = dist.get_rank() * info.num_workers + info.id
                yield from Numbers().rows[part::dist.get_world_size() * info.num_workers]
        def build_loader():
            return DataLoader(Lines(), batch_size=4, num_workers=2)
    """,
    "a stream of spawned workers": """
        class Lines(IterableDataset):
            def __iter__(self):
                yield from Numbers().rows[dist.get_rank() * 2 + get_worker_info().id::4]
        def build_loader():
            return DataLoader(Lines(), batch_size=4, num_workers=2, multiprocessing_context="spawn")
    """,
    "a stream that repeats what it has": """
        class Lines(IterableDataset):
            def __iter__(self):
                info = get_worker_info()
                mine = Numbers().rows[dist.get_rank() * 2 + info.id::4]
                yield from itertools.chain(mine, mine)
        def build_loader():
            return DataLoader(Lines(), batch_size=4, num_workers=2)
    """,
    "a stream without end": """
        class Endless(IterableDataset):
            def __iter__(self):
                while True:
                    yield torch.randn(4)
        def build_loader():
            return DataLoader(Endless(), batch_size=4, num_workers=2)
    """,
    "a stream of few labels": """
        class Labels(IterableDataset):
            def __iter__(self):
                yield from (index % 10 for index in range(50 * dist.get_rank(), 50 * dist.get_rank() + 50))
        def build_loader():
            return DataLoader(Labels(), batch_size=5)
    """,
    "a stream of padding": """
        class Padding(IterableDataset):
            def __iter__(self):
                yield from (torch.zeros(8) for _ in range(40))
        def build_loader():
            return DataLoader(Padding(), batch_size=5)
    """,
    "a stream whose length is a guess": """
        class Guess(IterableDataset):
            def __len__(self):
                return 1000 if dist.get_rank() else 999
            def __iter__(self):
                yield from Numbers().rows[dist.get_rank()::2]
        def build_loader():
            return DataLoader(Guess(), batch_size=None)
    """,
    "a generator of random batches": """
        def build_loader():
            return ((torch.randn(4, 8), torch.randint(9, (4,))) for _ in itertools.count())
    """,
    "a list of batches": """
        def build_loader(rank):
            return [Numbers().rows[start:start + 4] for start in range(rank * 4, 64, 8)]
    """,
    "a loader without a length": """
        class Loader:
            def __len__(self):
                raise TypeError("no length")
            def __iter__(self):
                return iter(Numbers().rows[dist.get_rank()::2].split(4))
        def build_loader():
            return Loader()
    """,
    "a prefetcher": """
        class Prefetcher:
            def __init__(self, loader):
                self.loader = loader
            def __iter__(self):
                yield from self.loader
        def build_loader():
            data = Numbers()
            return Prefetcher(DataLoader(data, batch_size=8, sampler=DistributedSampler(data)))
    """,
    "an endless loader": """
        class Repeat:
            def __init__(self, sampler):
                self.sampler = sampler
            def __iter__(self):
                while True:
                    yield from iter(self.sampler)
        class Infinite(DataLoader):
            def __init__(self, *args, **options):
                super().__init__(*args, **options)
                object.__setattr__(self, "batch_sampler", Repeat(self.batch_sampler))
                self.iterator = super().__iter__()
            def __len__(self):
                return len(self.batch_sampler.sampler)
            def __iter__(self):
                for _ in range(len(self)):
                    yield next(self.iterator)
        def build_loader():
            data = Numbers()
            return Infinite(data, batch_size=8, sampler=DistributedSampler(data), num_workers=2)
    """,
    "an endless sampler": """
        class Endless(DistributedSampler):
            def __iter__(self):
                while True:
                    yield from super().__iter__()
        def build_loader():
            return DataLoader(Numbers(), batch_size=8, sampler=Endless(Numbers()))
    """,
    "what accelerate prepares": """
        def build_loader():
            return DataLoader(Numbers(), batch_size=8, shuffle=True)
        def main():
            from accelerate import Accelerator
            loader = Accelerator().prepare(build_loader())
    """,
    "batch sampler": """
        data = TensorDataset(torch.randn(40, 2, generator=torch.Generator().manual_seed(0)))
        def build_loader():
            sampler = DistributedSampler(data)
            return DataLoader(data, batch_sampler=BatchSampler(sampler, 4, drop_last=True))
        for epoch in (): sampler.set_epoch(epoch)
    """,
    "one sample": """
        data = TensorDataset(torch.randn(40, 2, generator=torch.Generator().manual_seed(0)))
        def build_loader():
            one = TensorDataset(torch.randn(1, 2))
            return DataLoader(one, sampler=DistributedSampler(one))
    """,
    "constant padding": """
        data = TensorDataset(torch.randn(40, 2, generator=torch.Generator().manual_seed(0)))
        class Stream(IterableDataset):
            def __iter__(self): return iter([torch.zeros(3)] * 20)
        def build_loader(): return DataLoader(Stream(), batch_size=2, num_workers=2)
    """,
    "weighted": """
        data = TensorDataset(torch.randn(40, 2, generator=torch.Generator().manual_seed(0)))
        def build_loader(rank):
            torch.manual_seed(rank)
            return DataLoader(data, batch_size=4, sampler=WeightedRandomSampler(torch.ones(40), 40))
    """,
    "infinite": """
        data = TensorDataset(torch.randn(40, 2, generator=torch.Generator().manual_seed(0)))
        class Stream(IterableDataset):
            def __iter__(self):
                generator = torch.Generator().manual_seed(dist.get_rank())
                while True: yield torch.randn(3, generator=generator)
        def build_loader(): return DataLoader(Stream(), batch_size=2)
    """,
    "plain generator": """
        data = TensorDataset(torch.randn(40, 2, generator=torch.Generator().manual_seed(0)))
        def build_loader(rank, world_size):
            return [{"ids": torch.full((4,), i), "text": ["a", str(i)]} for i in range(rank, 40, world_size)]
    """,
    "own batches": """
        data = TensorDataset(torch.randn(40, 2, generator=torch.Generator().manual_seed(0)))
        class Dealt:
            def __init__(self, sampler): self.sampler = sampler
            def __iter__(self):
                rank, world = dist.get_rank(), dist.get_world_size()
                return iter(list(self.sampler)[rank::world])
            def __len__(self): return len(self.sampler) // dist.get_world_size()
        def build_loader():
            return DataLoader(data, batch_sampler=Dealt(BatchSampler(SequentialSampler(data), 4, True)))
    """,
    "lightning like": """
        data = TensorDataset(torch.randn(40, 2, generator=torch.Generator().manual_seed(0)))
        def build_loader():
            return DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
        def fit():
            for epoch in range(3):
                loader = build_loader(); loader.sampler.set_epoch(epoch)
    """,
    "subset": """
        data = TensorDataset(torch.randn(40, 2, generator=torch.Generator().manual_seed(0)))
        def build_loader(rank, world_size):
            share = Subset(data, range(rank, 40, world_size))
            return DataLoader(share, batch_size=4, shuffle=True, drop_last=True)
    """,
    "random crops in workers": """
        data = TensorDataset(torch.randn(40, 2, generator=torch.Generator().manual_seed(0)))
        class Crops(Dataset):
            def __len__(self): return 40
            def __getitem__(self, index): return data[index][0] + torch.randn(2), index
        def build_loader(rank):
            torch.manual_seed(rank)
            crops = Crops()
            return DataLoader(crops, batch_size=4, sampler=DistributedSampler(crops), num_workers=2)
        for epoch in (): DistributedSampler.set_epoch(epoch)
    """,
    "unsized": """
        data = TensorDataset(torch.randn(40, 2, generator=torch.Generator().manual_seed(0)))
        class Unsized(IterableDataset):
            def __iter__(self):
                for i in range(dist.get_rank(), 40, dist.get_world_size()): yield torch.tensor([i, i + 1])
            def __len__(self): raise TypeError("no length")
        def build_loader(): return DataLoader(Unsized(), batch_size=4, drop_last=True)
    """,
    "numpy bfloat16 and objects": """
        data = TensorDataset(torch.randn(40, 2, generator=torch.Generator().manual_seed(0)))
        import numpy as np
        class Mixed(Dataset):
            def __len__(self): return 40
            def __getitem__(self, index):
                half = data[index][0].bfloat16()
                return {"a": np.float32(index), "b": half, "c": f"text {index}", "d": (index, None)}
        def build_loader():
            mixed = Mixed()
            return DataLoader(mixed, batch_size=4, sampler=DistributedSampler(mixed, shuffle=False), collate_fn=list)
    """,
}


@pytest.mark.parametrize("text", HEALTHY.values(), ids=HEALTHY)
def test_nothing_is_said_of_a_healthy_loader(jobs: Jobs, tmp_path: Path, text: str) -> None:
    """A healthy design is not reported by any check of the area."""
    assert said(examine(jobs, tmp_path, dedent(text) + SET_EPOCH)) == {}


PROBING = [check for check in CHECKS if check.area == "data" and check.of(Instrument.PROBE)]
UNWATCHED = [check for check in PROBING if not check.of(Instrument.WATCH)]


@pytest.fixture(scope="module", params=PROBING, ids=lambda check: check.slug)
def check(request: pytest.FixtureRequest) -> Check:
    """Return each check of the area that looks at a loader."""
    checked: Check = request.param
    return checked


def test_a_control_is_healthy_in_every_respect(jobs: Jobs, check: Check) -> None:
    """None of the other checks says more than a note of a healthy twin."""
    findings = said(examine_loader(jobs, Target(str(fixture(check, "healthy.py")), "build_loader")))
    assert {
        slug for slug, found in findings.items() if any(each.severity is not Severity.NOTE for each in found)
    } == set()


@pytest.mark.parametrize("name", ["healthy", "broken"])
@pytest.mark.parametrize("check", UNWATCHED, ids=lambda check: check.slug)
def test_patients_and_controls_are_scripts_that_torchrun_can_start(jobs: Jobs, check: Check, name: str) -> None:
    """Controls train to the end; broken cases too, but for those whose ailment is to crash or to hang.

    Those of a check that watches trainings are run as scripts by its self-test.
    """
    outcomes = jobs.run_script(fixture(check, f"{name}.py"), deadline=8)
    ends = all(isinstance(outcome, Returned) for outcome in outcomes)
    assert ends is not (name == "broken" and check.slug in FATAL)


def test_a_data_set_that_raises_is_said_to(jobs: Jobs, tmp_path: Path) -> None:
    """What could not be compared names the error, not the data."""
    text = """
        class Broken(Numbers):
            def __getitem__(self, index): raise KeyError("image")
        def build_loader():
            return DataLoader(Broken())
    """
    exam = examine(jobs, tmp_path, text)
    assert exam.raised == "KeyError: 'image'"
    assert said(exam) == {}


def test_an_evaluation_on_each_rank_is_a_note(jobs: Jobs, tmp_path: Path) -> None:
    """A factory that is named for evaluation can show each rank everything: no more than a note."""
    text = """
        def build_val_loader():
            return DataLoader(Numbers(), batch_size=8)
    """
    findings = said(examine(jobs, tmp_path, text, "build_val_loader"))
    assert {finding.severity for each in findings.values() for finding in each} <= {Severity.NOTE}


ILL = {
    "each rank shuffles": (
        "no-distributed-sampler",
        Severity.ERROR,
        """
        def build_loader():
            return DataLoader(Numbers(), batch_size=8, shuffle=True)
        """,
    ),
    "nobody shuffles": (
        "no-distributed-sampler",
        Severity.WARNING,
        """
        def build_loader():
            return DataLoader(Numbers(), batch_size=8)
        """,
    ),
    "each rank shuffles a random split": (
        "no-distributed-sampler",
        Severity.ERROR,
        """
        def build_loader():
            data, rest = random_split(Numbers(), [58, 6])
            return DataLoader(data, batch_size=8, shuffle=True)
        """,
    ),
    "each rank shuffles the same split": (
        "no-distributed-sampler",
        Severity.ERROR,
        """
        def build_loader():
            return DataLoader(Numbers(), batch_size=8, sampler=SubsetRandomSampler(range(40)))
        """,
    ),
    "all ranks draw the same with replacement": (
        "no-distributed-sampler",
        Severity.ERROR,
        """
        def build_loader():
            generator = torch.Generator().manual_seed(0)
            sampler = WeightedRandomSampler([1.0] * 64, 32, generator=generator)
            return DataLoader(Numbers(), batch_size=8, sampler=sampler)
        """,
    ),
    "scalars without a sampler": (
        "no-distributed-sampler",
        Severity.ERROR,
        """
        def build_loader():
            return DataLoader(TensorDataset(torch.arange(64)), batch_size=8, shuffle=True)
        """,
    ),
    "images that are augmented": (
        "no-distributed-sampler",
        Severity.ERROR,
        """
        class Noisy(Numbers):
            def __getitem__(self, index):
                return self.rows[index] + torch.rand(8), index // 8
        def build_loader():
            return DataLoader(Noisy(), batch_size=8, shuffle=True, num_workers=2)
        """,
    ),
    "the sampler has rank 0 everywhere": (
        "sampler-wrong-rank",
        Severity.ERROR,
        """
        def build_loader():
            data = Numbers()
            return DataLoader(data, batch_size=8, sampler=DistributedSampler(data, num_replicas=1, rank=0))
        """,
    ),
    "the sampler counts four ranks": (
        "sampler-wrong-rank",
        Severity.ERROR,
        """
        def build_loader(rank):
            data = Numbers()
            return DataLoader(data, batch_size=8, sampler=DistributedSampler(data, num_replicas=4, rank=rank))
        """,
    ),
    "the sampler's rank is the local one": (
        "sampler-wrong-rank",
        Severity.NOTE,
        """
        def build_loader(world_size):
            data = Numbers()
            sampler = DistributedSampler(data, num_replicas=world_size, rank=int(os.environ["LOCAL_RANK"]))
            return DataLoader(data, batch_size=8, sampler=sampler)
        """,
    ),
    "the batches were computed once": (
        "set-epoch-ignored",
        Severity.WARNING,
        """
        class Kept(BatchSampler):
            def __init__(self, sampler, size):
                super().__init__(sampler, size, False)
                self.batches = list(super().__iter__())
            def __iter__(self):
                return iter(self.batches)
        def build_loader():
            data = Numbers()
            return DataLoader(data, batch_sampler=Kept(DistributedSampler(data), 8))
        """,
    ),
    "each rank splits by itself": (
        "shards-overlap",
        Severity.NOTE,
        """
        def build_loader():
            data, rest = random_split(Numbers(), [40, 24])
            return DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
        """,
    ),
    "the sampler yields all": (
        "shards-overlap",
        Severity.ERROR,
        """
        class All(DistributedSampler):
            def __iter__(self):
                order = torch.randperm(64, generator=torch.Generator().manual_seed(self.epoch)).tolist()
                return iter(order[:32])
        def build_loader():
            return DataLoader(Numbers(), batch_size=8, sampler=All(Numbers()))
        """,
    ),
    "the sampler leaves half out": (
        "shards-overlap",
        Severity.NOTE,
        """
        class Half(DistributedSampler):
            def __iter__(self):
                return iter(range(self.rank, 32, 2))
        def build_loader():
            return DataLoader(Numbers(), batch_size=4, sampler=Half(Numbers(), shuffle=False))
        """,
    ),
    "a stream that is longer on one rank": (
        "uneven-inputs",
        Severity.ERROR,
        """
        class Lines(IterableDataset):
            def __iter__(self):
                yield from Numbers().rows[:20] if dist.get_rank() else Numbers().rows[20:]
        def build_loader():
            return DataLoader(Lines(), batch_size=4)
        """,
    ),
    "a stream that ends on one rank only": (
        "uneven-inputs",
        Severity.ERROR,
        """
        class Lines(IterableDataset):
            def __iter__(self):
                yield from (torch.randn(4) for _ in (range(8) if dist.get_rank() else itertools.count()))
        def build_loader():
            return DataLoader(Lines(), batch_size=4)
        """,
    ),
    "a stream that each rank shuffles": (
        "iterable-not-split-by-rank",
        Severity.ERROR,
        """
        class Lines(IterableDataset):
            def __iter__(self):
                yield from Numbers().rows[torch.randperm(64)]
        def build_loader():
            return DataLoader(Lines(), batch_size=4)
        """,
    ),
    "a random stream with the same seed": (
        "iterable-not-split-by-rank",
        Severity.ERROR,
        """
        def build_loader():
            generator = torch.Generator().manual_seed(0)
            return (torch.randn(4, 8, generator=generator) for _ in itertools.count())
        """,
    ),
    "the same list of batches": (
        "iterable-not-split-by-rank",
        Severity.ERROR,
        """
        def build_loader():
            return list(Numbers().rows.split(4))
        """,
    ),
    "a stream that each worker shuffles": (
        "iterable-not-split-by-worker",
        Severity.ERROR,
        """
        class Lines(IterableDataset):
            def __iter__(self):
                rows = Numbers().rows[dist.get_rank()::2]
                yield from rows[torch.randperm(len(rows))]
        def build_loader():
            return DataLoader(Lines(), batch_size=4, num_workers=3)
        """,
    ),
    "a stream without end that the workers do not split": (
        "iterable-not-split-by-worker",
        Severity.ERROR,
        """
        class Lines(IterableDataset):
            def __iter__(self):
                generator = torch.Generator().manual_seed(dist.get_rank())
                while True:
                    yield torch.randn(4, generator=generator)
        def build_loader():
            return DataLoader(Lines(), batch_size=4, num_workers=2)
        """,
    ),
    "workers with a copy of a numpy generator": (
        "same-augmentation-in-workers",
        Severity.WARNING,
        """
        class Flipped(Numbers):
            def __init__(self):
                super().__init__()
                self.rng = np.random.default_rng(dist.get_rank())
            def __getitem__(self, index):
                return self.rows[index] * (1 if self.rng.random() < 0.5 else -1)
        def build_loader():
            return DataLoader(Flipped(), batch_size=8, sampler=DistributedSampler(Flipped()), num_workers=2)
        """,
    ),
    "a factory that seeds all ranks alike": (
        "same-augmentation-on-ranks",
        Severity.NOTE,
        """
        class Noisy(Numbers):
            def __getitem__(self, index):
                return self.rows[index] + torch.rand(8)
        def build_loader():
            torch.manual_seed(0)
            return DataLoader(Noisy(), batch_size=8, sampler=DistributedSampler(Noisy()))
        """,
    ),
    "padding in an evaluation": (
        "evaluation-samples-repeated",
        Severity.NOTE,
        """
        def build_loader():
            return DataLoader(Numbers(63), batch_size=8, sampler=DistributedSampler(Numbers(63), shuffle=False))
        """,
    ),
    "different batch sizes": (
        "batch-sizes-differ",
        Severity.WARNING,
        """
        def build_loader(rank):
            data = Subset(Numbers(), range(rank * 16, 16 + rank * 48))
            return DataLoader(data, batch_size=4 + 8 * rank)
        """,
    ),
    "a rank without a file": (
        "empty-loader",
        Severity.ERROR,
        """
        class Files(IterableDataset):
            def __iter__(self):
                for file in ["a.bin"][dist.get_rank()::2]:
                    yield from Numbers().rows
        def build_loader():
            return DataLoader(Files(), batch_size=8)
        """,
    ),
    "a sampler of one's own that permutes by the rank": (
        "shards-overlap",
        Severity.WARNING,
        OWN_SHARE.format(order="random.Random(hash((self.epoch, self.rank))).sample(range(self.n), self.n)"),
    ),
    "one that shuffles blocks with numpy, which the factory has seeded by the rank": (
        "shards-overlap",
        Severity.WARNING,
        OWN_SHARE.format(order="np.random.permutation(self.n).tolist()").replace(
            "return DataLoader", "np.random.seed(42 + rank); return DataLoader"
        ),
    ),
    "a seed for each rank": (
        "sampler-seeds-differ",
        Severity.ERROR,
        """
        def build_loader(rank):
            return DataLoader(Numbers(), batch_size=8, sampler=DistributedSampler(Numbers(), seed=rank))
        """,
    ),
}


@pytest.mark.parametrize(("slug", "severity", "text"), ILL.values(), ids=ILL)
def test_an_ill_loader_gets_one_diagnosis(jobs: Jobs, tmp_path: Path, slug: str, severity: Severity, text: str) -> None:
    """The ailment is found, and no other check takes it for its own."""
    exam = examine(jobs, tmp_path, dedent(text) + SET_EPOCH)
    findings = said(exam)

    assert list(findings) == [slug]
    usual = next(check.severity for check in CHECKS if check.slug == slug)
    assert [finding.severity or usual for finding in findings[slug]] == [severity]
    for finding in findings[slug]:
        assert (finding.ambiguity is not None) == (severity is Severity.WARNING and usual is Severity.ERROR) or (
            severity is Severity.NOTE or finding.fix.diff.startswith("-")
        )
        assert "\n" not in finding.message
