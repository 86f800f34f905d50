"""fully_shard adds up the gradients of different parameters, since the ranks have used different parts of the model.

## What happens

After backward fully_shard puts the gradients of all parameters of one unit that have one into one row, and the ranks
add up these rows. A row says nothing of what is in it. Where the ranks have used different parts of one unit (a branch,
an expert or a layer that each rank chooses by its own batch or its own random numbers), the rows are of different
parameters. If they are equally long, nothing fails: the gradient of one rank's part is added to that of the other
rank's part, and each rank updates its shard of another parameter. DistributedDataParallel counts what a rank has not
used as zero, and needs `find_unused_parameters=True` for it; fully_shard does neither by itself.

## How to be sure

After a backward, print the names of the parameters whose `grad` is None on each rank: they are to be the same.
ddpdoctor (`ddpdoctor run`) compares them in sampled steps: here a parameter has a gradient on some ranks and none on
others, and as many have none on each rank.

Silent where there are groups of some ranks, as with experts that are spread over ranks.

## How to mend it

    model.set_reduce_scatter_unused_params(True)   # torch 2.13: zeros for what a rank has not used

In earlier versions let the choice be the same on all ranks, or go through all parts on each of them:

    one, two = self.one(h), self.two(h)
    h = one + 0.0 * two if use_one else two + 0.0 * one

## Versions and sources

Holds for fully_shard of torch 2.4 and later; seen with torch 2.13 CPU. Source: torch's
torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py, `post_backward`, and _fsdp_collectives.py, `foreach_reduce`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Fix,
    Gathers,
    Place,
    Severity,
    Sharded,
    StepFingerprinted,
    Training,
    place,
    tree_of,
    watch,
)

from .._words import listed

AILMENT = Ailment("DDP1515", Severity.ERROR)
API = "fully_shard"
SHOWN = 8  # ranks

Ranks = dict[int, StepFingerprinted]


@watch(StepFingerprinted)
def while_training(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    """Compare the names of what has no gradient on the ranks."""
    ranks: Ranks = training.complete(StepFingerprinted, optimizer=event.optimizer, number=event.number)
    if not _apart(ranks) or not any(each.api == API for each in training.of(Sharded, pid=event.pid)):
        return
    if _several_units(ranks, training) or any(map(_apart, _before(event, training))):
        return
    (one, first), (two, second) = _pair(ranks)
    ours, theirs = sorted(set(second.without) - {*first.without}), sorted(set(first.without) - {*second.without})
    yield Finding(
        f"gradients of different parameters are added up: rank {one} has those of {listed(ours, 2)}, where rank {two} "
        f"has those of {listed(theirs, 2)}",
        tuple(
            Evidence(f"without a gradient: {listed(list(each.without), 4) or 'none'}", "the same on all ranks",
                     f"rank {rank}, step {event.number}")
            for rank, each in [*ranks.items()][:SHOWN]
        ),
        Fix(
            "count as zero what a rank has not used (torch 2.13), or make the choice alike on all ranks",
            diff=" fully_shard(model)\n+model.set_reduce_scatter_unused_params(True)",
        ),
        _used(event, ours[0], theirs[0]) or place(event.site),
    )  # fmt: skip


def _apart(ranks: Ranks) -> bool:
    """Whether two ranks lack as many gradients, of different parameters, that the other one has."""
    if len(ranks) < 2 or any(each.subgroups for each in ranks.values()):  # noqa: PLR2004 - one has nobody to add to
        return False
    pair = _pair(ranks)
    if not pair:
        return False
    (_, one), (_, two) = pair
    only, others = set(one.without) - {*two.without}, set(two.without) - {*one.without}
    known = ({each.name for each in two.parts}, {each.name for each in one.parts})
    return len(only) == len(others) > 0 and only <= known[0] and others <= known[1]


def _pair(ranks: Ranks) -> list[tuple[int, StepFingerprinted]]:
    first, *others = ranks.items()
    return next(([first, each] for each in others if set(each[1].without) != set(first[1].without)), [])


def _before(event: StepFingerprinted, training: Training) -> Iterator[Ranks]:
    for each in training.before(event, optimizer=event.optimizer):
        if each.number < event.number:
            yield training.complete(StepFingerprinted, optimizer=each.optimizer, number=each.number)


def _several_units(ranks: Ranks, training: Training) -> bool:
    """Whether what some ranks lack is a unit of its own, which they do not gather either: a check of its own."""
    lacked = {name for each in ranks.values() for name in each.without}
    units = {module.module for each in training.of(Gathers) for module in each.modules if module.module}
    return any(name.startswith(f"{unit}.") or f".{unit}." in name for name in lacked for unit in units)


def _used(event: StepFingerprinted, ours: str, theirs: str) -> Place | None:
    """Return where the part that rank 0 has used is named beside its making, in the file that steps, if once."""
    pairs = zip(ours.split("."), theirs.split("."), strict=False)
    at = next((at for at, (one, other) in enumerate(pairs) if one != other), 0)
    names = [each for each in ours.split(".")[: at + 1] if not each.isdigit()]
    if event.site is None or not names:
        return None
    lines = {
        node.lineno
        for node in ast.walk(tree_of(event.site.file).module)
        if isinstance(node, ast.Attribute) and node.attr == names[-1] and isinstance(node.ctx, ast.Load)
    }
    return Place(file=event.site.file, line=lines.pop()) if len(lines) == 1 else None
