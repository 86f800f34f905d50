"""A test that asks a property: what that returns tells which ranks it lets through."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpdoctor.source.reach.ranks import one_rank_only

SCRIPT = """
import functools
import torch.distributed as dist

class Saver:
    {kind}
    def is_writer(self):
        return {answer}

    def save(self, step):
        if step % 4 or not self.is_writer:
            return
        dist.barrier()  # here
{more}
"""


@pytest.mark.parametrize(
    ("kind", "answer", "more", "alone"),
    [
        ("@property", "dist.get_rank() == 0", "", True),
        ("@functools.cached_property", "not dist.get_rank()", "", True),
        ("@property", "self.rank == 0", "    def __init__(self):\n        self.rank = dist.get_rank()\n", True),
        ("@property", "self.folder is not None", "", False),
        ("@property", "dist.get_rank() >= 0", "", False),
        ("@property", "dist.get_rank() == 0", "class Other:\n    @property\n    def is_writer(self): ...", False),
        ("@property", "dist.get_rank() == 0", "Saver.is_writer = True", False),
    ],
)
def test_a_property_is_what_it_returns(tmp_path: Path, kind: str, answer: str, more: str, *, alone: bool) -> None:
    """Nothing where another class has one of the name, or somebody sets it."""
    text = SCRIPT.format(kind=kind, answer=answer, more=more)
    (path := tmp_path / "train.py").write_text(text)
    line = next(number for number, each in enumerate(text.splitlines(), 1) if "# here" in each)

    assert bool(one_rank_only(str(path), line)) is alone
