from __future__ import annotations

import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpdoctor.check import BadTarget, Check, Instrument, NotRun
from ddpdoctor.model import Finding, Severity
from ddpdoctor.probe.facts import Facts
from ddpdoctor.probe.jobs import Jobs
from ddpdoctor.probe.loader_exam import examine_loader
from ddpdoctor.probe.loader_facts import LoaderExam, RankLoader, Sampler
from ddpdoctor.probe.outcome import Returned
from ddpdoctor.probe.selftest import fixture
from ddpdoctor.probe.supplies import Named, supplies
from ddpdoctor.probe.target import Target, parse
from ddpdoctor.registry import load_checks

DATA = tuple(check for check in load_checks() if check.area == "data")

HEALTHY = {
    "batch_sampler": """
        def build_loader():
            sampler = DistributedSampler(data)
            return DataLoader(data, batch_sampler=BatchSampler(sampler, 4, drop_last=True))
        for epoch in (): sampler.set_epoch(epoch)
    """,
    "one_sample": """
        def build_loader():
            one = TensorDataset(torch.randn(1, 2))
            return DataLoader(one, sampler=DistributedSampler(one))
    """,
    "constant_padding": """
        class Stream(IterableDataset):
            def __iter__(self): return iter([torch.zeros(3)] * 20)
        def build_loader(): return DataLoader(Stream(), batch_size=2, num_workers=2)
    """,
    "weighted": """
        def build_loader(rank):
            torch.manual_seed(rank)
            return DataLoader(data, batch_size=4, sampler=WeightedRandomSampler(torch.ones(40), 40))
    """,
    "infinite": """
        class Stream(IterableDataset):
            def __iter__(self):
                generator = torch.Generator().manual_seed(dist.get_rank())
                while True: yield torch.randn(3, generator=generator)
        def build_loader(): return DataLoader(Stream(), batch_size=2)
    """,
    "plain_generator": """
        def build_loader(rank, world_size):
            return [{"ids": torch.full((4,), i), "text": ["a", str(i)]} for i in range(rank, 40, world_size)]
    """,
    "own_batches": """
        class Dealt:
            def __init__(self, sampler): self.sampler = sampler
            def __iter__(self):
                rank, world = dist.get_rank(), dist.get_world_size()
                return iter(list(self.sampler)[rank::world])
            def __len__(self): return len(self.sampler) // dist.get_world_size()
        def build_loader():
            return DataLoader(data, batch_sampler=Dealt(BatchSampler(SequentialSampler(data), 4, True)))
    """,
    "lightning_like": """
        def build_loader():
            return DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
        def fit():
            for epoch in range(3):
                loader = build_loader(); loader.sampler.set_epoch(epoch)
    """,
    "subset": """
        def build_loader(rank, world_size):
            share = Subset(data, range(rank, 40, world_size))
            return DataLoader(share, batch_size=4, shuffle=True, drop_last=True)
    """,
    "random_crops": """
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
        class Unsized(IterableDataset):
            def __iter__(self):
                for i in range(dist.get_rank(), 40, dist.get_world_size()): yield torch.tensor([i, i + 1])
            def __len__(self): raise TypeError("no length")
        def build_loader(): return DataLoader(Unsized(), batch_size=4, drop_last=True)
    """,
    "numpy_bfloat16_and_objects": """
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
HEAD = """
import torch, torch.distributed as dist
from torch.utils.data import *
from torch.utils.data import Dataset, DistributedSampler, IterableDataset
data = TensorDataset(torch.randn(40, 2, generator=torch.Generator().manual_seed(0)))
"""


def _file(folder: Path, source: str) -> Target:
    path = folder / "train.py"
    path.write_text(HEAD + textwrap.dedent(source))
    return parse(f"{path}:build_loader")


def _findings(exam: LoaderExam) -> dict[str, list[Finding]]:
    found: dict[str, list[Finding]] = {}
    for check in DATA:
        (facet,) = check.of(Instrument.PROBE)
        try:
            if findings := list(facet.examine(loader=exam)):
                found[check.slug] = findings
        except NotRun:
            continue
    return found


def _severity(slug: str, finding: Finding) -> Severity:
    return finding.severity or next(check.severity for check in DATA if check.slug == slug)


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_designs_raise_no_alarm(jobs: Jobs, tmp_path: Path, name: str) -> None:
    """Nothing above a note on loaders as good projects build them."""
    exam = examine_loader(jobs, _file(tmp_path, HEALTHY[name]))
    alarms = {
        slug: finding.message
        for slug, findings in _findings(exam).items()
        for finding in findings
        if _severity(slug, finding) > Severity.NOTE
    }

    assert alarms == {}


@pytest.mark.parametrize("check", DATA, ids=lambda check: check.slug)
def test_controls_are_clean_for_every_check_of_data(check: Check, facts: Facts, jobs: Jobs) -> None:
    """A healthy twin is healthy in every respect: none of the other checks alarms either."""
    target = Target(str(fixture(check, "control.py")), "build_loader")
    exam = supplies(facts, lambda: jobs, Named(loader=target)).get("loader")

    assert {s for s, found in _findings(exam).items() if any(_severity(s, f) > Severity.NOTE for f in found)} == set()


@pytest.mark.parametrize("check", DATA, ids=lambda check: check.slug)
@pytest.mark.parametrize("name", ["control", "patient"])
def test_patients_and_controls_are_scripts_that_torchrun_can_start(check: Check, jobs: Jobs, name: str) -> None:
    """Controls train to the end; patients too, but for those whose ailment is to crash or to hang."""
    outcomes = jobs.run_script(fixture(check, f"{name}.py"), deadline=8)
    ends = all(isinstance(outcome, Returned) for outcome in outcomes)

    assert ends is not (name == "patient" and check.slug in {"shuffle-with-sampler", "uneven-batches"})


BROKEN = """
class Broken(Dataset):
    def __len__(self): return 4
    def __getitem__(self, i): raise KeyError("image")
def build_loader(): return DataLoader(Broken())
"""


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def build_loader(): return 3", "int, which cannot be iterated over"),
        ("def build_loader(): raise OSError('no /data')", "OSError: no /data"),
        ("def other(): pass", "no 'build_loader'"),
        ("import nowhere", "ModuleNotFoundError"),
        ("def build_loader(:", "SyntaxError"),
        (BROKEN, "KeyError: 'image'"),
    ],
)  # fmt: skip
def test_a_loader_that_cannot_be_built_is_the_users_error(jobs: Jobs, tmp_path: Path, source: str, said: str) -> None:
    """One clear line that says whose error it is."""
    with pytest.raises(BadTarget) as caught:
        examine_loader(jobs, _file(tmp_path, source))

    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def _exam(orders: list[tuple[int, ...]], length: int, **sampler: Any) -> LoaderExam:
    described = Sampler("DistributedSampler", True, len(orders), 0, True, 0, False, True, False)  # noqa: FBT003 - in order
    return LoaderExam(
        "train.py:build_loader",
        tuple(
            RankLoader(
                rank, "DataLoader", "Data", False, length, len(order), 0, replace(described, rank=rank, **sampler),  # noqa: FBT003 - in order
                (order, order, order, order[::-1]), (), None, (), False, None,  # noqa: FBT003 - in order
            )
            for rank, order in enumerate(orders)
        ),
    )  # fmt: skip


@given(st.integers(1, 60), st.integers(2, 6), st.booleans(), st.integers(0, 3))
def test_torchs_own_shares_never_overlap(length: int, world: int, drop_last: object, epoch: int) -> None:
    """Whatever the sizes, what DistributedSampler deals out is no overlap."""
    from torch.utils.data import DistributedSampler

    orders = []
    for rank in range(world):
        sampler: Any = DistributedSampler(range(length), world, rank, drop_last=bool(drop_last))  # type: ignore[arg-type]  # has a length
        sampler.set_epoch(epoch)
        orders.append(tuple(sampler))
    found = _findings(_exam(orders, length))

    # More ranks than samples: each is then dealt several times, and that is told.
    assert "shards-overlap" not in found or length < world


@given(st.integers(20, 60), st.integers(2, 4))
def test_shares_of_different_shuffles_overlap(length: int, world: int) -> None:
    """The count of the finding is that of a brute-force count."""
    from torch.utils.data import DistributedSampler

    orders = []
    for rank in range(world):
        sampler: Any = DistributedSampler(range(length), world, rank, seed=rank)  # type: ignore[arg-type]  # has a length
        orders.append(tuple(sampler))
    together = [index for order in orders for index in order]
    twice = len(together) - len(set(together))
    found = _findings(_exam(orders, length)).get("shards-overlap", [])

    assert bool(found) is (twice >= world)
    if found:
        assert found[0].message.startswith(f"{twice} samples")


@given(st.integers(1, 40), st.integers(2, 5))
def test_what_is_padded_is_counted(length: int, world: int) -> None:
    """The finding's number is what the last round lacks."""
    from torch.utils.data import DistributedSampler

    data: Any = range(length)
    orders: Any = [tuple(DistributedSampler(data, world, rank, shuffle=False)) for rank in range(world)]
    found = _findings(_exam(orders, length, shuffles=False)).get("evaluation-padded", [])
    lacking = -length % world

    assert bool(found) is bool(lacking)
    if found:
        assert found[0].message.startswith(f"{lacking} of {length} samples")
