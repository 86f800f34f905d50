"""Orders that a script draws by hand: which of them its loop over epochs draws anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpdoctor.checks.data.epochs._permutations import drawn_once

LOOP = """\
{before}
for epoch in range(5):
    {inside}
    for at in range(0, 80, 8):
        picked = order[at : at + 8]
        train(rows[picked])
"""
ONCE = [
    ("order = torch.randperm(80)", "pass"),
    ("order = torch.randperm(80)[rank::world]", "pass"),
    ("whole = rng.permutation(80)\norder = whole[rank::world]", "pass"),
    ("order = list(range(80))\nrandom.shuffle(order)", "pass"),
    ("order = []", "order = torch.randperm(80, generator=torch.Generator().manual_seed(0))"),
    ("order = []", "order = np.random.default_rng(7).permutation(80)"),
]
ANEW = [
    ("order = torch.arange(80)", "pass"),
    ("order = torch.arange(80)", "order = torch.randperm(80)"),
    ("order = torch.arange(80)", "order = torch.randperm(80, generator=torch.Generator().manual_seed(epoch))"),
    ("order = list(range(80))", "random.shuffle(order)"),
    ("order = torch.randperm(80)", "order = order[torch.randperm(80)]"),
    ("whole = torch.randperm(100)\norder, held = whole[:80], whole[80:]", "pass"),
    ("kept = torch.randperm(80)\norder = torch.arange(80)", "pass"),
    ("data = data.shuffle()\norder = torch.arange(80)", "pass"),
]


def _file(tmp_path: Path, before: str, inside: str) -> tuple[str, int]:
    text = LOOP.format(before=before, inside=inside)
    path = tmp_path / "train.py"
    path.write_text(text, encoding="utf-8")
    return str(path), text.splitlines().index("        train(rows[picked])") + 1


@pytest.mark.parametrize(("before", "inside"), ONCE)
def test_a_permutation_that_is_the_same_in_each_epoch_is_found(tmp_path: Path, before: str, inside: str) -> None:
    """It stands before the loop, or is drawn in it from a seed that is written there."""
    assert drawn_once(*_file(tmp_path, before, inside)) is not None


@pytest.mark.parametrize(("before", "inside"), ANEW)
def test_what_is_drawn_anew_or_is_no_order_of_the_training_is_none(tmp_path: Path, before: str, inside: str) -> None:
    """Nor is a split into training and validation, nor a permutation that the loop does not read."""
    assert drawn_once(*_file(tmp_path, before, inside)) is None


def test_the_loop_is_that_which_calls_the_function_of_the_line(tmp_path: Path) -> None:
    """Many scripts make a step in a function of its own."""
    path = tmp_path / "train.py"
    path.write_text(
        "def step(rows):\n"
        "    return model(rows)\n"
        "def main():\n"
        "    order = torch.randperm(80)\n"
        "    for epoch in range(5):\n"
        "        for picked in order.split(8):\n"
        "            step(rows[picked])\n",
        encoding="utf-8",
    )
    found = drawn_once(str(path), 2)

    assert found is not None
    assert found.number == 4
