"""Each rank keeps the model that was best by a metric of its own.

## What happens

A training keeps the weights of its best evaluation: it compares a metric with the best so far, and saves or copies the
weights where it is better. Where each rank evaluates a share of its own and the metric is not reduced, each rank finds
another epoch the best: rank 0 saves what was best on its share, and copies that are loaded in the end are those of
different epochs, so that the ranks go on with different models. Nothing fails.

## How to be sure

ddpdoctor compares, in compared steps, numbers that the functions that train hold as the best so far. Here they were
equal on all ranks at first, have changed on all of them, and differ; and the source keeps weights where a metric is
better than that number. Print it on every rank.

## How to mend it

Reduce what the metric is computed from before it is compared:

    totals = torch.tensor([correct, count], dtype=torch.float64, device=device)
    dist.all_reduce(totals)
    metric = (totals[0] / totals[1]).item()

Where DataLoaders evaluate (metric-of-one-rank looks at these) it is said where the metric is computed before the ranks
exchange something, and compared after that. Silent where one rank alone evaluates.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, torch.distributed.all_reduce.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ddpdoctor.check import (
    BEST,
    Ailment,
    Evaluated,
    Evidence,
    Finding,
    Fix,
    Place,
    Severity,
    StepFingerprinted,
    Training,
    last_name,
    tree_of,
    watch,
)

from .._alike import earlier, without_parallelism
from ._numbers import name_of

AILMENT = Ailment("DDP1555", Severity.WARNING)
EQUAL = 1e-4  # relative: what is added up in another order
REDUCES = {"all_reduce", "reduce", "all_gather", "all_gather_object", "all_gather_into_tensor", "gather"}
KEEPS = re.compile(r"^(state_dict|deepcopy|save\w*|\w*checkpoint\w*|snapshot)$")

Held = dict[str, tuple[float, ...]]


@watch(StepFingerprinted)
def while_training(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    """Look for a best result that all ranks have changed, each to another one."""
    ranks = without_parallelism(event, training)
    if not ranks:
        return
    by_loaders = bool(training.of(Evaluated))
    steps = [_held(each) for each in (ranks, *earlier(event, training))]
    for path, now in steps[0].items():
        past = [each[path] for each in steps[1:] if path in each]
        begun = next((each for each in reversed(past) if len(set(each)) == 1), None)
        if begun is None or not _differ(now, begun) or any(_differ(each, begun) for each in past):
            continue
        found = _kept_by(path, event.site.file if event.site else "")
        if found is not None and not (by_loaders and not _is_summed_later(found, path)):
            yield _finding(path, now, found, event)
            return


def _held(ranks: dict[int, StepFingerprinted]) -> Held:
    told = [dict(each.holdings) for each in ranks.values()]
    return {
        path: tuple(each[path] for each in told)
        for path in told[0]
        if BEST.search(name_of(path)) and all(path in each for each in told)
    }


def _differ(now: tuple[float, ...], begun: tuple[float, ...]) -> bool:
    """Whether all ranks have another number than they began with, and not the same one."""
    largest = max(map(abs, now))
    moved = all(one != other for one, other in zip(now, begun, strict=True))
    return moved and max(now) - min(now) > EQUAL * largest


def _kept_by(path: str, file: str) -> tuple[str, int] | None:
    """Return the line that compares a metric with the best so far, where weights are kept if it is better."""
    name = name_of(path)
    for node in tree_of(file).of(ast.If):
        if name not in _compared(node.test):
            continue
        inside = [each for statement in node.body for each in ast.walk(statement)]
        targets = [given for each in inside if isinstance(each, ast.Assign) for given in each.targets]
        parts = [part for each in targets for part in (each.elts if isinstance(each, ast.Tuple) else (each,))]
        assigned = name in map(last_name, parts)
        keeps = any(isinstance(each, ast.Call) and KEEPS.match(last_name(each.func)) for each in inside)
        if assigned and keeps:
            return file, node.lineno
    return None


def _is_summed_later(where: tuple[str, int], path: str) -> bool:
    """Whether what is compared was computed before the ranks exchange something, and is compared after that."""
    file, line = where
    tree = tree_of(file)
    tests = [each.test for each in tree.of(ast.If) if each.lineno == line]
    names = {name for each in tests for name in _compared(each)} - {name_of(path)}
    made = [
        each.lineno
        for each in tree.of(ast.Assign)
        if each.lineno < line and names & {last_name(target) for target in each.targets}
    ]
    calls = [each.lineno for each in tree.of(ast.Call) if last_name(each.func) in REDUCES]
    return bool(made) and any(max(made) < each < line for each in calls)


def _compared(test: ast.expr) -> set[str]:
    compares = [each for each in ast.walk(test) if isinstance(each, ast.Compare)]
    return {last_name(each) for compare in compares for each in ast.walk(compare)}


def _finding(path: str, now: tuple[float, ...], where: tuple[str, int], event: StepFingerprinted) -> Finding:
    told = ", ".join(f"{value:.6g} on rank {rank}" for rank, value in enumerate(now[:8]))
    file, line = where
    return Finding(
        f"each rank keeps the weights that were best by a metric of its own: {path} is not the same on all ranks",
        (
            Evidence(f"{path}: {told}", "the same on all ranks, as at first", f"before step {event.number}"),
            Evidence("weights are kept where a metric is better", "one decision on all ranks", f"{file}:{line}"),
        ),
        Fix(
            "reduce what the metric is computed from, before it is compared",
            diff="+totals = torch.tensor([correct, count], dtype=torch.float64, device=device)\n"
            "+torch.distributed.all_reduce(totals)\n+metric = (totals[0] / totals[1]).item()",
        ),
        Place(file=file, line=line),
    )
