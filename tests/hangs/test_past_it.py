"""A rank that gloo has ended in a call of a step, and another one in its backward, which has left the call out."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import CHECKS

from ddpdoctor.watch.dispatcher import Dispatcher
from ddpdoctor.watch.events import Communication, Failed, Joined, PeerLost, Progress, Site

LOST = "RuntimeError: [pair.cc:537] Read error [127.0.0.1]:39847: Connection reset by peer."
SCRIPT = """
def weigh(scores, labels):
{inside}
    return scores.sum() / count

def main():
    for inputs, labels in loader:
{body}
        loss.backward()  # backward
"""
PLAIN = "    count = labels.sum()\n    dist.all_reduce(count)  # call"
RETURN = f"    if not labels.any():\n        return scores.sum() * 0\n{PLAIN}"
CAUGHT = (
    "    try:\n        count = torch.tensor(1 / len(labels))\n        dist.all_reduce(count)  # call\n"
    "    except Exception:\n        return scores.sum()"
)
STEP = "        loss = weigh(model(inputs), labels)"
CASES = {
    "an early return": (RETURN, STEP, "ranks-diverge", "labels.any()"),
    "an error that a handler hides": (
        CAUGHT,
        STEP,
        "ranks-diverge",
        "`except Exception` at line 6 goes on after an error",
    ),
    "what is made of it goes on": (RETURN, f"{STEP}\n        loss = loss / 2", "ranks-diverge", "labels.any()"),
    "the call is of the step after": (
        RETURN,
        "        weigh(inputs, labels)\n        loss = model(inputs)",
        "died",
        "",
    ),
    "the forward lies between": (
        RETURN,
        "        seen = weigh(inputs, labels)\n        loss = model(seen)",
        "died",
        "",
    ),
}


@pytest.mark.parametrize(
    ("inside", "body", "slug", "said"), [pytest.param(*each, id=name) for name, each in CASES.items()]
)
def test_who_is_past_the_call_has_left_it_out(tmp_path: Path, inside: str, body: str, slug: str, said: str) -> None:
    """As far as the backward goes through what the line with the call gives; else it can be a step later."""
    (path := tmp_path / "train.py").write_text(SCRIPT.format(inside=inside, body=body))
    lines = path.read_text().splitlines()
    at = {word: next(n for n, each in enumerate(lines, 1) if f"# {word}" in each) for word in ("call", "backward")}
    call, going = Site(str(path), at["call"], "weigh"), Site(str(path), at["backward"], "main")
    judge = Dispatcher(CHECKS)
    for rank in (0, 1):
        list(judge.see(Joined(pid=rank + 1, time=0.1, rank=rank, world_size=2, backend="gloo")))
    before = [Communication(number, 1.0 + number, "all_reduce", "0", "[1]", call) for number in (1, 2, 3)]
    progress = (
        Progress(rank=0, forwards=3, recent=tuple(before)),
        Progress(rank=1, forwards=3, recent=tuple(before[:2])),
    )
    lost = Failed(pid=2, time=9.0, rank=1, error="RuntimeError", text=LOST, site=going)
    event = PeerLost(
        pid=0, time=9.5, first=None, others=(lost,), gone=(0,), ended=(), progress=progress, stack=(going,)
    )

    [found] = judge.see(event)

    assert slug in found.check.slug
    assert said in found.finding.message + " ".join(each.seen for each in found.finding.evidence)
    assert ("has left that out, and was past it" in found.finding.message) is (slug == "ranks-diverge")
