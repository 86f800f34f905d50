"""A rank that has ended without a call in which another one waited for it: the one test that decides is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import CHECKS

from ddpdoctor.watch.dispatcher import Dispatcher
from ddpdoctor.watch.events import Communication, Failed, Joined, Left, PeerLost, Progress, Site

LOST = "RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:5805"
SCRIPT = """
def main():
    mine = FILES[dist.get_rank()::dist.get_world_size()]
{body}
    dist.all_reduce(total)  # here

main()
"""
RETURN = "    if not mine:\n        return\n    total = infer(mine)"
CASES = {
    "an early return": (RETURN, "reached only where `not mine` is false"),
    "two tests": (f"{RETURN}\n    if total is None:\n        return", ""),
    "none": ("    total = infer(mine)", ""),
}


@pytest.mark.parametrize(("body", "said"), [pytest.param(*each, id=name) for name, each in CASES.items()])
def test_the_test_before_the_call(tmp_path: Path, body: str, said: str) -> None:
    """Where exactly one decides who comes to it, and ranks can answer otherwise."""
    (path := tmp_path / "train.py").write_text(SCRIPT.format(body=body))
    lines = path.read_text().splitlines()
    at = next(number for number, each in enumerate(lines, 1) if "# here" in each)
    site, below = Site(str(path), at, "main"), Site(str(path), len(lines), "<module>")
    judge = Dispatcher(CHECKS)
    for rank in (0, 1):
        list(judge.see(Joined(pid=rank + 1, time=0.1, rank=rank, world_size=2, backend="gloo")))
    list(judge.see(Left(pid=2, time=1.0, rank=1, models=0, ended=True)))
    lost = Failed(pid=1, time=2.0, rank=0, error="RuntimeError", text=LOST, site=site)
    call = Communication(1, 1.0, "all_reduce", "0", "[3]", site)
    progress = (Progress(rank=0, forwards=0, recent=(call,)), Progress(rank=1, forwards=0, recent=()))
    event = PeerLost(
        pid=0, time=3.0, first=None, others=(lost,), gone=(), ended=(1,), progress=progress, stack=(site, below)
    )

    [found] = judge.see(event)

    assert found.check.slug == "rank-left-early"
    assert ("reached only" in found.finding.message) is bool(said)
    assert said in found.finding.message
