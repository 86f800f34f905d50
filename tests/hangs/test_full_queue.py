"""A queue that is read only once its processes have been waited for: the line that waits, and those that fill it."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import CHECKS

from ddpdoctor.watch.dispatcher import Dispatcher
from ddpdoctor.watch.events import Joining, KeptAtEnd, Site

SCRIPT = """
import multiprocessing
import torch.multiprocessing as mp

def work(rank, results):
    dist.init_process_group("gloo")  # joins
    results.put(predictions)  # fills

def main():
    results = {queue}
    {waits}  # waits
    everything = [results.get() for _ in range(2)]

main()
"""
QUEUE = 'mp.get_context("spawn").Queue()'


@pytest.mark.parametrize(
    ("queue", "waits", "named"),
    [
        (QUEUE, "mp.spawn(work, (results,), nprocs=2)", True),
        ("multiprocessing.Queue()", "for each in processes: each.join()", True),
        (QUEUE, "context = mp.spawn(work, (results,), nprocs=2, join=False)", False),
        ("Results()", "mp.spawn(work, (results,), nprocs=2)", False),
    ],
)
def test_the_line_that_waits_is_named(tmp_path: Path, queue: str, waits: str, *, named: bool) -> None:
    """In the file in which the rank has joined its group; elsewhere no line is known."""
    text = SCRIPT.format(queue=queue, waits=waits)
    (path := tmp_path / "train.py").write_text(text)
    lines = {each.partition("# ")[2]: number for number, each in enumerate(text.splitlines(), 1)}
    judge = Dispatcher(CHECKS)
    site = Site(str(path), lines["joins"], "work")
    list(judge.see(Joining(pid=7, time=0.1, rank=1, world_size=2, backend="gloo", site=site)))

    [found] = judge.see(KeptAtEnd(pid=7, time=9.0, rank=1, site=None, threads=1, joined="", seconds=9.0, feeds=True))

    assert found.check.slug == "thread-keeps-rank"
    assert found.finding.place.line == (lines["waits"] if named else None)
    assert (f"train.py:{lines['waits']} waits for them" in found.finding.message) is named
