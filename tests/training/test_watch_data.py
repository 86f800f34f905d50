"""Faults of data in other forms than their broken cases: each is found once, by one check, with the guilty line."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent, indent
from typing import TYPE_CHECKING

import pytest
from helpers import CHECKS, FIXTURES, TESTS, assert_only

from ddpdoctor.selftest.trainings import watched

if TYPE_CHECKING:
    from ddpdoctor.facets import Check
    from ddpdoctor.jobs.pool import Jobs

HEAD = (TESTS / "heads" / "data_head.txt").read_text(encoding="utf-8")
GAN = indent((TESTS / "heads" / "gan.txt").read_text(encoding="utf-8"), " " * 8)
END = "\ndist.destroy_process_group()\n"

SHARED_OUT = """
        from ddpdoctor.fixtures._stand_ins import shards
        from torch.utils.data import BatchSampler
        data, accelerate = Numbers(), shards()
        batches = BatchSampler(accelerate.SeedableRandomSampler(data, {seed}), 8, drop_last=False)
        loader = DataLoader(data, batch_sampler=accelerate.BatchSamplerShard(batches, 2, rank))
        model, optimizer = wrapped()
        for epoch in range(2):
            for batch in loader:  # guilty
                step(model, optimizer, batch)
"""

FAULTS = {
    "a GAN that makes its samples before it learns, told its epoch too late": (
        "set-epoch-constant",
        "the first two epochs have the same order: set_epoch(0) is called when the epoch has begun",
        GAN
        + """
        data = Numbers()
        loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
        for epoch in range(3):
            for real, _ in loader:
                play(real)
            loader.sampler.set_epoch(epoch)  # guilty
        """,
    ),
    "a GAN that makes its samples before it learns, without a sampler": (
        "no-distributed-sampler",
        "goes through all 96 samples",
        GAN
        + """
        torch.manual_seed(0)
        loader = DataLoader(Numbers(), batch_size=8, shuffle=True)  # guilty
        for epoch in range(3):
            for real, _ in loader:
                play(real)
        """,
    ),
    "Accelerate's sampler has the seed of each rank": (
        "sampler-seeds-differ",
        "0, 1) what Accelerate shares out",
        SHARED_OUT.format(seed="rank"),
    ),
    "set_epoch on another sampler": (
        "set-epoch-not-called",
        "another",
        """
        data = Numbers()
        sampler = DistributedSampler(data)
        loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
        model, optimizer = wrapped()
        for epoch in range(3):
            sampler.set_epoch(epoch)  # guilty
            for batch in loader:
                step(model, optimizer, batch)
        """,
    ),
    "a loader made anew, its sampler kept and not told": (
        "set-epoch-not-called",
        "never",
        """
        data = Numbers()
        sampler = DistributedSampler(data)
        model, optimizer = wrapped()
        for epoch in range(3):  # guilty
            for batch in DataLoader(data, batch_size=8, sampler=sampler):
                step(model, optimizer, batch)
        """,
    ),
    "loader and sampler made anew, and not told": (
        "set-epoch-not-called",
        "never",
        """
        model, optimizer = wrapped()
        for epoch in range(3):  # guilty
            data = Numbers()
            for batch in DataLoader(data, batch_size=8, sampler=DistributedSampler(data)):
                step(model, optimizer, batch)
        """,
    ),
    "epochs that are broken off, and not told": (
        "set-epoch-not-called",
        "never",
        """
        data = Numbers()
        loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
        model, optimizer = wrapped()
        for epoch in range(4):  # guilty
            for number, batch in enumerate(loader):
                if number == 5:
                    break
                step(model, optimizer, batch)
        """,
    ),
    "set_epoch once, before the loop": (
        "set-epoch-constant",
        "once",
        """
        data = Numbers()
        loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
        loader.sampler.set_epoch(3)  # guilty
        model, optimizer = wrapped()
        for epoch in range(3):
            for batch in loader:
                step(model, optimizer, batch)
        """,
    ),
    "classes of a data set in an order of the process's own": (
        "numberings-differ",
        "classes",
        """
        class Animals(Numbers):
            def __init__(self):
                super().__init__()
                self.classes = random.Random(rank).sample(["cat", "dog", "cow", "hen", "goat"], 5)
        data = Animals()
        loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
        model, optimizer = wrapped()
        for batch in loader:
            step(model, optimizer, batch)  # guilty
        """,
    ),
    "rows that each rank shuffles before it holds some back": (
        "dataset-splits-differ",
        "rows",
        """
        class Rows(Dataset):
            def __init__(self, rows):
                self.rows = rows
            def __len__(self):
                return len(self.rows)
            def __getitem__(self, index):
                return torch.full((8,), self.rows[index][0]), torch.tensor([self.rows[index][1]])
        rows = [(number / 100, number / 50) for number in range(100)]
        random.Random(rank).shuffle(rows)
        data = Rows(rows[:80])
        loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))  # guilty
        model, optimizer = wrapped()
        for batch in loader:
            step(model, optimizer, batch)
        """,
    ),
    "a tensor that each rank permutes": (
        "dataset-splits-differ",
        "another order",
        """
        inputs = torch.randn(96, 8, generator=torch.Generator().manual_seed(0))
        inputs = inputs[torch.randperm(96, generator=torch.Generator().manual_seed(rank))]
        data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
        loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))  # guilty
        model, optimizer = wrapped()
        for batch in loader:
            step(model, optimizer, batch)
        """,
    ),
    "a stream that workers split, and that each rank shuffles": (
        "iterable-not-split-by-rank",
        "in another order",
        """
        class Shards(IterableDataset):
            def __iter__(self):
                worker = get_worker_info()
                numbers = list(range(96))[worker.id :: worker.num_workers]  # guilty
                random.Random(10 * rank + worker.id).shuffle(numbers)
                for number in numbers:
                    yield torch.full((8,), number / 96), torch.ones(1)
        model, optimizer = wrapped()
        loader = DataLoader(Shards(), batch_size=8, num_workers=2)
        for epoch in range(2):
            for batch in loader:
                step(model, optimizer, batch)
        """,
    ),
    "batches of one's own, seeded in a method with an epoch that nobody tells": (
        "own-sampler-repeats-order",
        "every epoch has the same order: Buckets draws it from the same seed",
        """
        class Buckets(Sampler):
            def __init__(self, length):
                self.length, self.epoch = length, 0
            def set_epoch(self, epoch):
                self.epoch = epoch
            def batches(self):
                generator = torch.Generator().manual_seed(7 + self.epoch)
                order = torch.randperm(self.length, generator=generator).tolist()
                return [order[at : at + 8] for at in range(0, self.length, 8)]
            def __iter__(self):
                return iter(self.batches()[rank::world])
            def __len__(self):
                return self.length // 8 // world
        loader = DataLoader(Numbers(), batch_sampler=Buckets(96))
        model, optimizer = wrapped()
        for epoch in range(3):  # guilty
            for batch in loader:
                step(model, optimizer, batch)
        """,
    ),
    "a sampler of one's own, seeded by the clock": (
        "shards-overlap",
        "shuffles by itself",
        """
        import time
        class Shuffler:
            def __init__(self, length):
                self.length, self.seed = length, time.time_ns() % 2**31 + rank
            def __iter__(self):
                self.seed += 1
                order = np.random.RandomState(self.seed).permutation(self.length).tolist()
                share = self.length // dist.get_world_size()
                return iter(order[dist.get_rank() * share : (dist.get_rank() + 1) * share])  # guilty
            def __len__(self):
                return self.length // dist.get_world_size()
        loader = DataLoader(Numbers(), batch_size=8, sampler=Shuffler(96))
        model, optimizer = wrapped()
        for epoch in range(3):
            for batch in loader:
                step(model, optimizer, batch)
        """,
    ),
    "no sampler, and each rank shuffles": (
        "no-distributed-sampler",
        "all 96 samples",
        """
        torch.manual_seed(rank)
        loader = DataLoader(Numbers(), batch_size=8, shuffle=True)  # guilty
        model, optimizer = wrapped()
        for epoch in range(3):
            for batch in loader:
                step(model, optimizer, batch)
        """,
    ),
    "no sampler, images of a folder, augmented": (
        "no-distributed-sampler",
        "all 96 samples",
        """
        class Folder(Dataset):
            def __init__(self):
                self.samples = [(f"/data/{number % 7}/{number}.png", number % 7) for number in range(96)]
                self.transform = lambda row: row + torch.randn(8)
            def __len__(self):
                return len(self.samples)
            def __getitem__(self, index):
                path, label = self.samples[index]
                return self.transform(torch.full((8,), float(label))), torch.ones(1)
        torch.manual_seed(rank)
        loader = DataLoader(Folder(), batch_size=8, shuffle=True, num_workers=2)  # guilty
        model, optimizer = wrapped()
        for epoch in range(3):
            for number, batch in enumerate(loader):
                step(model, optimizer, batch)
        """,
    ),
    "no sampler, the same seed, samples that nobody can compare": (
        "no-distributed-sampler",
        "same batches",
        """
        class Opaque(Numbers):
            def __init__(self):
                super().__init__()
                self.file = open(os.devnull)
        torch.manual_seed(0)
        loader = DataLoader(Opaque(), batch_size=8, shuffle=True)  # guilty
        model, optimizer = wrapped()
        for batch in loader:
            step(model, optimizer, batch)
        """,
    ),
    "a sampler for one rank on each": (
        "sampler-wrong-rank",
        "rank 0 has 0 of 1, rank 1 has 0 of 1",
        """
        data = Numbers()
        loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, num_replicas=1, rank=0))  # guilty
        model, optimizer = wrapped()
        for epoch in range(3):
            loader.sampler.set_epoch(epoch)
            for batch in loader:
                step(model, optimizer, batch)
        """,
    ),
    "files that each rank shuffles": (
        "dataset-splits-differ",
        "files in another order",
        """
        class Files(Dataset):
            def __init__(self):
                self.files = [f"/data/{number}.png" for number in range(96)]
                random.shuffle(self.files)
            def __len__(self):
                return len(self.files)
            def __getitem__(self, index):
                return torch.randn(8), torch.ones(1)
        random.seed(rank)
        data = Files()
        loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))  # guilty
        model, optimizer = wrapped()
        for epoch in range(3):
            loader.sampler.set_epoch(epoch)
            for batch in loader:
                step(model, optimizer, batch)
        """,
    ),
    "a share of one batch more, in a single epoch": (
        "uneven-inputs",
        "12 on rank 1 and 13 on rank 0",
        """
        data = Numbers(97)
        loader = DataLoader(Subset(data, range(rank, 97, world)), batch_size=4, shuffle=True)
        def one_epoch(model, optimizer):
            for number, batch in enumerate(loader):  # guilty
                step(model, optimizer, batch)
        one_epoch(*wrapped())
        """,
    ),
    "a share that is smaller than a batch, on one rank": (
        "empty-loader",
        "gives no batch",
        """
        data = Subset(Numbers(), range(8 if rank else 48))
        loader = DataLoader(data, batch_size=16, shuffle=True, drop_last=True)  # guilty
        model, optimizer = wrapped()
        for epoch in range(3):
            for batch in loader:
                step(model, optimizer, batch)
        """,
    ),
    "a Subset that each rank has cut from an order of its own": (
        "shards-overlap",
        "entries of rank 0's Subset",
        """
        data = Numbers()
        order = list(range(96))
        random.Random(rank).shuffle(order)
        loader = DataLoader(Subset(data, order[rank::world]), batch_size=8)  # guilty
        model, optimizer = wrapped()
        for epoch in range(3):
            for batch in loader:
                step(model, optimizer, batch)
        """,
    ),
    "files that each rank has listed in an order of its own": (
        "shards-overlap",
        "entries of rank 0's list names",
        """
        class Files(Numbers):
            def __init__(self, names):
                super().__init__(len(names))
                self.names = names
        names = [f"{at}.png" for at in range(200)]
        random.Random(rank).shuffle(names)
        loader = DataLoader(Files(names[rank::world]), batch_size=8, shuffle=True)  # guilty
        model, optimizer = wrapped()
        for epoch in range(2):
            for batch in loader:
                step(model, optimizer, batch)
        """,
    ),
    "a stream that nobody splits, no workers": (
        "iterable-not-split-by-rank",
        "Lines yields the same batches",
        """
        class Lines(IterableDataset):
            def __iter__(self):
                for row in Numbers().inputs:  # guilty
                    yield row, row.sum(0, keepdim=True)
        model, optimizer = wrapped()
        for batch in DataLoader(Lines(), batch_size=8):
            step(model, optimizer, batch)
        """,
    ),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_the_fault_is_found(fault: tuple[str, str, str], tmp_path: Path, jobs: Jobs, checks: dict[str, Check]) -> None:
    """One finding says what is wrong and gives the line; no other check speaks, but of a hang that comes of it."""
    slug, words, script = fault
    path = tmp_path / "train.py"
    path.write_text(HEAD + dedent(script) + END)

    until = checks[slug] if slug == "empty-loader" else None  # that one hangs; the others run to their end
    found = [each for each in watched(path, CHECKS, jobs, until) if each.check.area != "collectives"]
    if slug == "empty-loader":  # where its rank has come to its end before all were stopped, that is told as well
        found = [each for each in found if each.check.slug != "uneven-inputs"]

    assert_only(found, slug, words, path)


def test_what_was_counted_on_a_share_is_given_to_all(tmp_path: Path, jobs: Jobs) -> None:
    """Sorting mends no table of the rank's own words: rank 0 gives its own, by a line that leaves nothing to find."""
    path = tmp_path / "train.py"
    text = (FIXTURES / "numberings_differ" / "broken.py").read_text(encoding="utf-8")
    path.write_text(text, encoding="utf-8")
    (found,) = watched(path, CHECKS, jobs)

    lines = found.finding.fix.diff.replace("+", "    ")
    assert "broadcast_object_list(made, src=0)" in lines

    made = "    vocabulary = Vocabulary(share)\n"
    path.write_text(text.replace(made, f"{made}{lines}\n"), encoding="utf-8")

    assert watched(path, CHECKS, jobs) == []


def test_the_line_that_splits_is_shown(tmp_path: Path, jobs: Jobs) -> None:
    """Where each rank has a Subset of its own, which another file than that of the loop can have made."""
    text = (FIXTURES / "dataset_splits_differ" / "broken.py").read_text(encoding="utf-8")
    body, end = text.split("def train():")
    loop, main = end.split("def main():")
    (tmp_path / "loop.py").write_text(body.split("class Numbers")[0] + "def train(loader):" + loop.replace(
        "    loader = build_loader(dist.get_rank(), dist.get_world_size())\n", ""
    ), encoding="utf-8")  # fmt: skip
    path = tmp_path / "train.py"
    main = main.replace("train()", "loop.train(build_loader(dist.get_rank(), dist.get_world_size()))")
    path.write_text(
        f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nimport loop\n{body}def main():{main}", encoding="utf-8"
    )
    line = next(at for at, text in enumerate(path.read_text().splitlines(), 1) if "= random_split(" in text)

    (found,) = [each for each in watched(path, CHECKS, jobs) if each.check.slug == "dataset-splits-differ"]

    assert found.finding.place.file == str(path)
    assert f"{path}:{line}" in {each.source for each in found.finding.evidence}
