"""The examination of a loader: whose error it is, what is read off it, and that it ends in time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from textwrap import dedent

import pytest
from helpers import CHECKS

from ddpdoctor.examine.loader import exam as loader_exam
from ddpdoctor.examine.loader.exam import LoaderExam, examine_loader
from ddpdoctor.examine.target import Target
from ddpdoctor.facets import BadTarget, Instrument, NotRun
from ddpdoctor.findings import Finding, Severity
from ddpdoctor.jobs.pool import Jobs

HEAD = """
import itertools, os, sys, time
import torch
import torch.distributed as dist
from torch.utils.data import *
from torch.utils.data.distributed import DistributedSampler

"""
Examine = Callable[..., LoaderExam]


@pytest.fixture
def examine(jobs: Jobs, tmp_path: Path) -> Examine:
    """Return a function that examines the loader that a script builds."""

    def run(text: str, name: str = "build_loader") -> LoaderExam:
        path = tmp_path / "train.py"
        path.write_text(HEAD + dedent(text))
        return examine_loader(jobs, Target(str(path), name))

    return run


def findings(slug: str, exam: LoaderExam) -> list[Finding]:
    """Return what one check says."""
    check = next(check for check in CHECKS if check.slug == slug)
    return [finding for facet in check.of(Instrument.PROBE) for finding in facet.examine(exam)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def build_loader(): raise KeyError('no data here')", ("KeyError", "no data here", "train.py:8")),
        ("def build_loader(): sys.exit(3)", ("ended the process", "exit status 3")),
        ("def build_loader(): os.abort()", ("signal 6",)),
        ("def build_loader(): return None", ("gave None", "iterated")),
        ("def build_loader(): return 7", ("gave a int",)),
        ("def build_loader(): return DataLoader([1]), DataLoader([2])", ("2 loaders", "DataLoader, DataLoader")),
        ("def build_loader(): return {'train': DataLoader([1]), 'val': DataLoader([2])}", ("2 loaders",)),
        ("def make(): pass", ("no 'build_loader'", "make")),
        ("def build_loader(rank):\n    if rank: raise OSError('gone')\n    return [1]", ("rank 1", "OSError: gone")),
        (
            """
            class Bad:
                def __len__(self): return 4
                def __iter__(self): raise IndexError('my sampler')
            def build_loader(): return DataLoader(range(4), sampler=Bad())
            """,
            ("IndexError: my sampler", "in __iter__"),
        ),
        (
            """
            class Bad(IterableDataset):
                def __iter__(self): raise IndexError('my stream')
            def build_loader(): return DataLoader(Bad(), num_workers=1)
            """,
            ("IndexError", "my stream"),
        ),
    ],
)
def test_a_fault_of_the_users_is_one_clear_line(examine: Examine, text: str, words: tuple[str, ...]) -> None:
    """Whatever the factory does wrong is told in one line that names the option and what happened."""
    with pytest.raises(BadTarget) as caught:
        examine(text)

    assert str(caught.value).startswith("--loader")
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_a_factory_that_hangs_is_named_with_its_line(examine: Examine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A factory that does not return in time is the user's, and the line that it hangs in is told."""
    monkeypatch.setattr(loader_exam, "DEADLINE", 1.0)

    with pytest.raises(BadTarget, match=r"did not return in time \(at .*train.py:9 in build_loader"):
        examine("def build_loader():\n    time.sleep(100)")


def test_a_stream_that_gives_nothing_is_not_judged(examine: Examine) -> None:
    """A stream that blocks ends the wait, not the checkup; no check draws a conclusion."""
    exam = examine(
        """
        class Slow(IterableDataset):
            def __iter__(self):
                time.sleep(100)
                yield 1
        def build_loader():
            return DataLoader(Slow())
        """
    )

    for check in CHECKS:
        if check.area == "data":
            for facet in check.of(Instrument.PROBE):
                with suppress(NotRun):
                    assert list(facet.examine(exam)) == []


def test_a_huge_sampler_is_read_in_part(examine: Examine) -> None:
    """Of two million samples a part is read, soon, and it is said that the rest was not seen."""
    text = """
        class Huge(Dataset):
            def __len__(self):
                return 2_000_000
            def __getitem__(self, index):
                return torch.full((4,), index) + torch.arange(4)
        def build_loader():
            return DataLoader(Huge(), batch_size=8, {})
    """
    started = time.monotonic()
    split = examine(text.format("sampler=DistributedSampler(Huge())"))
    whole = examine(text.format("shuffle=True"))

    assert time.monotonic() - started < 20
    assert not split.ranks[0].order.complete
    assert len(split.ranks[0].order.indices) <= 200_010
    assert [finding.severity for finding in findings("no-distributed-sampler", whole)] == [None]
    for slug in ("no-distributed-sampler", "shards-overlap"):
        assert findings(slug, split) == []


def test_the_rank_is_what_torchrun_makes_it(examine: Examine) -> None:
    """The factory finds rank and world size in its arguments, in the environment and in the process group."""
    exam = examine(
        """
        def build_loader(world_size, rank):
            assert os.environ["RANK"] == os.environ["LOCAL_RANK"] == str(rank) == str(dist.get_rank())
            assert os.environ["WORLD_SIZE"] == os.environ["LOCAL_WORLD_SIZE"] == str(world_size)
            return DataLoader(range(10), batch_size=5, sampler=DistributedSampler(range(10), shuffle=False))
        """
    )

    first = exam.ranks[0]
    assert [rank.order.indices for rank in exam.ranks] == [(0, 2, 4, 6, 8), (1, 3, 5, 7, 9)]
    assert first.order.sizes == (5,)
    assert first.sampler is not None
    assert (first.sampler.kind, first.sampler.replicas, first.sampler.rank) == ("DistributedSampler", 2, 0)
    assert (first.sampler.shuffle, first.sampler.seed, first.sampler.has_set_epoch) == (False, 0, True)


def test_epochs_are_read_as_a_training_would(examine: Examine) -> None:
    """Two epochs without set_epoch, then two with it; the sampler is told its own epoch again."""
    exam = examine(
        """
        class Told(DistributedSampler):
            heard = []
            def set_epoch(self, epoch):
                super().set_epoch(epoch)
                self.heard.append(epoch)
            def __iter__(self):
                return iter([*super().__iter__(), *[10_000 + epoch for epoch in self.heard]])
        def build_loader():
            return DataLoader(range(10), batch_size=5, sampler=Told(range(10)))
        """
    )

    marks = [
        [index for index in order.indices if isinstance(index, int) and index >= 10_000]
        for order in (*exam.ranks[0].plain, *exam.ranks[0].told)
    ]
    assert marks == [[], [], [10_001], [10_001, 10_002]]


def test_the_workers_of_a_stream_are_told_apart(examine: Examine) -> None:
    """Samples are digested in the workers, one by one, before they are collated."""
    exam = examine(
        """
        class Lines(IterableDataset):
            def __iter__(self):
                yield from range(get_worker_info().id, 20, 2)
        def refuse(batch):
            raise AssertionError("the batch is of no interest")
        def build_loader():
            return DataLoader(Lines(), batch_size=4, num_workers=2, collate_fn=refuse, pin_memory=True)
        """
    )

    contents = exam.ranks[0].contents
    assert contents is not None
    assert contents.complete
    assert contents.batches == 6
    assert [len(each) for each in contents.by_worker(2)] == [10, 10]
    assert len(set(contents.digests())) == 20


@pytest.mark.parametrize("world_size", [1, 3])
def test_other_world_sizes(tmp_path: Path, jobs: Jobs, world_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One rank shares with nobody; of three, each has a third."""
    path = tmp_path / "train.py"
    path.write_text(
        HEAD + "def build_loader():\n    return DataLoader(range(10), sampler=DistributedSampler(range(10)))\n"
        "def build_whole():\n    return DataLoader(range(10), shuffle=True)\n"
    )
    monkeypatch.setattr(jobs, "world_size", world_size)
    split = examine_loader(jobs, Target(str(path), "build_loader"))
    whole = examine_loader(jobs, Target(str(path), "build_whole"))

    assert [len(rank.order.indices) for rank in split.ranks] == [-(-10 // world_size)] * world_size
    if world_size == 1:
        with pytest.raises(NotRun, match="needs 2 ranks"):
            findings("no-distributed-sampler", whole)
    else:
        assert findings("shards-overlap", split) == []
        assert "each of 3 ranks goes through all 10 samples" in findings("no-distributed-sampler", whole)[0].message


def test_a_refused_loader_is_a_finding_at_its_line(examine: Examine) -> None:
    """That torch refuses sampler with shuffle is no bad target: the check names the user's line."""
    exam = examine(
        """
        def make(data):
            return DataLoader(data, sampler=DistributedSampler(data), shuffle=True)
        def build_loader():
            return make(range(8))
        """
    )

    (finding,) = findings("sampler-and-shuffle", exam)
    assert (finding.place.file, finding.place.line) == (exam.file, 10)
    assert "mutually exclusive" in finding.evidence[0].seen
    with pytest.raises(NotRun, match="refused"):
        findings("no-distributed-sampler", exam)


def test_the_same_error_of_the_users_own_is_a_bad_target(examine: Examine) -> None:
    """Only what torch raises counts as its refusal."""
    with pytest.raises(BadTarget, match="your code raised ValueError"):
        examine("def build_loader(): raise ValueError('sampler option is mutually exclusive with shuffle')")


LOADER = """
def build_loader():
    return DataLoader(range(40), batch_size=4, sampler=DistributedSampler(range(40)))
"""


@pytest.mark.parametrize(
    ("text", "severity"),
    [
        ("def train(loader):\n    for epoch in range(9):\n        pass", Severity.WARNING),
        ("def train(loader):\n    for epoch in range(9):\n        loader.sampler.set_epoch(epoch)", None),
        (
            "def train(loader):\n    for epoch in range(9):\n        # loader.sampler.set_epoch(epoch)\n        pass",
            Severity.WARNING,
        ),
        ("def train(s):\n    for epoch in range(9):\n        if hasattr(s, 'set_epoch'): s.set_epoch(epoch)", None),
        ("def train(s):\n    for epoch in range(9):\n        getattr(s, 'set_epoch')(epoch)", None),
        ("def main():\n    import lightning\n    for epoch in range(9): pass", "framework"),
        ("def main():\n    from transformers import Trainer\n    for epoch in range(9): pass", "framework"),
        ("def main():\n    from helper import run\n    for epoch in range(9): run()", None),
        ("", Severity.NOTE),
    ],
)
def test_set_epoch_is_looked_for(examine: Examine, tmp_path: Path, text: str, severity: object) -> None:
    """A call anywhere in what the file imports, however it is written, or a framework, keeps the check silent."""
    if "helper" in text:
        (tmp_path / "helper.py").write_text("def run(loader, epoch):\n    loader.sampler.set_epoch(epoch)\n")
    exam = examine(LOADER + text)

    if severity == "framework":
        with pytest.raises(NotRun, match="by itself"):
            findings("set-epoch-not-called", exam)
        return
    found = findings("set-epoch-not-called", exam)
    assert [finding.severity or Severity.WARNING for finding in found] == ([severity] if severity else [])
    for finding in found:
        assert (finding.place.file, finding.place.line) == (exam.file, 10)
        assert any("# loader" in each.seen for each in finding.evidence) is ("# loader" in text)


def test_a_loop_in_another_file_is_not_judged(examine: Examine, tmp_path: Path) -> None:
    """Where the training stands in a file that the loader's does not import, and calls set_epoch, nothing is said."""
    (tmp_path / "main.py").write_text("import train\nfor epoch in range(3):\n    loader.sampler.set_epoch(epoch)\n")

    with pytest.raises(NotRun, match="the loop over epochs"):
        findings("set-epoch-not-called", examine(LOADER))


def test_a_module_by_its_dotted_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sources of a dotted module are read like those of a file."""
    package = tmp_path / "project"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "engine.py").write_text("def run(s):\n    for epoch in range(3):\n        s.set_epoch(epoch)\n")
    (package / "data.py").write_text(HEAD + "from . import engine\n" + LOADER)
    monkeypatch.chdir(tmp_path)
    with Jobs(2, os.environ) as jobs:
        exam = examine_loader(jobs, Target("project.data", "build_loader"))

    assert {Path(file).name for file in exam.source.files} >= {"data.py", "engine.py"}
    assert findings("set-epoch-not-called", exam) == []


def test_a_constant_epoch_is_found_at_its_line(examine: Examine) -> None:
    """The literal is quoted, and its line is the place."""
    exam = examine(LOADER + "def train(s):\n    for epoch in range(9):\n        s.set_epoch(7)\n")

    (finding,) = findings("set-epoch-constant", exam)
    assert "s.set_epoch(7)" in finding.message
    assert finding.place.line == 13
    assert findings("set-epoch-not-called", exam) == []


WRAPPED = """
import numpy as np
class Crop:
    def __init__(self, rng):
        self.rng = rng
    def __call__(self, rows):
        return rows + self.rng.standard_normal(8)

class Cropped(Dataset):
    def __init__(self):
        rng = np.random.default_rng(7)
        self.steps = [Crop(rng), Crop(rng)]
    def __len__(self):
        return 32
    def __getitem__(self, index):
        rows = np.zeros(8)
        for step in self.steps:
            rows = step(rows)
        return rows

def again(worker):
    seed = torch.initial_seed()
    for step in torch.utils.data.get_worker_info().dataset.steps:
        step.rng = np.random.default_rng(seed)

class Epochs:
    def __init__(self, loader):
        self.inside, self.dataset, self.sampler = loader, loader.dataset, loader.sampler
    def __iter__(self):
        return iter(self.inside)
    def __len__(self):
        return len(self.inside)

def build_loader(rank, world_size):
    data = Cropped()
    sampler = DistributedSampler(data, num_replicas=world_size, rank=rank)
    return Epochs(DataLoader(data, batch_size=4, sampler=sampler, num_workers=2, worker_init_fn={given}))
"""


@pytest.mark.parametrize("given", [None, "again"])
def test_generators_of_transforms_are_found_behind_a_wrapper(given: str | None, examine: Examine) -> None:
    """Workers with copies of one generator draw alike, on all ranks; the fix gives each transform another one."""
    found = findings("same-augmentation-in-workers", examine(WRAPPED.format(given=given)))

    assert [each.message.partition(":")[0] for each in found] == (
        [] if given else ["the workers of Cropped draw the same augmentations, and so do all ranks"]
    )
    for each in found:
        assert "dataset.steps[0].rng = dataset.steps[1].rng = numpy.random.default_rng(seed)" in each.fix.diff


BY_WORKER = """
from torch.utils.data import get_worker_info

class Lines(IterableDataset):
    def __init__(self):
        self.shards = list(range(8))
    def __iter__(self):
        info = get_worker_info()
        mine = self.shards if info is None else self.shards[info.id::info.num_workers]
        for shard in mine:
            for line in range(5):
                yield torch.full((4,), shard * 5.0 + line)

def build_loader():
    return DataLoader(Lines(), batch_size=2, num_workers={workers})
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_a_split_by_worker_becomes_one_by_rank_and_worker(workers: int, examine: Examine) -> None:
    """The line that splits is given as it would be, and with it each sample comes to one rank, with workers or none."""
    text = BY_WORKER.format(workers=workers)
    (found,) = findings("iterable-not-split-by-rank", examine(text))
    old, new = (line[1:] for line in found.fix.diff.splitlines())
    mended = examine(text.replace(old, new))

    assert findings("iterable-not-split-by-rank", mended) == []
    shares = [set(each.digests()) for each in mended.streams()]
    assert len(set.union(*shares)) == sum(map(len, shares)) == 40


@pytest.mark.parametrize(
    ("share", "told"),
    [
        ("random.Random(rank).sample(range(64), 64)[rank::world_size]", True),
        ("torch.randperm(64).tolist()[rank * 32 : rank * 32 + 32]", True),
        ("random.Random(0).sample(range(64), 64)[rank::world_size]", False),
        ("range(rank * 32, rank * 32 + 32)", False),
        ("[each for each in range(64) if each % 5 != rank]", False),
    ],
)
def test_subsets_cut_from_an_order_of_each_rank_are_a_note(examine: Examine, share: str, *, told: bool) -> None:
    """Parts that make up the whole, and overlap; folds are larger than a part, and one order is cut without overlap."""
    exam = examine(
        f"""
        import random
        def build_loader(world_size, rank):
            return DataLoader(Subset(range(64), {share}), batch_size=4, shuffle=True)
        """
    )

    found: list[Finding] = []
    with suppress(NotRun):  # of folds there is nothing to count
        found = findings("shards-overlap", exam)
    assert [each.severity for each in found] == ([Severity.NOTE] if told else [])
