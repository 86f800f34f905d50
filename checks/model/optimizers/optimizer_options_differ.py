"""The optimizers of the ranks have different options, for parameters whose gradients are averaged.

## What happens

The ranks are given the same gradients, and make different steps with them: a learning rate that is scaled with the rank
instead of the number of ranks, a scheduler that only rank 0 steps, or that looks at each rank's own validation loss, a
weight decay that was set on one rank. The replicas drift apart, without an error, and one of them is saved.

## How to be sure

ddpdoctor compares the options of each group of parameters between the ranks in sampled steps: learning rate, momentum,
weight decay and whatever else are plain values there.

Silent where there are groups of some ranks, and where gradients are not exchanged: trainings of their own have options
of their own.

## How to mend it

Compute the learning rate from what is equal on all ranks; step each scheduler on all ranks; average the number that a
scheduler looks at:

    dist.all_reduce(loss)
    scheduler.step(loss / dist.get_world_size())

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, "torch.optim".
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Fix,
    Monitored,
    ParametersHeld,
    Place,
    Severity,
    StepFingerprinted,
    Training,
    place,
    rank_condition,
    spans,
    tree_of,
    watch,
)

from ..._ledgers.ledger import built, of_all_ranks, sheet
from ..._ledgers.sheets import NEVER
from .._alike import counts_differ

AILMENT = Ailment("DDP575", Severity.ERROR)
SCHEDULER = re.compile(r"sched|plateau|warm|anneal|cosine|lr_?s|onecycle|decay", re.IGNORECASE)
PLATEAU = "ReduceLROnPlateau"
ZERO = "ZeroRedundancyOptimizer"
ATTENDED = {"foreach", "fused", "capturable", "differentiable"}  # how it computes, and not what


@watch(StepFingerprinted)
def while_training(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    """Compare the options of one step, once all ranks that are seen have told it."""
    ranks = of_all_ranks(event, training)
    held = built(event, training)
    if (
        held is None
        or any(each.subgroups for each in ranks.values())
        or counts_differ(ranks)
        or _is_inner(held, training)
    ):
        return  # the same number stands for another step there
    averaged = bool(held.shards) or any(number != NEVER for number in held.managed)
    if not averaged:
        step = sheet(event, training)
        averaged = step is not None and any(line.shared for line in step.lines)
    differ = _differing(list(ranks.values())) if averaged else None
    if differ is None or (event.number > 1 and _differing(list(_first(event, training).values()))):
        return  # what differs from the start was told there
    group, name = differ
    told = {rank: dict(each.options[group]).get(name, "none") for rank, each in ranks.items()}
    shown = ", ".join(f"{value} on rank {rank}" for rank, value in list(told.items())[:8])
    yield Finding(
        f"{name} of {held.kind} differs between the ranks, which step with the same gradients: the replicas diverge",
        (
            Evidence(f"{name}: {shown}", "the same on all ranks", f"group {group} of {held.kind}, step {event.number}"),
            Evidence(f"{held.kind} holds {len(held.names)} parameters", "", str(held.site)),
        ),
        _fix(event, held, name, training),
        _line(event, held, name),
    )


def _is_inner(held: ParametersHeld, training: Training) -> bool:
    """Whether it is the part of a ZeroRedundancyOptimizer that steps this rank's shard: of the whole it is told."""
    return held.kind != ZERO and any(each.kind == ZERO for each in training.of(ParametersHeld, pid=held.pid))


def _fix(event: StepFingerprinted, held: ParametersHeld, name: str, training: Training) -> Fix:
    if (line := _of_one_rank(event, held, name)) is not None:
        test = rank_condition(line.file or "", line.line or 0)
        return Fix(
            f"give every rank the same {name}",
            diff=f'-if {test}:\n-    group["{name}"] = {name}\n+group["{name}"] = {name}',
        )
    diff = "-lr=0.1 * (rank + 1)\n+lr=0.1 * world_size"
    if event.number > 1:  # they began alike
        if any(each.by == PLATEAU for each in training.of(Monitored)):
            return Fix(
                f"give every rank the same {name}: {PLATEAU} sets it by a metric, which has to be that of all ranks",
                diff="-scheduler.step(metric_of_this_rank)\n+scheduler.step(metric_of_all_ranks)   # reduced before",
            )
        return _since(event, held, name)
    return Fix(f"give every rank the same {name}", diff=diff)


def _since(event: StepFingerprinted, held: ParametersHeld, name: str) -> Fix:
    """Return how an option stays the same on all ranks, by what sets it in the file that steps."""
    site = event.site or held.site
    file = site.file if site else ""
    written = _written(file, name)
    if not written and _stepped(file):
        diff = "-if rank == 0:\n-    scheduler.step()\n+scheduler.step()"
        return Fix(f"give every rank the same {name}", diff=diff)
    guards = [each for each in tree_of(file).of(ast.If) if written and spans(each, written[0])]
    if len(written) == 1 and guards:
        test = max(guards, key=lambda each: each.lineno).test
        return Fix(
            f"decide by a number of all ranks: {name} is set where {ast.unparse(test)}, which each decides by its own",
            diff=_reduced(file, test),
        )
    return Fix(
        f"give every rank rank 0's {name}",
        diff=f'+told = [[group["{name}"] for group in optimizer.param_groups]]\n'
        "+dist.broadcast_object_list(told, src=0)\n"
        f'+for group, value in zip(optimizer.param_groups, told[0]):\n+    group["{name}"] = value',
    )


def _reduced(file: str, test: ast.expr) -> str:
    """Return the lines by which a condition is the same on all ranks: its number is reduced, or rank 0 decides."""
    tree = tree_of(file)
    names = [each.id for each in ast.walk(test) if isinstance(each, ast.Name)]
    computed = {
        target.id
        for each in tree.of(ast.Assign)
        if isinstance(each.value, ast.Call) and each.lineno < test.lineno
        for target in each.targets
        if isinstance(target, ast.Name) and tree.function(each) is tree.function(test)
    }
    called = {each.func.value for each in ast.walk(test)
              if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute)}  # fmt: skip
    owners = {each.id for each in called if isinstance(each, ast.Name)}
    number = next((each for each in names if each in computed - owners), "")
    if number:
        return (
            f"+total = torch.tensor(float({number}))\n+dist.all_reduce(total)\n"
            f"+{number} = total.item() / dist.get_world_size()\n if {ast.unparse(test)}:"
        )
    return (
        f"+decided = [bool({ast.unparse(test)})]\n+dist.broadcast_object_list(decided, src=0)\n"
        f"-if {ast.unparse(test)}:\n+if decided[0]:"
    )


def _stepped(file: str) -> list[int]:
    """Return the lines of a file that step a scheduler."""
    called = [(node.lineno, ast.unparse(node.func)) for node in tree_of(file).of(ast.Call)]
    return [line for line, name in called if name.endswith(".step") and SCHEDULER.search(name)]


def _line(event: StepFingerprinted, held: ParametersHeld, name: str) -> Place:
    """Return the line that sets the option, where there is one alone that can; else the one that steps."""
    if (found_at := _of_one_rank(event, held, name)) is not None:
        return found_at
    if event.number == 1 or event.site is None:
        return place(held.site)
    found = _written(event.site.file, name) or _stepped(event.site.file)
    return Place(file=event.site.file, line=found[0]) if len(found) == 1 else place(event.site)


def _of_one_rank(event: StepFingerprinted, held: ParametersHeld, name: str) -> Place | None:
    """Return the one line that sets the option under a condition on the rank; None where there is none, or several."""
    site = event.site or held.site
    lines = [line for line in _written(site.file, name) if rank_condition(site.file, line)] if site else []
    return Place(file=site.file, line=lines[0]) if site and len(lines) == 1 else None


def _written(file: str, name: str) -> list[int]:
    """Return the lines of a file that set an option in a group of parameters."""
    return [
        node.lineno
        for node in tree_of(file).nodes
        if isinstance(node, (ast.Assign, ast.AugAssign))
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant) and target.slice.value == name
    ]


def _first(event: StepFingerprinted, training: Training) -> dict[int, StepFingerprinted]:
    return training.by_rank(StepFingerprinted, optimizer=event.optimizer, number=1)


def _differing(steps: list[StepFingerprinted]) -> tuple[int, str] | None:
    """Find the first group and option that are not the same on all ranks."""
    for group, options in enumerate(zip(*(each.options for each in steps), strict=False)):
        for name in dict(options[0]):
            if name not in ATTENDED and len({dict(each).get(name) for each in options}) > 1:
                return group, name
    return None
