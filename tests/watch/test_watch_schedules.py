"""Schedules of learning rates that step while they are counted: they come to the same, whatever class they are of."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ddpdoctor.watch.events import ScheduleAtEnd
from ddpdoctor.watch.rank.hooks import schedules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def told() -> Iterator[Callable[[], list[Any]]]:
    """Count the steps of schedules, and return what would be told of them at the end."""
    recorder: Any = SimpleNamespace(
        is_rank=True,
        models=SimpleNamespace(any=lambda: True),
        last_looks=[],
        number=lambda *_: 0,
        safely=lambda function, *args: function(*args),
        said=[],
    )
    recorder.emit = lambda event, **fields: recorder.said.append((event, fields))
    patches = schedules.hook(recorder)

    def tell() -> list[Any]:
        recorder.last_looks[0]()
        return list(recorder.said)

    yield tell
    for each in patches:
        each.undo()


def test_schedules_are_counted_by_identity(told: Callable[[], list[Any]]) -> None:
    """One of a class without a hash, as a dataclass with an own comparison has none, steps as it does otherwise."""
    import torch
    from torch.optim.lr_scheduler import CosineAnnealingLR

    @dataclass
    class Cosine(CosineAnnealingLR):
        """A schedule that cannot be a key of a dict."""

        optimizer: Any
        T_max: int
        last_epoch: int = -1
        eta_min: float = 0.0

        def __post_init__(self) -> None:
            """Begin as torch does."""
            super().__init__(self.optimizer, self.T_max)

    def train(kind: type[Any]) -> list[float]:
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
        schedule, rates = kind(optimizer, 40), []
        for _ in range(10):
            optimizer.step()
            schedule.step()
            rates += schedule.get_last_lr()
        return rates

    assert train(Cosine) == train(CosineAnnealingLR)
    assert [(event, fields["lengths"], fields["made"]) for event, fields in told()] == [(ScheduleAtEnd, (40,), 10)] * 2
