"""What is advised where a batch decides who makes a call: in the words of the script, and so that all ranks agree."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import CHECKS

from ddpdoctor.watch.dispatcher import Dispatcher
from ddpdoctor.watch.events import Communication, Doing, Position, Site, Stalled

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
