"""A count of all samples' batches that measures a rank's steps is found in the source; what looks like it is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ddpdoctor.checks._scripts.whole_steps import whole_steps

if TYPE_CHECKING:
    from helpers import Script

LOADER = """
def train(data, batch_size, epochs, world_size):
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=batch_size, sampler=sampler)
    {made}
    step = 0
    for epoch in range(epochs):
        for x in loader:
            {used}
            step += 1
"""
COSINE = "lr = 0.5 * (1 + math.cos(math.pi * step / total))"
HELPER = """
def rate(at, length):
    return min(1.0, at / length)
"""


def _found(script: Script, made: str, used: str, more: str = "") -> list[str]:
    return [each.text for each in whole_steps(script(more + LOADER.format(made=made, used=used)), 8)]


@pytest.mark.parametrize(
    ("made", "used"),
    [
        ("total = epochs * (len(data) // batch_size)", COSINE),
        ("total = epochs * len(loader.dataset) // 8", COSINE),
        ("total = epochs * math.ceil(len(data) / batch_size)", COSINE),
        ("first, total = 0, len(data) // batch_size", "warm = step < total"),
        ("total = len(data) // batch_size", "lr = rate(step, total)"),
        ("schedule = LambdaLR(optimizer, lambda s: min(1.0, s / (len(data) // batch_size)))", "schedule.step()"),
    ],
)
def test_a_count_of_one_process_is_found(made: str, used: str, script: Script) -> None:
    """A rank's steps are divided by it, or compared with it."""
    assert len(_found(script, made, used, HELPER)) == 1


@pytest.mark.parametrize(
    ("made", "used"),
    [
        ("total = epochs * (len(data) // (batch_size * world_size))", COSINE),
        ("total = epochs * len(data) // batch_size // world_size", COSINE),
        ("total = epochs * len(loader)", COSINE),
        ("total = len(data) // batch_size", 'print(f"{step / total:.0%}")'),
        ("total = len(data) // batch_size", "last = step % total == 0"),
        ("total = len(held_out) // batch_size", COSINE),
        ("total = len(data) // batch_size", "loss_sum = loss_sum / total"),
        ("batch_size = whole_batch // world_size; total = len(data) // batch_size", COSINE),
        ("total = len(val_loader.dataset) // batch_size", COSINE),
    ],
)
def test_other_counts_are_none(made: str, used: str, script: Script) -> None:
    """They speak of the ranks, count other data, or are told alone."""
    assert _found(script, made, used) == []
