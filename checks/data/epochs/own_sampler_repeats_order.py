"""What the script draws its order with, a sampler of its own or a line, draws the same one in every epoch.

## What happens

A sampler, or batch sampler, that the script defines seeds its generator with a number that never changes, so that all
ranks draw one order and each takes its part. Drawn anew in each epoch from the same seed, it is the same order: each
epoch has the same batches, on the same ranks, in the same places. Nothing fails, and the shuffle has no effect after
the first epoch. Where no loader gives the samples, the same comes of a permutation that is drawn once, before the loop
over epochs, or in it from one seed.

## How to be sure

ddpdoctor compares the orders of epochs that train: here two complete ones had the same, which is neither ascending nor
descending, and `__iter__` of the sampler's class makes or seeds a generator. Of rows that no loader gives it compares
checksums, over two epochs or more, and reads where the script draws a permutation; of an iterable data set without
workers, the shuffled list that its `__iter__` goes by, and what it reads, in three passes. Print the first indices of
each epoch.

## How to mend it

Seed with the epoch, and tell the sampler the epoch, as DistributedSampler does:

    generator = torch.Generator().manual_seed(self.seed + self.epoch)  # in __iter__
    sampler.epoch = epoch  # first in the loop over epochs

Silent where set_epoch was called with another number (set-epoch-ignored looks at that), and where the class is defined
in another file than the loop.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: torch/utils/data/distributed.py.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Fix,
    OrderSeen,
    Place,
    RowsGiven,
    Severity,
    StreamSeen,
    Training,
    last_name,
    place,
    tree_of,
    watch,
)

from ..._evaluation.evaluations import shares_gradients
from .._lines import epoch_loop
from .._passes import repeated
from .._streams import alike, passes, shuffled_at
from .._words import shown
from ._permutations import drawn_once

AILMENT = Ailment("DDP644", Severity.WARNING)
FEWEST = 32  # rows of an epoch
PASSES, LAST = 3, 2
FORWARDS = 4  # of an epoch: all samples at once have no order
SEEDED = Fix(
    "seed with the epoch, and tell the sampler the epoch",
    diff="-generator = torch.Generator().manual_seed(self.seed)\n"
    "+generator = torch.Generator().manual_seed(self.seed + self.epoch)\n"
    " for epoch in range(epochs):\n+    sampler.epoch = epoch",
)
SEEDS = {"manual_seed", "Random", "RandomState", "default_rng", "seed", "SeedSequence"}


@watch(OrderSeen)
def while_training(event: OrderSeen, training: Training) -> Iterator[Finding]:
    """Compare the order of an epoch with that of the epoch before, of a sampler that the script defines."""
    last, this = repeated(event, training) or (None, None)
    if this is None or last is None or this.sampler is None or last.sampler is None or event.site is None:
        return
    epochs = last.sampler.epoch, this.sampler.epoch
    told = None not in epochs and epochs[0] != epochs[1]
    numbers = list(event.indices)
    if (told and this.sampler.claims_to_shuffle) or numbers in (sorted(numbers), sorted(numbers, reverse=True)):
        return  # of one that is told the epoch, and claims to shuffle, another check speaks
    line = _seeded(event.site.file, this.sampler.kind)
    if line is None or (told and _says_epoch(event.site.file, line)):
        return
    knows_epoch = _says_epoch(event.site.file, line) and epoch_loop(this.started) is not None
    yield Finding(
        f"every epoch has the same order: {this.sampler.kind} draws it from the same seed",
        (
            Evidence(f"passes {last.order.number} and {event.number} both begin {shown(event.indices)}", "two orders",
                     f"rank {event.rank}"),
            Evidence("its generator is seeded anew in each pass", "a seed that holds the epoch",
                     f"{event.site.file}:{line}"),
        ),
        _told(event.site.file, this.sampler.kind) if knows_epoch else SEEDED,
        place(epoch_loop(this.started)) if knows_epoch else Place(file=event.site.file, line=line),
    )  # fmt: skip


@watch(RowsGiven)
def by_hand(event: RowsGiven, training: Training) -> Iterator[Finding]:
    """Look for rows that come again in the order in which they came, where a line of the script has permuted them."""
    ranks = training.complete(RowsGiven, number=event.number)
    periods = {_period(each) for each in ranks.values()}
    if event.site is None or len(periods) != 1 or not (period := periods.pop()):
        return
    said = any(_period(each) for each in training.before(event) if each.number < event.number)
    line = None if said else drawn_once(event.site.file, event.site.line)
    if line is None or not all(shares_gradients(each.pid, training) for each in ranks.values()):
        return
    epochs = len(event.rows) // period
    yield Finding(
        f"every epoch has the same order: {line.call} is drawn {line.how}",
        (
            Evidence(f"the {period} rows of the first epoch came {epochs} times, in one order",
                     "another order each time", f"all ranks, the first {event.number} steps"),
            Evidence(line.call, "drawn anew in each epoch", f"{event.site.file}:{line.number}"),
        ),
        Fix(
            "draw the order in the loop over epochs, with a seed that holds the epoch and is the same on all ranks",
            diff=" for epoch in range(epochs):\n"
            "+    order = torch.randperm(n, generator=torch.Generator().manual_seed(epoch))\n"
            "+    mine = order[dist.get_rank() :: dist.get_world_size()]",
        ),
        Place(file=event.site.file, line=line.number),
    )  # fmt: skip


@watch(StreamSeen)
def of_a_stream(event: StreamSeen, training: Training) -> Iterator[Finding]:
    """Look for an iterable data set that goes by one shuffled order in each pass, and so gives the same samples."""
    told = passes(event, training)
    if event.batch != LAST or len(told) != PASSES or event.site is None or event not in told[-1]:
        return
    orders = [{(name, digest) for name, digest, *_ in each[0].orders} for each in told]
    same = sorted(name for name, _ in set.intersection(*orders))
    read = [[each.held for each in batches[:LAST]] for batches in told]
    line = next((found for name in same if (found := shuffled_at(event.site, name))), None)
    if line is None or not all(alike(batches) for batches in zip(*read, strict=True)):
        return
    yield Finding(
        f"every epoch has the same order: {event.site.function} draws {same[0]} from the same seed each time",
        (
            Evidence(f"{same[0]} is in one order in {PASSES} passes, and the first samples are the same",
                     "another order each time", f"rank {event.rank}"),
        ),
        Fix(
            "seed with the epoch, and tell the data set the epoch",
            diff="-random.Random(self.seed).shuffle(order)\n+random.Random(self.seed + self.epoch).shuffle(order)\n"
            " for epoch in range(epochs):\n+    data.epoch = epoch",
        ),
        place(line),
    )  # fmt: skip


def _period(event: RowsGiven) -> int:
    """Return after how many rows, of several forwards, all come again in the same order; 0 where they do not."""
    rows = event.rows
    found = next((at for at in range(FEWEST, len(rows) // 2 + 1) if rows[at:] == rows[:-at]), 0)
    several = found * event.forwards >= FORWARDS * len(rows)
    differ = 2 * len(set(rows[:found])) > found
    return found if several and differ else 0


def _says_epoch(file: str, line: int) -> bool:
    """Whether what seeds a generator at a line holds an epoch."""
    calls = [each for each in tree_of(file).of(ast.Call) if each.lineno == line and last_name(each.func) in SEEDS]
    return any("epoch" in ast.unparse(given) for each in calls for given in each.args)


def _seeded(file: str, kind: str) -> int | None:
    """Return the line of ``__iter__`` of a class, or of a method that this one calls, that seeds a generator."""
    for node in tree_of(file).of(ast.ClassDef):
        if node.name == kind:
            methods = {each.name: each for each in node.body if isinstance(each, ast.FunctionDef)}
            within = _calls(methods.get("__iter__"))
            own = {ast.unparse(each.func).removeprefix("self.") for each in within}
            calls = within + [each for name, method in methods.items() if name in own for each in _calls(method)]
            return next((each.lineno for each in calls if last_name(each.func) in SEEDS), None)
    return None


def _told(file: str, kind: str) -> Fix:
    """Return how a sampler that has the epoch in its seed is told it."""
    methods = [node.name for each in tree_of(file).of(ast.ClassDef) if each.name == kind
               for node in each.body if isinstance(node, ast.FunctionDef)]  # fmt: skip
    how = "sampler.set_epoch(epoch)" if "set_epoch" in methods else "sampler.epoch = epoch"
    return Fix("tell the sampler the epoch", diff=f" for epoch in range(epochs):\n+    {how}")


def _calls(method: ast.FunctionDef | None) -> list[ast.Call]:
    return [each for each in ast.walk(method) if isinstance(each, ast.Call)] if method else []
