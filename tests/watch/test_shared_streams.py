"""Streams that Accelerate shares out: whose class gives out its rank's share is told, whose does not is not."""

from __future__ import annotations

import types
from typing import Any

import pytest

from ddpdoctor.watch.rank.frameworks import shares

ACCELERATES = """
import types
from torch.utils.data import IterableDataset
from ddpdoctor.watch.rank.frameworks.shares import streamed_twice


class IterableDatasetShard(IterableDataset):
    def __init__(self, dataset, num_processes):
        self.dataset, self.num_processes = dataset, num_processes

    def __iter__(self):
        return iter(self.dataset)


class DataLoaderDispatcher:
    def __init__(self, loader, ranks):
        self.loader, self.state = loader, types.SimpleNamespace(num_processes=ranks)

    def __iter__(self):
        yield streamed_twice(self.loader)
"""
USERS = """
import os
from torch.utils.data import DataLoader, IterableDataset


class Whole(IterableDataset):
    def __iter__(self):
        yield from range(8)


class Share(IterableDataset):
    def __init__(self, world_size=None):
        self.world_size = world_size

    def __iter__(self):
        rank, world_size = int(os.environ["RANK"]), self.world_size or int(os.environ["WORLD_SIZE"])
        yield from range(rank, 8, world_size)
"""


def module(name: str, file: str, source: str) -> Any:
    """Return a module of this file."""
    made = types.ModuleType(name)
    exec(compile(source, file, "exec"), vars(made))  # noqa: S102 - a stand-in
    return made


@pytest.fixture
def accelerates() -> Any:
    """Return a stand-in for Accelerate's module."""
    pytest.importorskip("torch")
    return module(shares.MODULE, "/site-packages/accelerate/data_loader.py", ACCELERATES)


@pytest.fixture
def users() -> Any:
    """Return a module of the user's, with two streams."""
    return module("train", "/home/me/train.py", USERS)


@pytest.mark.parametrize(
    ("kind", "given", "is_told"),
    [("Share", (), True), ("Share", (2,), True), ("Share", (1,), False), ("Whole", (), False)],
)
def test_a_share_of_a_share(accelerates: Any, users: Any, kind: str, given: tuple[int, ...], *, is_told: bool) -> None:
    """Read on one rank and handed out, or read on each; of a data set that is told it is alone nothing is said."""
    data = getattr(users, kind)(*given)
    (dispatched,) = accelerates.DataLoaderDispatcher(users.DataLoader(data), 2)
    each = shares.streamed_twice(users.DataLoader(accelerates.IterableDatasetShard(data, 2)))
    assert dispatched == (("Share", "DataLoaderDispatcher", 2) if is_told else None)
    assert each == (("Share", "IterableDatasetShard", 2) if is_told else None)


def test_one_process_takes_it_whole(accelerates: Any, users: Any) -> None:
    """A dispatcher of one rank, and torch's loader by itself, share nothing out."""
    (alone,) = accelerates.DataLoaderDispatcher(users.DataLoader(users.Share()), 1)
    assert alone is None
    assert shares.streamed_twice(users.DataLoader(users.Share())) is None
