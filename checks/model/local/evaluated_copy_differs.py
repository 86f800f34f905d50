"""All ranks evaluate a copy of the model, and it is not the same on all of them.

## What happens

An exponential moving average, or another copy of the weights, belongs to no optimizer, and DDP does not keep it equal.
Where rank 0 alone updates it, or where it was copied before DDP gave all ranks rank 0's weights, each rank has another
one. Where all ranks then evaluate it, each on its share of the samples, the metric is a mixture of several models: with
many ranks mostly of copies that nobody has updated. Nothing fails.

## How to be sure

Print a checksum of the copy on every rank before an evaluation. ddpdoctor (`ddpdoctor run`) compares what all
ranks call in the first evaluations, and in the first one of each other module that is put into evaluation mode, and
that no optimizer holds, while the trained weights are equal: of plain DDP, Accelerate, Lightning and Fabric.

## How to mend it

Update the copy on every rank, and make it after the model is wrapped:

    model = DistributedDataParallel(model)
    average = copy.deepcopy(model.module)
    ...
    optimizer.step()
    update(average, model.module)  # on all ranks

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Seen where a DataLoader gives the evaluation's samples; not in
compiled code. Source: PyTorch documentation, DistributedDataParallel (what is kept equal); torch.optim.swa_utils.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    EvaluatedWith,
    Evidence,
    Finding,
    Fix,
    Place,
    Severity,
    StepFingerprinted,
    Training,
    Used,
    Wrapped,
    last_name,
    one_rank_only,
    tree_of,
    watch,
)
from ddpdoctor.frameworks import ACCELERATE, FABRIC, LIGHTNING

from ..._evaluation.evaluations import shares_gradients
from ..._ledgers.sheets import differ
from .._alike import weights_apart
from .._copied import after_wrapping
from .._words import listed

AILMENT = Ailment("DDP1557", Severity.ERROR)
FRAMEWORKS = (None, ACCELERATE, LIGHTNING, FABRIC)
"""Those that leave a copy of the model to the script."""

TELLING = {"save", "print", "state_dict"}


@watch(EvaluatedWith)
def while_training(event: EvaluatedWith, training: Training) -> Iterator[Finding]:
    """Compare what all ranks have evaluated with, once the last of them has told."""
    ranks = training.complete(EvaluatedWith, number=event.number)
    if not ranks or training.framework not in FRAMEWORKS or not shares_gradients(event.pid, training):
        return
    if _told_before(event, training) or weights_apart(training.complete(StepFingerprinted)):
        return
    for used in ranks[0].used:
        same = [[each for each in other.used if _is_alike(used, each)] for other in ranks.values()]
        if all(len(found) == 1 for found in same) and (names := _apart([found[0] for found in same])):
            wrapped = training.of(Wrapped, pid=event.pid)
            site = wrapped[-1].site if wrapped else None
            one = _updated_by_one(site.file, used.variable.partition(".")[0]) if site else None
            fix = after_wrapping(used.variable, site) if site and one is None else None
            yield _finding([found[0] for found in same], names, fix, one)
            return


def _updated_by_one(file: str, variable: str) -> Place | None:
    """Return the line where one rank alone calls something with the copy, but to save or to print it."""
    calls = [each for each in tree_of(file).of(ast.Call) if last_name(each.func) not in TELLING]
    named = [each for each in calls if any(isinstance(n, ast.Name) and n.id == variable for n in ast.walk(each))]
    found = [each.lineno for each in named if one_rank_only(file, each.lineno)]
    return Place(file=file, line=found[0]) if found else None


def _told_before(event: EvaluatedWith, training: Training) -> bool:
    """Whether an evaluation before this one has had copies that differ."""
    for number in range(1, event.number):
        ranks = training.complete(EvaluatedWith, number=number)
        columns = zip(*(each.used for each in ranks.values()), strict=False)
        if any(_is_alike(row[0], each) for row in columns for each in row[1:] if _apart(list(row))):
            return True
    return False


def _is_alike(one: Used, other: Used) -> bool:
    return (one.kind, one.names, one.sizes, one.parameters) == (other.kind, other.names, other.sizes, other.parameters)


def _apart(copies: list[Used]) -> list[str]:
    """Return the parameters that are not the same in all of these copies."""
    first = copies[0]
    columns = zip(first.names[: first.parameters], *(each.prints for each in copies), strict=False)
    return [name for name, *prints in columns if differ(prints)]


def _finding(copies: list[Used], names: list[str], early: Fix | None, one: Place | None) -> Finding:
    used, at = copies[0], copies[0].names.index(names[0])
    told = ", ".join(
        f"{print_[0]:.4g} on rank {rank}" for rank, each in [*enumerate(copies)][:8] if (print_ := each.prints[at])
    )
    return Finding(
        f"{used.kind}, which all ranks evaluate, is not the same on all of them: {listed(names, 4)}",
        (
            Evidence(f"a projection of {names[0]}: {told}", "the same on all ranks", "as an evaluation calls it"),
            Evidence("no optimizer holds it, and DDP does not keep it equal", "", "all ranks"),
        ),
        early
        or Fix(
            "update the copy on every rank; make it when the model is wrapped",
            diff="-if rank == 0:\n-    update(average, model.module)\n+update(average, model.module)",
        ),
        one or Place(file=used.file or None, line=used.line or None),
    )
