"""What is advised where a batch decides who makes a call: in the words of the script, and so that all ranks agree."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import CHECKS

from ddpdoctor.source.reach.data import batch_condition
from ddpdoctor.watch.dispatcher import Dispatcher
from ddpdoctor.watch.events import Communication, Doing, Failed, PeerLost, Position, Progress, Site, Stalled

HEAD = "for x, y in loader:\n    loss = criterion(model(x), y)\n"
SKIPPED = "+flag = torch.tensor(float({}), device=device)"
CASES = {
    "a step is skipped": (
        "    if loss.isnan():\n        continue\n    loss.backward()\n",
        "backward",
        (SKIPPED.format("loss.isnan()"), "-if loss.isnan():", "+if flag > 0:", "     continue"),
    ),
    "a backward stands in a branch": (
        "    if loss.isfinite():\n        loss.backward()\n",
        "backward",
        (SKIPPED.format("not loss.isfinite()"), "-if loss.isfinite():", "+if not flag > 0:", "     loss.backward()"),
    ),
    "the other branch leaves": (
        "    if loss.isfinite():\n        good += 1\n    else:\n        break\n    loss.backward()\n",
        "backward",
        (SKIPPED.format("not loss.isfinite()"), "-else:", "+if flag > 0:", "     break"),
    ),
    "a gather is left out by continue": (
        "    if not y.any():\n        continue\n    dist.all_gather(found, y)\n",
        "all_gather",
        (SKIPPED.format("y.any()"), "-if not y.any(): continue", "+if not flag > 0: continue"),
    ),
    "a gather stands in a branch": (
        "    if y.any():\n        dist.all_gather(found, y)\n",
        "all_gather",
        (SKIPPED.format("y.any()"), "-if y.any():", "+if flag > 0:", "     dist.all_gather(...)"),
    ),
}


@pytest.mark.parametrize(
    ("body", "operation", "wanted"), [pytest.param(*each, id=name) for name, each in CASES.items()]
)
def test_the_fix_leaves_as_the_script_does(tmp_path: Path, body: str, operation: str, wanted: tuple[str, ...]) -> None:
    """By its own continue, return or break, and with the flag that says the same as the test."""
    (path := tmp_path / "train.py").write_text(HEAD + body)
    text = path.read_text().splitlines()
    line = next(number for number, each in enumerate(text, 1) if "backward(" in each or "all_gather(" in each)
    site = Site(str(path), line, "<module>")
    called = () if operation == "backward" else (Communication(7, 7.0, operation, "0", "[1]", site),)
    one, other = _waits(0, operation, site, 4, called), _waits(1, "broadcast", Site(str(path), 2, "<module>"), 5)

    [found] = Dispatcher(CHECKS).see(Stalled(pid=0, time=2.0, ranks=(one, other), world_size=2))

    assert found.check.slug == "collective-behind-own-batch"
    assert found.finding.fix is not None
    assert [each for each in wanted if each not in found.finding.fix.diff.splitlines()] == []


def _waits(rank: int, operation: str, site: Site, forwards: int, recent: tuple[Communication, ...] = ()) -> Position:
    return Position(
        rank=rank, pid=rank + 1, doing=Doing.WAITING, seconds=9, site=site, operation=operation, stack=(site,),
        forwards=forwards, recent=recent,
    )  # fmt: skip


@pytest.mark.parametrize(("further", "found"), [(6, True), (5, False), (4, False)])
def test_a_rank_is_lost_in_a_backward_that_its_batch_decides(tmp_path: Path, further: int, *, found: bool) -> None:
    """Where the one that is gone had begun a forward more: gloo ended it, as its next collective met this one."""
    (path := tmp_path / "train.py").write_text(f"{HEAD}    if loss.item() < 0.7:\n        loss.backward()\n")
    site = Site(str(path), 4, "<module>")
    lost = Failed(
        pid=1, time=1.0, rank=0, error="RuntimeError", text="RuntimeError: Connection reset by peer", site=site
    )
    progress = (Progress(rank=0, forwards=5, recent=()), Progress(rank=1, forwards=further, recent=()))
    event = PeerLost(pid=0, time=2.0, first=None, others=(lost,), gone=(1,), progress=progress, stack=(site,))

    said = [(each.check.slug, each.finding.place.line) for each in Dispatcher(CHECKS).see(event)]

    assert (("collective-behind-own-batch", 4) in said) is found


@pytest.mark.parametrize(
    ("batch", "test", "decided"),
    [
        ("torch.randn(8, 4) * (1 + rank)", "loss.item() < 0.7", True),
        ("data[rank::world]", "loss.item() < 0.7", False),
        ("torch.randn(8, 4)", "rank == 0 and loss.item() < 0.7", False),
        ("torch.randn(8, 4)", "step > torch.rand(1)", False),
        ("torch.ones(8, 4)", "step % 2", False),
    ],
)
def test_of_a_batch_that_is_drawn(tmp_path: Path, batch: str, test: str, *, decided: bool) -> None:
    """What is made of it can be another on each rank; a condition on the rank is no such test."""
    lines = ("for step in range(9):", f"    real = {batch}", "    loss = bce(net(real))", f"    if {test}:")
    text = "\n".join((*lines, "        loss.backward()\n"))
    (path := tmp_path / "train.py").write_text(text)

    assert bool(batch_condition(str(path), 5)) is decided
