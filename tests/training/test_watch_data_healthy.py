"""Trainings that read their data in healthy ways: the watch, with all its checks, says nothing of them."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent, indent
from typing import TYPE_CHECKING

import pytest
from helpers import CHECKS, TESTS, assert_nothing

from ddpdoctor.selftest.trainings import watched
from ddpdoctor.watch.rank.data.described import length

if TYPE_CHECKING:
    from ddpdoctor.jobs.pool import Jobs

HEAD = (TESTS / "heads" / "data_head.txt").read_text(encoding="utf-8")
GAN = indent((TESTS / "heads" / "gan.txt").read_text(encoding="utf-8"), " " * 8)
END = "\ndist.destroy_process_group()\n"

HEALTHY = {
    "a sampler": """
        fit(DataLoader(Numbers(), batch_size=8, sampler=DistributedSampler(Numbers())))
    """,
    "Accelerate's sampler, with one seed": """
        from ddpdoctor.fixtures._stand_ins import shards
        from torch.utils.data import BatchSampler
        data, accelerate = Numbers(), shards()
        batches = BatchSampler(accelerate.SeedableRandomSampler(data, 42), 8, drop_last=False)
        fit(DataLoader(data, batch_sampler=accelerate.BatchSamplerShard(batches, 2, rank)))
    """,
    "a sampler that pads, drop_last": """
        data = Numbers(83)
        fit(DataLoader(data, batch_size=5, drop_last=True, sampler=DistributedSampler(data)))
    """,
    "a sampler that does not shuffle": """
        data = Numbers()
        fit(DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=False)))
    """,
    "shares of a list whose entries repeat": """
        class Likes(Dataset):
            def __init__(self, rows):
                self.rows = rows
            def __len__(self):
                return len(self.rows)
            def __getitem__(self, index):
                name, liked = self.rows[index]
                return torch.full((8,), float(len(name))), torch.tensor([liked])
        rows = [("user" + "x" * (index % 11), float((index * 7 + index // 3) % 4)) for index in range(96)]
        torch.manual_seed(rank)
        fit(DataLoader(Likes(rows[rank::world]), batch_size=8, shuffle=True))
    """,
    "a sampler of one's own, with one order for all": """
        class Shuffler:
            def __init__(self):
                self.epoch = 0
            def __iter__(self):
                order = np.random.RandomState(self.epoch).permutation(96).tolist()
                self.epoch += 1
                return iter(order[dist.get_rank() :: dist.get_world_size()])
            def __len__(self):
                return 96 // dist.get_world_size()
        fit(DataLoader(Numbers(), batch_size=8, sampler=Shuffler()))
    """,
    "a sampler of one's own that draws for its rank, with repetition": """
        class Bootstrap:
            def __iter__(self):
                drawn = np.random.RandomState(dist.get_rank()).randint(0, 96, 96 // dist.get_world_size())
                return iter(drawn.tolist())
            def __len__(self):
                return 96 // dist.get_world_size()
        fit(DataLoader(Numbers(), batch_size=8, sampler=Bootstrap()), epochs=1)
    """,
    "files that ranks write in turn, or each its own, and loggers": """
        import logging, pathlib, tempfile
        folder = pathlib.Path(tempfile.gettempdir()) / f"files-{os.environ['MASTER_PORT']}"
        folder.mkdir(exist_ok=True)
        logging.basicConfig(filename=folder / "log.txt", level=logging.INFO if rank == 0 else logging.ERROR)
        for each in range(world):
            if rank == each:
                (folder / "parts.txt").write_text("rank\\n")
            dist.barrier()
        np.save(folder / f"predictions{rank}.npy", np.zeros(4))
        beside = folder / f"stats.{os.getpid()}"
        beside.write_text("0")
        beside.replace(folder / "stats.txt")
        if rank == 0:
            (folder / "vocabulary.txt").write_text("a b c")
        dist.barrier()
        words = (folder / "vocabulary.txt").read_text().split()
        fit(DataLoader(Numbers(), batch_size=8, sampler=DistributedSampler(Numbers())))
        dist.barrier()
        if rank == 0:
            import shutil
            shutil.rmtree(folder)
    """,
    "tables from words to numbers that are a rank's own": """
        class Bookkeeper:
            def __init__(self):
                self.place = {f"sample{number}": at for at, number in enumerate(range(rank, 96, world))}
                self.counts = {"cat": 3 + rank, "dog": 4, "cow": 7 - rank}
                self.neighbours = {"left": (rank - 1) % world, "right": (rank + 1) % world}
                self.files = [f"shard{number}" for number in random.Random(rank).sample(range(9), 9)]
        bookkeeper = Bookkeeper()
        classes = {name: number for number, name in enumerate(["cat", "dog", "cow"])}
        fit(DataLoader(Numbers(), batch_size=8, sampler=DistributedSampler(Numbers())))
    """,
    "a tensor of each rank's own, shared out once more": """
        inputs = torch.randn(96, 8, generator=torch.Generator().manual_seed(rank))
        data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
        fit(DataLoader(data, batch_size=8, sampler=DistributedSampler(data)))
    """,
    "workers that live on, and an epoch that they share": """
        class Shared(Numbers):
            def __init__(self):
                super().__init__()
                self.epoch, self.seen = torch.zeros(()).share_memory_(), 0
            def __getitem__(self, index):
                return self.inputs[index] * (1 + self.epoch.item()), self.inputs[index].sum(0, keepdim=True)
        data = Shared()
        sampler = DistributedSampler(data)
        loader = DataLoader(data, batch_size=8, sampler=sampler, num_workers=2, persistent_workers=True)
        model, optimizer = wrapped()
        for epoch in range(3):
            sampler.set_epoch(epoch)
            data.epoch.fill_(epoch)
            data.seen += 48
            for batch in loader:
                step(model, optimizer, batch)
    """,
    "evaluations of all kinds": """
        data = Numbers(81)
        whole = DataLoader(data, batch_size=8)
        share = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=False))
        cut = DataLoader(Subset(data, range(30) if rank else range(30, 81)), batch_size=8)
        model, optimizer = wrapped()
        def losses(loader):
            with torch.no_grad():
                return torch.cat([(model.module(inputs) - targets).abs().flatten() for inputs, targets in loader])
        for epoch in range(3):
            step(model, optimizer, [torch.randn(4, 8), torch.randn(4, 1)])
            mean = losses(whole).mean()
            dist.all_reduce(mean)
            mean /= world  # each rank has the whole
            step(model, optimizer, [torch.randn(4, 8), torch.randn(4, 1)])
            mine = losses(share)
            every = [torch.zeros_like(mine) for _ in range(world)]
            dist.all_gather(every, mine)
            mean = torch.stack(every, 1).flatten()[: len(data)].mean()
            step(model, optimizer, [torch.randn(4, 8), torch.randn(4, 1)])
            mine = losses(cut)
            total = torch.tensor([mine.sum(), len(mine)])
            dist.all_reduce(total)
            mean = total[0] / total[1]
            step(model, optimizer, [torch.randn(4, 8), torch.randn(4, 1)])
            total = losses(cut).sum()
            dist.all_reduce(total)
            mean = total / len(data)
    """,
    "one epoch": """
        data = Numbers()
        fit(DataLoader(data, batch_size=8, sampler=DistributedSampler(data)), epochs=1)
    """,
    "a sampler within a batch sampler": """
        data = Numbers()
        sampler = DistributedSampler(data)
        loader = DataLoader(data, batch_sampler=BatchSampler(sampler, 8, False))
        model, optimizer = wrapped()
        for epoch in range(3):
            sampler.set_epoch(epoch)
            for batch in loader:
                step(model, optimizer, batch)
    """,
    "workers that persist, with a prefetcher": """
        data = Numbers()
        sampler = DistributedSampler(data)
        loader = DataLoader(data, batch_size=4, sampler=sampler, num_workers=2, persistent_workers=True)
        def ahead(loader):
            batches = iter(loader)
            this = next(batches)
            for after in batches:
                yield this
                this = after
            yield this
        model, optimizer = wrapped()
        for epoch in range(3):
            loader.sampler.set_epoch(epoch)
            for batch in ahead(loader):
                step(model, optimizer, batch)
    """,
    "a loader made anew for each epoch, the epoch told": """
        data = Numbers()
        model, optimizer = wrapped()
        for epoch in range(3):
            sampler = DistributedSampler(data)
            sampler.set_epoch(epoch)
            for batch in DataLoader(data, batch_size=8, sampler=sampler):
                step(model, optimizer, batch)
    """,
    "chunks of data, each with a loader of its own, seen once": """
        model, optimizer = wrapped()
        for chunk in range(3):
            data = Numbers()
            data.inputs = torch.randn(96, 8, generator=torch.Generator().manual_seed(chunk))
            for batch in DataLoader(data, batch_size=8, sampler=DistributedSampler(data)):
                step(model, optimizer, batch)
    """,
    "training resumed in the middle": """
        data = Numbers()
        loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
        model, optimizer = wrapped()
        start = 5
        loader.sampler.set_epoch(start)
        for epoch in range(start, start + 3):
            loader.sampler.set_epoch(epoch)
            for batch in loader:
                step(model, optimizer, batch)
    """,
    "a search for the learning rate before the training": """
        data = Numbers()
        loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
        model, optimizer = wrapped()
        for number, batch in enumerate(loader):
            step(model, optimizer, batch)
            if number == 5:
                break
        for epoch in range(3):
            loader.sampler.set_epoch(epoch)
            for batch in loader:
                step(model, optimizer, batch)
    """,
    "evaluation on every rank, without a sampler": """
        data, held = Numbers(), Numbers(40)
        loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
        evaluation = DataLoader(held, batch_size=8)
        model, optimizer = wrapped()
        for epoch in range(3):
            loader.sampler.set_epoch(epoch)
            model.train()
            for batch in loader:
                step(model, optimizer, batch)
            model.eval()
            with torch.no_grad():
                for inputs, targets in evaluation:
                    model(inputs)
    """,
    "evaluation within the loop, by an iterator, without eval()": """
        data, held = Numbers(), Numbers(40)
        loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
        evaluation = itertools.cycle(DataLoader(held, batch_size=8))
        model, optimizer = wrapped()
        for epoch in range(3):
            loader.sampler.set_epoch(epoch)
            for batch in loader:
                step(model, optimizer, batch)
                with torch.no_grad():
                    model(next(evaluation)[0])
    """,
    "evaluation on rank 0 alone": """
        data, held = Numbers(), Numbers(40)
        loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
        model, optimizer = wrapped()
        for epoch in range(3):
            if rank == 0:
                model.eval()
                with torch.no_grad():
                    for inputs, targets in DataLoader(held, batch_size=4, shuffle=True):
                        model.module(inputs)
            model.train()
            loader.sampler.set_epoch(epoch)
            for batch in loader:
                step(model, optimizer, batch)
    """,
    "evaluation shared out, which leaves a remainder": """
        data, held = Numbers(), Numbers(41)
        loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
        evaluation = DataLoader(held, batch_size=8, sampler=DistributedSampler(held, shuffle=False))
        model, optimizer = wrapped()
        for epoch in range(3):
            loader.sampler.set_epoch(epoch)
            for batch in loader:
                step(model, optimizer, batch)
            with torch.no_grad():
                for inputs, targets in evaluation:
                    model(inputs)
    """,
    "statistics of the data, before": """
        data = Numbers()
        loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
        model, optimizer = wrapped()
        sums = sum(batch[0].sum() for batch in loader)
        sums = sum(batch[0].sum() for batch in DataLoader(data, batch_size=8))
        for epoch in range(3):
            loader.sampler.set_epoch(epoch)
            for batch in loader:
                step(model, optimizer, batch)
    """,
    "a Subset for each rank, of one order": """
        order = list(range(96))
        random.Random(0).shuffle(order)
        loader = DataLoader(Subset(Numbers(), order[rank::world]), batch_size=8)
        model, optimizer = wrapped()
        for epoch in range(3):
            for batch in loader:
                step(model, optimizer, batch)
    """,
    "a Subset for each rank, of which a few samples fill up the last": """
        order = [*range(95), 0]
        loader = DataLoader(Subset(Numbers(), order[rank * 48 : rank * 48 + 48]), batch_size=8)
        model, optimizer = wrapped()
        for epoch in range(3):
            for batch in loader:
                step(model, optimizer, batch)
    """,
    "a Subset for each rank": """
        data = Numbers()
        share = Subset(data, range(rank, len(data), world))
        torch.manual_seed(0)
        fit(DataLoader(share, batch_size=8, shuffle=True))
    """,
    "a data set for each rank": """
        class Mine(Numbers):
            def __init__(self):
                super().__init__()
                self.inputs = self.inputs[rank::world]
        torch.manual_seed(0)
        fit(DataLoader(Mine(), batch_size=8, shuffle=True))
    """,
    "a data set for each rank, and a sampler that only shuffles": """
        class Mine(Numbers):
            def __init__(self):
                super().__init__()
                self.inputs = self.inputs[rank::world]
        data = Mine()
        fit(DataLoader(data, batch_size=8, sampler=DistributedSampler(data, num_replicas=1, rank=0)))
    """,
    "samples of the rank's own, read when they are asked for": """
        class Lazy(Dataset):
            def __len__(self):
                return 48
            def __getitem__(self, index):
                row = torch.randn(8, generator=torch.Generator().manual_seed(1000 * rank + index))
                return row, row.sum(0, keepdim=True)
        torch.manual_seed(0)
        fit(DataLoader(Lazy(), batch_size=4, shuffle=True))
    """,
    "random crops, whatever the index": """
        class Crops(Dataset):
            def __init__(self):
                self.tokens = torch.randn(10_000, generator=torch.Generator().manual_seed(0))
            def __len__(self):
                return 96
            def __getitem__(self, index):
                start = random.randrange(9_000)
                row = self.tokens[start : start + 8]
                return row, row.sum(0, keepdim=True)
        random.seed(rank)
        fit(DataLoader(Crops(), batch_size=8, shuffle=True))
    """,
    "samples made at random": """
        class Made(Dataset):
            def __len__(self):
                return 96
            def __getitem__(self, index):
                row = torch.randn(8)
                return row, row.sum(0, keepdim=True)
        torch.manual_seed(rank)
        fit(DataLoader(Made(), batch_size=8, shuffle=True))
    """,
    "draws with replacement": """
        torch.manual_seed(rank)
        fit(DataLoader(Numbers(), batch_size=8, sampler=WeightedRandomSampler([1.0] * 96, 48)))
    """,
    "a random part for each rank": """
        torch.manual_seed(rank)
        fit(DataLoader(Numbers(), batch_size=8, sampler=RandomSampler(Numbers(), num_samples=48)))
    """,
    "a sampler without end": """
        class Endless(Sampler):
            def __init__(self, size):
                self.size, self.seed = size, 3
            def __iter__(self):
                return itertools.islice(self.stream(), rank, None, world)
            def stream(self):
                generator = torch.Generator().manual_seed(self.seed)
                while True:
                    yield from torch.randperm(self.size, generator=generator).tolist()
        model, optimizer = wrapped()
        for number, batch in enumerate(DataLoader(Numbers(), batch_size=8, sampler=Endless(96))):
            if number == 40:
                break
            step(model, optimizer, batch)
    """,
    "repeated augmentation": """
        class RASampler(Sampler):
            def __init__(self, size, num_replicas, rank, shuffle=True, seed=0):
                self.size, self.num_replicas, self.rank = size, num_replicas, rank
                self.shuffle, self.seed, self.epoch = shuffle, seed, 0
            def set_epoch(self, epoch):
                self.epoch = epoch
            def __len__(self):
                return self.size // self.num_replicas
            def __iter__(self):
                order = torch.randperm(self.size, generator=torch.Generator().manual_seed(self.seed + self.epoch))
                order = order.repeat_interleave(3).tolist()
                return iter(order[self.rank :: self.num_replicas][: len(self)])
        fit(DataLoader(Numbers(), batch_size=8, sampler=RASampler(96, world, rank)))
    """,
    "a sampler by length, which takes an epoch": """
        class ByLength(Sampler):
            def __init__(self, num_replicas, rank):
                self.num_replicas, self.rank, self.epoch = num_replicas, rank, 0
            def set_epoch(self, epoch):
                self.epoch = epoch
            def __len__(self):
                return 48
            def __iter__(self):
                return iter([(7 * index + 3) % 96 for index in range(96)][self.rank :: self.num_replicas])
        fit(DataLoader(Numbers(), batch_size=8, sampler=ByLength(world, rank)))
    """,
    "buckets of batches, padded": """
        class Buckets(Sampler):
            def __init__(self, num_replicas, rank):
                self.num_replicas, self.rank, self.epoch, self.batch_size = num_replicas, rank, 0, 4
            def set_epoch(self, epoch):
                self.epoch = epoch
            def __len__(self):
                return 13
            def __iter__(self):
                generator = torch.Generator().manual_seed(self.epoch)
                order = torch.randperm(98, generator=generator).tolist()
                order += order[: 13 * 4 * self.num_replicas - len(order)]
                mine = order[self.rank :: self.num_replicas]
                return iter([mine[at : at + 4] for at in range(0, 52, 4)])
        loader = DataLoader(Numbers(98), batch_sampler=Buckets(world, rank))
        model, optimizer = wrapped()
        for epoch in range(3):
            loader.batch_sampler.set_epoch(epoch)
            for batch in loader:
                step(model, optimizer, batch)
    """,
    "the whole batch on each rank, which takes its part": """
        torch.manual_seed(0)
        loader = DataLoader(Numbers(), batch_size=16, shuffle=True)
        model, optimizer = wrapped()
        for epoch in range(3):
            for inputs, targets in loader:
                step(model, optimizer, (inputs[rank::world], targets[rank::world]))
    """,
    "each rank takes its turn of the batches": """
        torch.manual_seed(0)
        loader = DataLoader(Numbers(), batch_size=4, shuffle=True)
        model, optimizer = wrapped()
        for epoch in range(3):
            for number, batch in enumerate(loader):
                if number % world == rank:
                    step(model, optimizer, batch)
    """,
    "a stream that is split": """
        class Lines(IterableDataset):
            def __iter__(self):
                info = get_worker_info()
                part, parts = rank * info.num_workers + info.id, world * info.num_workers
                for row in Numbers(192).inputs[part::parts]:
                    yield row, row.sum(0, keepdim=True)
        fit(DataLoader(Lines(), batch_size=4, num_workers=2))
    """,
    "a stream whose batches are taken in turn": """
        class Lines(IterableDataset):
            def __iter__(self):
                for row in Numbers().inputs:
                    yield row, row.sum(0, keepdim=True)
        model, optimizer = wrapped()
        for epoch in range(3):
            for batch in itertools.islice(DataLoader(Lines(), batch_size=4), rank, None, world):
                step(model, optimizer, batch)
    """,
    "a stream with a seed of the rank": """
        class Random(IterableDataset):
            def __init__(self):
                self.generator = torch.Generator().manual_seed(rank)
            def __iter__(self):
                while True:
                    row = torch.randn(8, generator=self.generator)
                    yield row, row.sum(0, keepdim=True)
        model, optimizer = wrapped()
        batches = iter(DataLoader(Random(), batch_size=8))
        for _ in range(30):
            step(model, optimizer, next(batches))
    """,
    "streams of samples that are drawn, the same in all epochs": """
        class Drawn(IterableDataset):
            def __iter__(self):
                drawn = torch.Generator().manual_seed(rank)
                for _ in range(48):
                    row = torch.randn(8, generator=drawn)
                    yield row, row.sum(0, keepdim=True)
        class Numbered(IterableDataset):
            def __iter__(self):
                for number in range(rank, 96, world):
                    drawn = torch.Generator().manual_seed(10000 + number)
                    row = torch.randn(8, generator=drawn)
                    yield row, row.sum(0, keepdim=True)
        model, optimizer = wrapped()
        for stream in (Drawn(), Numbered()):
            for epoch in range(4):
                for batch in DataLoader(stream, batch_size=8):
                    step(model, optimizer, batch)
    """,
    "a GAN, and an evaluation without gradients in training mode": GAN
    + """
        data = Numbers()
        loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
        held = DataLoader(Numbers(24), batch_size=8)
        for epoch in range(3):
            loader.sampler.set_epoch(epoch)
            for real, _ in loader:
                play(real)
            for real, _ in held:
                with torch.no_grad():
                    critic(real)
    """,
    "a stream of the same on purpose: constants": """
        class Zeros(IterableDataset):
            def __iter__(self):
                for _ in range(96):
                    yield torch.zeros(8), torch.zeros(1)
        fit(DataLoader(Zeros(), batch_size=8))
    """,
    "shares of different length, for so many steps": """
        data = Numbers(97)
        loader = DataLoader(Subset(data, range(rank, 97, world)), batch_size=4, shuffle=True)
        model, optimizer = wrapped()
        steps, batches = 0, iter(loader)
        while steps < 40:
            try:
                batch = next(batches)
            except StopIteration:
                batches = iter(loader)
                continue
            step(model, optimizer, batch)
            steps += 1
    """,
    "shares of different length, cut": """
        data = Numbers(97)
        loader = DataLoader(Subset(data, range(rank, 97, world)), batch_size=4, shuffle=True)
        model, optimizer = wrapped()
        for epoch in range(3):
            for number, batch in enumerate(loader):
                if number >= 12:
                    break
                step(model, optimizer, batch)
            for batch in itertools.islice(loader, 12):
                step(model, optimizer, batch)
            for _, batch in zip(range(12), loader):
                step(model, optimizer, batch)
    """,
    "shares of different length, joined": """
        data = Numbers(97)
        loader = DataLoader(Subset(data, range(rank, 97, world)), batch_size=4, shuffle=True)
        model, optimizer = wrapped()
        def epoch_of():
            for batch in loader:
                step(model, optimizer, batch)
        for epoch in range(3):
            with model.join():
                epoch_of()
    """,
    "a buffer that is empty at first": """
        data = Numbers()
        loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
        model, optimizer = wrapped()
        for epoch in range(3):
            for batch in DataLoader([], batch_size=8):
                step(model, optimizer, batch)
            loader.sampler.set_epoch(epoch)
            for batch in loader:
                step(model, optimizer, batch)
    """,
    "two loaders at a time": """
        one, other = Numbers(), Numbers(128)
        loaders = [DataLoader(data, batch_size=8, sampler=DistributedSampler(data)) for data in (one, other)]
        model, optimizer = wrapped()
        for epoch in range(3):
            for loader in loaders:
                loader.sampler.set_epoch(epoch)
            for first, second in zip(*loaders):
                step(model, optimizer, [torch.cat(parts) for parts in zip(first, second)])
    """,
    "accumulated gradients": """
        data = Numbers()
        loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
        model, optimizer = wrapped()
        for epoch in range(3):
            loader.sampler.set_epoch(epoch)
            for number, (inputs, targets) in enumerate(loader):
                last = number % 3 == 2
                with model.no_sync() if not last else torch.enable_grad():
                    nn.functional.mse_loss(model(inputs), targets).backward()
                if last:
                    optimizer.step()
                    optimizer.zero_grad()
    """,
    "a data set that holds a rank, a generator and a lock": """
        import threading
        class Holding(Numbers):
            def __init__(self):
                super().__init__()
                self.rank, self.generator, self.lock = rank, np.random.default_rng(rank), threading.Lock()
        fit(DataLoader(Holding(), batch_size=8, sampler=DistributedSampler(Holding())))
    """,
    "a data set with noise of its own on each rank": """
        class Noisy(Numbers):
            def __init__(self):
                super().__init__()
                self.noise = torch.randn(96, 8)
        torch.manual_seed(rank)
        fit(DataLoader(Noisy(), batch_size=8, sampler=DistributedSampler(Noisy())))
    """,
    "a generator of the data set's, seeded anew in each worker": """
        class Noisy(Numbers):
            def __init__(self):
                super().__init__()
                self.rng = np.random.default_rng(0)
            def __getitem__(self, index):
                return self.inputs[index] + float(self.rng.normal()), self.inputs[index].sum(0, keepdim=True)
        class ByIndex(Noisy):
            def __getitem__(self, index):
                self.rng = np.random.default_rng(index)
                return super().__getitem__(index)
        class Split(Numbers):
            def __init__(self):
                super().__init__()
                self.rng = np.random.default_rng(0)
                self.inputs = self.inputs[self.rng.permutation(96)]
        def seeds(worker):
            get_worker_info().dataset.rng = np.random.default_rng(torch.initial_seed())
        options = {"batch_size": 8, "num_workers": 2}
        fit(DataLoader(Noisy(), sampler=DistributedSampler(Noisy()), worker_init_fn=seeds, **options), epochs=1)
        fit(DataLoader(ByIndex(), sampler=DistributedSampler(ByIndex()), **options), epochs=1)
        fit(DataLoader(Split(), sampler=DistributedSampler(Split()), **options), epochs=1)
    """,
    "a split with a generator": """
        train, test = random_split(Numbers(), [64, 32], generator=torch.Generator().manual_seed(1))
        fit(DataLoader(train, batch_size=8, sampler=DistributedSampler(train)))
    """,
    "a second stage of the same data, from epoch 0 on": """
        data = Numbers()
        model, optimizer = wrapped()
        def stage(epochs):
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            for epoch in range(epochs):
                loader.sampler.set_epoch(epoch)
                for batch in loader:
                    step(model, optimizer, batch)
        stage(1)
        stage(3)
    """,
    "a sweep: a model of its own for each rate, the same order for all": """
        data = Numbers()
        for rate in (0.1, 0.01, 0.001):
            fit(DataLoader(data, batch_size=8, sampler=DistributedSampler(data)), epochs=1)
    """,
    "a sweep with one loader": """
        data = Numbers()
        loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
        for rate in (0.1, 0.01, 0.001):
            fit(loader, epochs=1)
    """,
    "accelerate": """
        from accelerate import Accelerator
        accelerator = Accelerator(cpu=True)
        model = nn.Linear(8, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        loader = DataLoader(Numbers(), batch_size=8, shuffle=True)
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        for epoch in range(3):
            for inputs, targets in loader:
                optimizer.zero_grad()
                accelerator.backward(nn.functional.mse_loss(model(inputs), targets))
                optimizer.step()
    """,
    "lightning": """
        os.environ.update(TORCHELASTIC_RUN_ID="none", LOCAL_WORLD_SIZE=str(world), GROUP_RANK="0")
        import lightning
        class Line(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(8, 1)
            def training_step(self, batch, number):
                return nn.functional.mse_loss(self.layer(batch[0]), batch[1])
            def validation_step(self, batch, number):
                self.log("loss", nn.functional.mse_loss(self.layer(batch[0]), batch[1]), sync_dist=True)
            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), lr=0.01)
        trainer = lightning.Trainer(
            accelerator="cpu", devices=2, strategy="ddp", max_epochs=3, logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False,
        )
        data = Numbers(97)
        trainer.fit(Line(), DataLoader(data, batch_size=8, shuffle=True), DataLoader(Numbers(33), batch_size=8))
    """,
}


@pytest.mark.parametrize("script", HEALTHY.values(), ids=HEALTHY)
def test_nothing_is_found_in_a_healthy_training(script: str, tmp_path: Path, jobs: Jobs) -> None:
    """No check finds anything, and the script runs to its end."""
    path = tmp_path / "train.py"
    path.write_text(HEAD + dedent(script) + "open(f'{__file__}.{rank}', 'w').close()" + END)

    assert_nothing(watched(path, CHECKS, jobs), path)
    assert {each.stem for each in tmp_path.iterdir()} == {"train", "train.py"}


@pytest.mark.parametrize("error", [RuntimeError, KeyError, OSError])
def test_a_data_set_whose_length_cannot_be_asked_for_has_none(error: type[Exception]) -> None:
    """A stream of the user's own raises what it likes; the watch looks at it all the same."""

    class Stream:
        def __len__(self) -> int:
            raise error

    assert length(Stream()) is None
    assert length([1, 2]) == 2
