"""Ranks that torchrun has started again are compared with each other, not with what they were before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from helpers import CHECKS

from ddpdoctor.watch.dispatcher import Dispatcher
from ddpdoctor.watch.events import DataSeen, EpochStarted, Event, Joined, OrderSeen, Sampler, Site, Wrapped

LOOP = Site("/train.py", 30, "train")


def event(kind: type[Event], **given: Any) -> Event:
    """Make an event; what is not given is empty."""
    empty = {"int": 0, "str": "", "bool": False}
    names = {each.name: () if "tuple" in str(each.type) else empty.get(str(each.type)) for each in fields(kind)}
    return kind(**{**names, **given})


def life(pid: int, rank: int, since: float, *epochs: int) -> Iterator[Event]:
    """Yield the events of one process that trains some epochs."""
    who = {"pid": pid, "rank": rank, "time": since}
    yield event(Joined, **who, world_size=2, backend="gloo")
    yield event(Wrapped, **who, group=(0, 1), trainable=("weight",))
    yield event(DataSeen, **who, contents="1")
    for number, epoch in enumerate(epochs):
        sampler = Sampler(number=0, kind="DistributedSampler", replicas=2, rank=rank, shuffle=True, seed=0, epoch=epoch)
        yield event(EpochStarted, **who, number=number, length=64, batches=4, batch_size=8, sampler=sampler, site=LOOP)
        order = tuple(range(epoch, 32 + epoch))
        yield event(OrderSeen, **who, number=number, indices=order, trained=True, site=LOOP)


def found(*lives: Iterator[Event]) -> list[str]:
    """Return the slugs of what is found in these processes, read one after the other."""
    judge = Dispatcher(CHECKS)
    return [each.check.slug for events in lives for seen in events for each in judge.see(seen)]


def test_a_restart_at_a_later_epoch_is_no_difference_between_ranks() -> None:
    """In its first life rank 0 came further than rank 1; the second life of rank 0 is told before that of rank 1."""
    assert found(life(1, 0, 1.0, 0, 1), life(2, 1, 1.1, 0), life(3, 0, 9.0, 5), life(4, 1, 9.1, 5)) == []


def test_a_restart_at_different_epochs_is_found() -> None:
    """Rank 0 resumes at epoch 5, and rank 1 at epoch 0."""
    lives = life(1, 0, 1.0, 0), life(2, 1, 1.1, 0), life(3, 0, 9.0, 5), life(4, 1, 9.1, 0)

    assert found(*lives) == ["sampler-epochs-differ"]
