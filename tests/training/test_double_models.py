"""A model in float64: counted, told as a fact, with the line that makes it so."""

from __future__ import annotations

from typing import Any

import pytest

from ddpdoctor.report.steps import closely
from ddpdoctor.watch.figures.anatomy import DOUBLED
from ddpdoctor.watch.rank.measured.profile import _doubled


@pytest.mark.parametrize(
    ("shares", "said"), [((1.0, 1.0), "100% of the model's parameters are float64 (train.py:8)"), ((1.0, 0.0), ""),
                         ((0.01, 0.01), "")]
)  # fmt: skip
def test_a_model_in_float64_is_told_as_a_fact(shares: tuple[float, float], said: str) -> None:
    """Where it is so on all ranks, and torch's default is another (else the share is 0)."""
    usual: dict[str, Any] = {
        "steps": 30, "total": [0.1] * 3, "cost": 0.0, "calls": [], "lines": [], "float64_at": "train.py:8",
    }  # fmt: skip
    profile = {str(at): {**usual, "float64": share} for at, share in enumerate(shares)}
    text = " ".join(closely(profile))
    assert said in text
    assert said or "float64" not in text


def test_what_share_is_float64_is_counted_beside_the_default() -> None:
    """By the numbers in the parameters; nothing where double is the default that somebody has set."""
    import torch

    narrow, wide = torch.zeros(30), torch.zeros(10, dtype=torch.float64)
    assert _doubled([narrow, wide]) == 0.25
    assert _doubled([narrow]) == _doubled([]) == 0.0
    torch.set_default_dtype(torch.float64)
    try:
        assert _doubled([wide]) == 0.0
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("net = nn.Sequential(nn.Linear(4, 4)).double()", True),
        ("model = model.to(device, dtype=torch.float64)", True),
        ("x = x.double()", False),
        ("total = torch.zeros(2, dtype=torch.float64)", False),
        ("# model.double()", False),
    ],
)
def test_the_line_that_makes_a_model_double_is_known_by_what_it_says(text: str, *, named: bool) -> None:
    """A batch or a sum in double is not what makes the parameters so."""
    assert bool(DOUBLED.search(text)) is named
