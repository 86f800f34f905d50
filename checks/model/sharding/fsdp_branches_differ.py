"""The ranks go through different parts of a model that fully_shard has sharded, and compute with each other's weights.

## What happens

Before a sharded module computes, all ranks gather its weights, each giving its part. NCCL and gloo pair these calls by
their order alone. Where each rank's own batch, or its own random numbers, choose which part of the model is used (a
branch, an expert, a layer that is dropped), two ranks gather different modules at the same time. With parts of unequal
sizes that hangs or fails; with equal ones, as experts and layers are, nothing does: what a rank takes for its module is
made of its own part and the other rank's part of another one. In backward the gradients of the two modules are added
up in the same way. The training goes on, and computes something that no model is.

## How to be sure

Print, before each such choice, the step, the rank and what was chosen. ddpdoctor (`ddpdoctor run`) takes note of the
modules that each rank gathers, one after the other: here two ranks had gathered equally often in a group, and the next
gather was of different modules.

## How to mend it

Let the choice be the same on all ranks: rank 0 broadcasts it, or random numbers for it come from a generator with the
same seed everywhere. Where each rank must choose for itself, go through all parts each time, and multiply what was not
chosen by zero: then each part is gathered, and has a gradient, on all ranks.

## Versions and sources

Holds for fully_shard of torch 2.4 and later; seen with torch 2.13 CPU. Of FullyShardedDataParallel nothing
is said here: with TORCH_DISTRIBUTED_DEBUG=DETAIL it compares the order of the ranks itself, in its first step. Source:
torch's torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py, `foreach_all_gather`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Gathered, Gathers, Place, Severity, Training, watch

AILMENT = Ailment("DDP1527", Severity.ERROR)
SHOWN = 8  # ranks
MOST = 4096  # gathers of two rows that are compared, where their lengths differ


@watch(Gathers)
def while_training(event: Gathers, training: Training) -> Iterator[Finding]:
    """Look for a gather that is of another module on another rank, among what this event tells of."""
    told = [each for each in training.of(Gathers, group=event.group, ranks=event.ranks) if each.models == event.models]
    last = {each.rank: each.pid for each in told}  # not of an earlier attempt
    by_rank = {rank: [each for each in told if each.rank == rank and each.pid == last[rank]] for rank in event.ranks}
    if event.rank not in by_rank or _apart({rank: [e for e in es if e is not event] for rank, es in by_rank.items()}):
        return
    if apart := _apart(by_rank):
        yield _finding(apart, by_rank)


class Stretch(NamedTuple):
    """Gathers of a rank from number ``first`` up to ``end``: one row, again and again; ``in_each`` step once."""

    event: Gathers
    first: int
    end: int
    in_each: bool = True

    def at(self, number: int) -> Gathered:
        """Return the module of this gather."""
        return self.event.modules[self.event.row[self.place(number)]]

    def place(self, number: int) -> int:
        """Return how many gathers of the same step came before this one."""
        return (number - self.first) % len(self.event.row)


class Apart(NamedTuple):
    """A gather, by its number in the group from 0, that is of different modules."""

    number: int
    ours: Stretch
    theirs: Stretch


def _stretches(events: list[Gathers]) -> list[Stretch]:
    inner = [_between(each, following) for each, following in pairwise(events)]
    return [*inner, *(Stretch(each, each.before, each.before + len(each.row)) for each in events[-1:])]


def _between(told: Gathers, following: Gathers) -> Stretch:
    in_each = following.before - told.before == (following.step - told.step) * len(told.row)
    return Stretch(told, told.before, following.before, in_each)


def _apart(by_rank: dict[int, list[Gathers]]) -> Apart | None:
    """Return the first gather that two ranks differ in: of the first rank and any other one."""
    first, *others = (_stretches(events) for events in by_rank.values())
    found = [apart for each in others if (apart := _first(first, each))]
    return min(found, key=lambda each: each.number, default=None)


def _first(ours: list[Stretch], theirs: list[Stretch]) -> Apart | None:
    mine, others = iter(ours), iter(theirs)
    one, two = next(mine, None), next(others, None)
    while one is not None and two is not None:
        start, end = max(one.first, two.first), min(one.end, two.end)
        again = min(math.lcm(len(one.event.row), len(two.event.row)), MOST)
        for number in range(start, min(end, start + again)):
            if _differ(one, two, number):
                return Apart(number, one, two)
        if one.end <= two.end:
            one = next(mine, None)
        else:
            two = next(others, None)
    return None


def _differ(one: Stretch, two: Stretch, number: int) -> bool:
    """Whether two ranks whose steps began with the same gather know the modules of this one, and they differ."""
    a, b = one.at(number).module, two.at(number).module
    return a != b and bool(a and b) and one.place(number) == two.place(number)


def _finding(apart: Apart, by_rank: dict[int, list[Gathers]]) -> Finding:
    ours, theirs = apart.ours.at(apart.number), apart.theirs.at(apart.number)
    one, two = apart.ours.event.rank, apart.theirs.event.rank
    known = {
        rank: (each, each.at(apart.number))
        for rank, events in by_rank.items()
        for each in _stretches(events)
        if each.first <= apart.number < each.end
    }
    return Finding(
        f"rank {one} gathers the weights of {ours.module} while rank {two} gathers those of {theirs.module}: each "
        "computes with parts of both, taken for one module",
        tuple(
            Evidence(
                f"gather {each.place(apart.number) + 1} {_when(each, apart.number)} is of {module.module}",
                "the same module on all ranks",
                f"rank {rank}" + (f", {module.file}:{module.line}" if module.file else ""),
            )
            for rank, (each, module) in list(known.items())[:SHOWN]
        ),
        FIX,
        Place(file=ours.file, line=ours.line or None, rank=one),
    )


def _when(stretch: Stretch, number: int) -> str:
    rows = (number - stretch.first) // len(stretch.event.row)
    step = stretch.event.step
    return f"of step {step + rows}" if stretch.in_each or not rows else f"of a step from {step} on"


FIX = Fix(
    "make the choice alike on all ranks, or go through all parts on each of them",
    diff="+choice = torch.tensor(int(use_one), device=h.device)\n+dist.broadcast(choice, src=0)\n"
    "-h = self.one(h) if use_one else self.two(h)\n+h = self.one(h) if choice else self.two(h)\n"
    "or\n+one, two = self.one(h), self.two(h)\n+h = one + 0.0 * two if use_one else two + 0.0 * one",
)
