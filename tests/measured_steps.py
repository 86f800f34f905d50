"""Figures of steps that were measured closely, as the ranks would have told them; and what the checks make of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from helpers import CHECKS

from ddpdoctor.watch.dispatcher import Dispatcher
from ddpdoctor.watch.events import (
    CallsTimed,
    EpochStarted,
    Joined,
    LinesSampled,
    Profiled,
    RankSteps,
    SampledLine,
    Site,
    StepsTimed,
    TimedCall,
)
from ddpdoctor.watch.events.steps.blocks import STEPS, Block

if TYPE_CHECKING:
    from ddpdoctor.findings import Finding

MS = 1_000_000
FILE = "/home/me/train.py"
FAST = {"total": 30.0, "data": 1.0, "forward": 8.0, "backward": 18.0, "optimizer": 2.0}


def line(number: int, kind: str, clock: float, *, steps: int = 50, waited: float = 0.0, **at: Any) -> SampledLine:
    """Return a line of the loop that has so many milliseconds of 1,000, of which it waited for a core so many."""
    file, inner, helper = at.get("inner", (FILE, number, "main"))
    processor = int((clock - waited) * MS * at.get("computes", 1.0))
    return SampledLine(
        kind, FILE, number, at.get("function", "main"), int(clock * MS), processor, steps, file, inner, helper,
        int(clock * MS), int(waited * MS),
    )  # fmt: skip


def seen(
    *ranks: tuple[SampledLine, ...], calls: tuple[TimedCall, ...] = (), workers: int = 0, **facts: Any
) -> list[tuple[str, Finding]]:
    """Return what is found where these are the lines of each rank, in 50 steps of 20 ms."""
    parts, file = facts.pop("parts", (FAST,) * len(ranks)), facts.pop("file", FILE)
    passes, persistent = facts.pop("passes", 1), facts.pop("persistent", False)
    profile, worked = facts.pop("profile", {}), facts.pop("each_step", ((),) * len(ranks))
    dispatcher = Dispatcher(CHECKS)
    for number, lines in enumerate(ranks):
        told: dict[str, Any] = {"pid": 100 + number, "time": 1.0, "rank": number}
        list(dispatcher.see(Joined(**told, world_size=len(ranks), backend="gloo")))
        passed: dict[str, Any] = {
            "loader": 0, "training": True, "dataset": "D", "length": 100, "batches": 50, "batch_size": 1,
            "drop_last": False, "workers": workers, "iterable": False, "sampler": None, "given": 0,
            "owning_library": "", "subgroups": False, "persistent": persistent, "site": Site(file, 1, "main"),
        }  # fmt: skip
        for at in range(passes):
            list(dispatcher.see(EpochStarted(**told, **passed, number=at)))
        measured: dict[str, Any] = {
            "exposed": (0,), "hidden": (0,), "buckets": (), "cost": 0.0, "model": 0, "forwards": 1.0, "synced": 1.0,
            "backwards": 1.0, **profile,
        }  # fmt: skip
        measured.setdefault("worked", tuple(int(each * MS) for each in worked[number]))
        list(dispatcher.see(Profiled(**told, total=(20 * MS,) * 50, **measured)))
        waited = sum(each.waited for each in lines)
        whole: dict[str, Any] = {"steps": 50, "nanoseconds": 1000 * MS, "processor": 1000 * MS - waited}
        list(dispatcher.see(LinesSampled(**told, **whole, waited=waited, sampled=lines)))
        if calls:
            list(dispatcher.see(CallsTimed(**told, steps=50, calls=calls)))
    own = {"device": "cpu", "threads": 1, "cpus": 4, **facts}
    ends = [RankSteps(at, 1, spans(each) if isinstance(each, dict) else each, **own) for at, each in enumerate(parts)]
    event = StepsTimed(pid=0, time=2.0, ranks=tuple(ends))
    found = [(each.check.slug, each.finding) for each in dispatcher.see_of(next(iter(dispatcher.trainings)), event)]
    assert not dispatcher.crashes
    return found


def spans(parts: dict[str, float]) -> tuple[Block, ...]:
    """Return spans that are all alike, of steps whose parts take so many milliseconds."""
    scaled = {name: int(value * STEPS * MS) for name, value in parts.items()}
    zero = dict.fromkeys(("data", "first", "forward", "backward", "optimizer"), 0)
    return tuple(Block(number=at, end=at * 1_000 * MS, **{**zero, **scaled}) for at in range(20))


TRAINS = line(20, "backward", 400), line(19, "forward", 150)
