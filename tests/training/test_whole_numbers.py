"""Whole numbers that are drawn for the samples of a batch are told from those that choose samples."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest

from ddpdoctor.check import last_name, tree_of
from ddpdoctor.checks.data.draws._whole_numbers import DRAWS, drawn_for_samples

if TYPE_CHECKING:
    from helpers import Script

STEP = """
def step(model, rows, users, rng, items, rank, batch_size):
    {drawn}
    return model(users, {used})
"""


@pytest.mark.parametrize(
    ("drawn", "used", "expected"),
    [
        ("other = torch.tensor([rng.randrange(items) for _ in range(len(users))])", "other", True),
        ("other = rng.integers(0, items, users.shape)", "torch.from_numpy(other)", True),
        ("other = rng.integers(0, items, len(users))", "rows[other]", False),
        ("other = rng.integers(0, len(rows), batch_size)", "rows.index_select(0, other)", False),
        ("other = rng.integers(0, items, len(users))[rank::2]", "other", False),
        ("other = rng.integers(0, items, 64)", "other", False),
        ("other = rng.randrange(items)", "other", False),
    ],
)
def test_what_is_drawn_for_samples_chooses_none(drawn: str, used: str, *, expected: bool, script: Script) -> None:
    """As many as there are samples, in a statement that speaks of no rank, and nowhere an index."""
    file = script(STEP.format(drawn=drawn, used=used))
    (call,) = (each for each in tree_of(file).of(ast.Call) if last_name(each.func) in DRAWS)

    assert drawn_for_samples(call, file) is expected
