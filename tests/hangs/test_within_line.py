"""A test within the line of a call: what all calls of the line stand behind decides whether it is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpdoctor.source.reach.data import batch_condition
from ddpdoctor.source.reach.reached import decided_at, tests_around as around


@pytest.mark.parametrize(
    ("line", "tests"),
    [
        ("shift = reduce(x) if random.random() < 0.5 else 0.0", ["random.random() < 0.5"]),
        ("shift = 0.0 if left > 0 else reduce(x)", ["not left > 0"]),
        ("return left <= 0 and accelerator.check_trigger()", ["left <= 0"]),
        ("stop = loss.item() > best or agreed(x)", ["not loss.item() > best"]),
        ("first = reduce(x) if left else gather(x)", []),
        ("shift = scaled(x) if agreed(x) else 0.0", []),
        ("shift = reduce(x)", []),
    ],
)
def test_of_a_line_that_alone_decides(tmp_path: Path, line: str, tests: list[str]) -> None:
    """None where another branch has a call, or the test itself calls what all ranks may meet in."""
    (path := tmp_path / "train.py").write_text(f"def step(x, left, best, loss, accelerator):\n    {line}\n")

    assert around(str(path), 2) == tests


def test_the_head_of_a_block_has_tests_as_well(tmp_path: Path) -> None:
    """What stands in the block is decided by the whole head, what stands in the head by a part of it."""
    (path := tmp_path / "train.py").write_text(
        "def step(left, accelerator):\n    if left <= 0 and accelerator.check_trigger():\n        reduce(left)\n"
    )

    assert around(str(path), 2) == ["left <= 0"]
    assert around(str(path), 3) == ["left <= 0 and accelerator.check_trigger()"]
    assert len(decided_at(str(path), 2)) == 1


def test_a_batch_decides_within_a_line(tmp_path: Path) -> None:
    """As it does around one."""
    (path := tmp_path / "train.py").write_text(
        "for batch in DataLoader(data):\n    total = reduce(batch) if batch.max() > 1 else 0.0\n"
    )

    assert "batch.max() > 1" in batch_condition(str(path), 2)
