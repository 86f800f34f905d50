"""Something that no optimizer trains, and that the training computes with, is not the same on all ranks.

## What happens

A training computes with more than what it trains: a frozen teacher, the fixed random network of an exploration bonus,
the class weights of a criterion, running means that a fine-tuning keeps, masks of pruned weights. DDP gives rank 0's
weights and buffers to all when it wraps a model, and does so with that model alone. What each rank draws at random
under a seed of its own, or computes from its own share of the data, stays different: every rank minimises another
loss, and the weights, which stay equal, are trained for none of them.

## How to be sure

ddpdoctor compares what is called between steps and held by no optimizer: parameters and buffers that have not changed
over three compared steps and are different on the ranks. A copy that follows the trained model on all ranks, as a
moving average does, and was another one on each rank at first, is one too: what lies between two ranks' copies only
shrinks, in all its numbers alike.

## How to mend it

Give rank 0's to all before the first step; compute statistics from the data of all ranks.

Silent where ranks do not train one model, where they send to each other within the model (pipelines, experts), where
code was compiled, and of what each rank computes with that is a plain attribute: whether a rank has to have the same
there, nothing tells.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, "Distributed Data Parallel",
internal design: the constructor broadcasts the state of the module that it is given.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Fix,
    Place,
    Severity,
    Site,
    StepFingerprinted,
    Training,
    Wrapped,
    watch,
)

from ..._ledgers.ledger import have_parted, sheet
from ..._ledgers.sheets import Print, multiple_of
from .._copied import after_wrapping
from .._words import counted, listed
from ._used import Module, Seen, modules

AILMENT = Ailment("DDP1520", Severity.ERROR)
SURE = 3  # steps
FEWEST = 2  # parameters of a copy that follows the trained model
FEW = 16  # numbers: of so few, any two can be multiples of each other
ALIKE = 0.02


@watch(StepFingerprinted)
def while_training(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    """Look for tensors that stay as they are on each rank, and are others on another."""
    step = sheet(event, training)
    if step is not None and have_parted(step):
        return  # what is copied from the trained weights differs as they do
    for module in modules(event, training, SURE):
        if not _found(_before(module)) and (names := _found(module)):
            copied = names[0].is_parameter and not _stays(names[0], SURE)
            wrapped = training.of(Wrapped, pid=event.pid) if copied else []
            yield _finding(module, names, event, before=wrapped[-1].site if wrapped else None)


def _before(module: Module) -> Module:
    """Return what was known at the compared step before."""
    tensors = (Seen(each.name, each.is_parameter, each.prints[:-1]) for each in module.tensors)
    return Module(module.used, tuple(each for each in tensors if len(each.prints) >= SURE))


def _found(module: Module) -> list[Seen]:
    """Return the tensors that are not the same on all ranks, and stay as they are, or only come nearer."""
    differ = [each for each in module.tensors if each.differs]
    return [each for each in differ if _stays(each, SURE)] or _followers(module, differ)


def _followers(module: Module, differ: list[Seen]) -> list[Seen]:
    """Return the parameters that differ, if all of them come nearer by one factor between each two steps."""
    ours = [each for each in differ if each.is_parameter]
    sizes = dict(zip(module.used.names, module.used.sizes, strict=True))
    factors = [known for each in ours if (known := _factors(each))]
    if len(factors) < max(len(ours), FEWEST) or max(sizes[each.name] for each in ours) <= FEW:
        return []
    alike = all(max(column) - min(column) <= ALIKE * max(column) for column in zip(*factors, strict=True))
    return ours if alike else []


def _factors(each: Seen) -> list[float]:
    """Return by which factors what lies between the ranks has shrunk; none where it did something else."""
    found = []
    rows = each.prints[-SURE:]
    for before, after in itertools.pairwise(rows):
        for rank in range(1, len(before)):
            factor = multiple_of(_between(after, rank), _between(before, rank), ALIKE)
            if factor is None or factor >= 1 or before[rank] == after[rank] or before[0] == after[0]:
                return []
            found.append(factor)
    return found


def _between(row: tuple[Print | None, ...], rank: int) -> Print | None:
    """Return what lies between the first rank's and another's, as a print whose norm is not known."""
    one, other = row[0], row[rank]
    if one is None or other is None:
        return None
    return (*(b - a for a, b in zip(one[:-1], other[:-1], strict=True)), 0.0)


def _stays(each: Seen, steps: int) -> bool:
    last = each.prints[-steps:]
    return all(row == last[0] for row in last)


def _finding(module: Module, found: list[Seen], event: StepFingerprinted, *, before: Site | None) -> Finding:
    used, names = module.used, [each.name for each in found]
    held = f"{used.variable}, a {used.kind}," if used.variable else f"{used.kind},"
    values = [each for each in found[0].prints[-1] if each]
    told = ", ".join(f"{each[0]:.4g} on rank {rank}" for rank, each in enumerate(values[:8]))
    what = counted(len(names), "parameter" if found[0].is_parameter else "buffer")
    how = "did not change" if _stays(found[0], SURE) else "come nearer by one factor"
    return Finding(
        f"{held} which the training calls and does not train, is not the same on all ranks: {listed(names, 4)}",
        (
            Evidence(f"a projection of {names[0]}: {told}", "the same on all ranks", f"before step {event.number}"),
            Evidence(f"{what} of {used.kind} differ, and {how} since {SURE - 1} compared steps", "", "all ranks"),
            *([Evidence("a copy of weights that were another rank's own: it stands before DDP, which gives all ranks "
                        "those of rank 0", "copied after that", str(before))] if before else []),
        ),
        (after_wrapping(used.variable, before) if before else None)
        or Fix(
            "give rank 0's to all before the first step; compute statistics from the data of all ranks",
            diff=f"+for tensor in {used.variable or 'module'}.state_dict().values():  # or seed all ranks alike before "
            "it is built\n+    dist.broadcast(tensor, src=0)",
        ),
        Place(file=used.file, line=used.line),
    )  # fmt: skip
