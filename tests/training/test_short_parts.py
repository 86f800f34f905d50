"""Cuts by the rank that leave samples out are found in the source; cuts that take all, or few on purpose, are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ddpdoctor.check import Site
from ddpdoctor.checks.data.evaluation._left_out import left_out

if TYPE_CHECKING:
    from helpers import Script

FUNCTION = """
@torch.no_grad()
def evaluate(model, rows, rank, world_size):
    {cut}
    total = model(mine).sum()
    dist.all_reduce(total)  # here
    return total / len(rows)
"""


def _share(script: Script, cut: str) -> float:
    text = FUNCTION.format(cut=cut)
    line = next(at for at, each in enumerate(text.splitlines(), 1) if "# here" in each)
    found = left_out([Site(script(text), line, "evaluate")], 2, at_line=False)
    return found.share if found is not None else 0.0


@pytest.mark.parametrize(
    ("cut", "share"),
    [
        ("mine = rows[range(rank, len(rows) // world_size, world_size)]", 0.5),
        ("part = len(rows) // (world_size + 1); mine = rows[rank * part : (rank + 1) * part]", 0.33),
        ("part = len(rows) // world_size // 2\n    mine = rows[rank * part : rank * part + part]", 0.5),
        ("mine = rows[rank : rows.shape[0] // world_size : world_size]", 0.5),
    ],
)
def test_a_short_cut_is_found(cut: str, share: float, script: Script) -> None:
    """What the ranks take together ends before the samples do."""
    assert _share(script, cut) == pytest.approx(share, abs=0.02)


@pytest.mark.parametrize(
    "cut",
    [
        "mine = rows[rank::world_size]",
        "part = len(rows) // world_size; mine = rows[rank * part : (rank + 1) * part]",
        "part = math.ceil(len(rows) / world_size); mine = rows[rank * part : (rank + 1) * part]",
        "part = math.ceil(len(rows) / world_size); mine = rows[rank * part : min(len(rows), (rank + 1) * part)]",
        "mine = rows[rank : len(rows) // 10 : world_size]",
        "mine = rows[rank * 20 : rank * 20 + 20]",
        "mine = rows[rank * share : (rank + 1) * share]",
        "mine = rows[: len(rows) // world_size]",
    ],
)
def test_other_cuts_are_none(cut: str, script: Script) -> None:
    """They take all but a few, are short on purpose, or their ends are not known."""
    assert _share(script, cut) == 0.0
