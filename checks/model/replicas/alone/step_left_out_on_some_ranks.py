"""A step of the optimizer is left out, or made once more, on some ranks only.

## What happens

The ranks reduce gradients together, and then each decides for itself whether it steps: it leaves out a batch whose own
loss is too high, a GradScaler skips where its own gradients overflow, the last window of an accumulation is stepped on
one rank alone. From then on the replicas are different models: each has made another number of steps.

## How to be sure

Collectives happen on all ranks together, so their number, as the process group counts it, is a clock that all ranks
share. Here a step of the same number was made at different times of that clock, or never on some rank.

FSDP1 says it when it gathers the optimizer's state: "Rank 2 has different values for step: 49996.0 Other ranks:
49991.0".

Silent where gradients are not exchanged, where there are groups of some ranks or messages from rank to rank, and where
only the number of micro-batches differs.

## How to mend it

Decide together:

    skip = torch.tensor(float(loss.item() > limit))
    dist.all_reduce(skip, op=dist.ReduceOp.MAX)
    if not skip:
        optimizer.step()

With DDP, gradients that overflow do so on all ranks; by hand, exchange them before `scaler.unscale_(optimizer)`.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, "DistributedDataParallel" and
"Automatic Mixed Precision".
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Caller,
    Ended,
    Evidence,
    Finding,
    Fix,
    Joined,
    JoinEntered,
    NeverStepped,
    OrderSeen,
    ParametersHeld,
    Record,
    Severity,
    ShardsScaled,
    Site,
    StepFingerprinted,
    StepsAtEnd,
    Training,
    callback_around,
    log_pattern,
    place,
    resolve,
    tests_around,
    tree_of,
    watch,
)

from ...._ledgers.ledger import built, of_all_ranks
from ...._ledgers.sheets import EXCLUSIVE
from ..._alike import counts_differ, map_built, of_one_model
from ..._words import listed

AILMENT = Ailment("DDP1502", Severity.ERROR)
SOME = 2  # steps of other ranks
FIX = Fix(
    "decide together whether to step",
    diff="+skip = torch.tensor(float(loss.item() > limit))\n+dist.all_reduce(skip, op=dist.ReduceOp.MAX)\n"
    "-if loss.item() <= limit:\n+if not skip:\n     optimizer.step()",
)


@watch(StepFingerprinted)
def while_training(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    """Compare at which point of the training the ranks have made the same step."""
    ranks, held = _ranks(event, training), built(event, training)
    if not ranks or held is None or not counts_differ(ranks) or _joins(training) or training.of(ShardsScaled):
        return
    if event.site is not None and _threads_communicate(event.site.file):
        return  # their collectives count as well, and come when they come
    if len({tuple(gradient is None for gradient in each.given) for each in ranks.values()}) > 1:
        return  # gradients-on-some-ranks: fewer are exchanged where some are None
    before = [each for each in training.before(event, optimizer=event.optimizer) if each.number < event.number]
    if any(counts_differ(_ranks(each, training)) for each in before):
        return
    yield Finding(
        f"a step is left out on some ranks: step {event.number} of {held.kind} comes at different points of the "
        "training",
        (
            *(
                Evidence(
                    f"step {event.number} after {each.backwards} backwards and {each.clock} collectives",
                    "the same on all ranks",
                    f"rank {rank}",
                )
                for rank, each in list(ranks.items())[:8]
            ),
            *_tests(event.site),
        ),
        FIX,
        place(event.site),
    )


@watch(NeverStepped)
def without_a_step(training: Training) -> Iterator[Finding]:
    """Look for ranks that compute gradients and make no step, where others have made some meanwhile."""
    yield from _never(training)


@watch(Ended)
def without_a_step_at_all(training: Training) -> Iterator[Finding]:
    """Look again when all ranks have told all."""
    yield from _never(training)


@log_pattern(
    r"AssertionError: Rank (?P<rank>\d+) has different values for step: (?P<own>[\w.()]+)\.? "
    r"Other ranks: (?P<others>[\w.()]+)"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read what FSDP1 finds when it gathers the optimizer's state: the ranks have made other numbers of steps."""
    yield Finding(
        f"rank {match['rank']} has made {match['own']} steps of the optimizer, the others {match['others']}",
        (record.proof(match, "as many steps on all ranks"),),
        FIX,
        record.place,
    )


def _threads_communicate(file: str) -> bool:
    """Whether a function that a thread of the script runs calls torch.distributed."""
    tree = tree_of(file)
    return any(
        (resolve(tree, each.func) or "").startswith("torch.distributed.")
        and (callback := callback_around(file, each.lineno)) is not None
        and callback.caller is Caller.THREAD
        for each in tree.of(ast.Call)
    )


def _ranks(event: StepFingerprinted, training: Training) -> dict[int, StepFingerprinted]:
    """Return a step by rank, where DDP averages, or where each rank exchanges its gradients by hand."""
    ranks = of_one_model(event, training) or of_all_ranks(event, training)
    by_hand = all(any(each.what == "gradient" for each in rank.exchanges) for rank in ranks.values())
    alike = len({each.names for each in map_built(ranks, training)}) == 1
    names = {name for each in ranks.values() for name, *_ in each.sent}
    plain = by_hand and alike and not names & EXCLUSIVE and not any(each.subgroups for each in ranks.values())
    return ranks if plain or of_one_model(event, training) else {}


def _joins(training: Training) -> bool:
    """Whether ranks have batches of different numbers on purpose, within Join: a rank without one makes no step."""
    return bool(training.of(OrderSeen, joins=True) or training.of(JoinEntered))


def _never(training: Training) -> Iterator[Finding]:
    idle = training.by_rank(NeverStepped)
    least = min((each.clock for each in idle.values()), default=0)
    steps = [each for each in training.of(StepFingerprinted) if each.rank not in idle and 0 < each.clock <= least]
    last = max(steps, key=lambda each: each.number, default=None)
    if last is None or last.number < SOME or last.subgroups or _joins(training):
        return
    yield Finding(
        f"the optimizer steps on some ranks only: none of {listed([f'rank {rank}' for rank in idle], 4)} has stepped",
        (
            Evidence(f"{last.number} steps in {last.backwards} backwards", "on all ranks", f"rank {last.rank}"),
            *(
                Evidence(f"no step in {each.backwards} backwards", "", f"rank {rank}")
                for rank, each in list(idle.items())[:4]
            ),
            *_tests(last.site),
        ),
        Fix("step on every rank", diff="-if rank == 0:\n-    optimizer.step()\n+optimizer.step()"),
        place(last.site),
    )


@watch(StepsAtEnd)
def at_the_end(event: StepsAtEnd, training: Training) -> Iterator[Finding]:
    """Compare how many steps there were in all, where all ranks have reduced as often."""
    ranks = training.by_rank(StepsAtEnd, optimizer=event.optimizer, model=event.model)
    if len(ranks) < max(len(training.by_rank(Joined)), 2):
        return
    steps = training.of(StepFingerprinted, optimizer=event.optimizer)
    alike = len({(each.clock, each.backwards) for each in ranks.values()}) == 1 and event.clock
    counts = {rank: each.number for rank, each in sorted(ranks.items())}
    if not alike or len(set(counts.values())) == 1 or _joins(training) or any(each.subgroups for each in steps):
        return
    if len({each.rank for each in training.of(ParametersHeld)}) < len(ranks) or _others(event, training):
        return
    if any(counts_differ(found) for each in steps if (found := of_one_model(each, training))):
        return
    last = max(steps, key=lambda each: each.number)
    yield Finding(
        "the ranks have made different numbers of steps with the gradients that they reduced together",
        (
            *(
                Evidence(f"{number} steps in {event.backwards} backwards", "the same on all ranks", f"rank {rank}")
                for rank, number in list(counts.items())[:8]
            ),
            *_tests(last.site),
        ),
        FIX,
        place(last.site),
    )


def _others(event: StepsAtEnd, training: Training) -> bool:
    """Whether some ranks have built another optimizer for the same model, which steps in its place."""
    held = {each.optimizer for each in training.of(ParametersHeld) if event.model in each.managed}
    return any(
        len({each.rank for each in training.of(ParametersHeld, optimizer=optimizer)}) < training.world_size
        for optimizer in held
    )


def _tests(site: Site | None) -> list[Evidence]:
    """Return what the step depends on, as the source has it."""
    found = tests_around(site.file, site.line) if site is not None else []
    return [Evidence(f"`{found[0]}`", "a test with the same result on all ranks", str(site))] if found else []
