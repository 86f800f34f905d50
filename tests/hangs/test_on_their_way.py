"""Ranks that have not joined yet, and processes at work beside those that wait for them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ddpdoctor.watch.events import Doing, Position, Sibling, Site, Stalled
from ddpdoctor.watch.monitor.stands.siblings import on_their_way

AFTER = 30.0


def waits(seconds: float, operation: str = "init_process_group", *siblings: Sibling) -> Stalled:
    """Return that rank 0 of two waits."""
    rank = Position(
        rank=0, pid=1, doing=Doing.WAITING, seconds=seconds, site=None, operation=operation, stack=()
    )  # fmt: skip
    return Stalled(pid=0, time=0.0, ranks=(rank,), world_size=2, siblings=siblings)


@pytest.mark.parametrize(
    ("event", "comes"),
    [
        (waits(31, "init_process_group", Sibling(7, busy=True)), True),
        (waits(31, "init_process_group", Sibling(7, busy=False)), False),
        (waits(31, "init_process_group", Sibling(7, busy=True, launcher=True)), False),
        (waits(31, "init_process_group"), False),
        (waits(125, "init_process_group", Sibling(7, busy=True)), False),
        (waits(31, "all_reduce", Sibling(7, busy=True)), False),
    ],
)
def test_a_process_at_work_may_be_the_rank_that_is_missed(event: Stalled, *, comes: bool) -> None:
    """For a while; not where it stands still, is the launcher, or all have joined before."""
    assert on_their_way(event, AFTER) is comes


@pytest.mark.parametrize(("line", "comes"), [("import transformers", True), ("rows = tokenized(texts)", False)])
def test_a_rank_that_imports_is_on_its_way(tmp_path: Path, line: str, *, comes: bool) -> None:
    """One that works at something else is told of at once."""
    (path := tmp_path / "train.py").write_text(f"{line}\n")
    event = waits(31)
    other = replace(event.ranks[0], rank=1, doing=Doing.WORKING, operation="", site=Site(str(path), 1, "<module>"))

    assert on_their_way(replace(event, ranks=(*event.ranks, other)), AFTER) is comes
