"""A line of the training loop keeps each step waiting: it reads a tensor, prints, logs, or agrees on something.

## What happens

`loss.item()`, `.cpu()`, `.tolist()`, `if loss > best:` hand numbers from the device to Python, which waits until the
device has computed them; on a GPU nothing new is launched meanwhile. `outputs.tolist()` makes a Python object of each
number. `print` waits for who reads it, and `dist.all_reduce(loss)` or `dist.barrier()` for all ranks. Once in an epoch
that costs nothing; in each step it is paid in each step.

## How to be sure

`ddpdoctor run --profile 50 -- COMMAND` times these calls by line, while it measures steps closely. ddpdoctor finds a
line that takes a tenth of the step or more in the median step, and 2 ms or more, in nearly all of them, and several
that read tensors, or that print and log, where they do so together: of collectives on the rank that waits least, of
the rest on the rank that takes longest. Only calls that your own lines make by themselves count, outside the forward
of a module, the backward and an optimizer's step, and of collectives those of at most 1,024 numbers: a metric or a
decision. What is larger is large-collective-each-step. Before the calls are timed, it is looked every few
milliseconds where the thread is; of many calls in a step the line's share of that counts where it is larger: timing
makes calls longer. Of collectives it counts where it is smaller. Where ranks wait for a core, it alone counts, without
what that takes, and collectives are counted: four or more a step at a line. What a LightningModule logs with
`sync_dist=True` is told by the lines that log: a barrier and an all_reduce for each value. On a GPU ddpdoctor shows the
times, and does not judge them: Python waits there for kernels that have to be computed anyway. Where torch.compile has
compiled something, nothing is timed.

## How to mend it

Keep tensors, add them up (`total += loss.detach()`), and read, print and log once in a hundred steps or after the
epoch. Average a metric over the ranks there as well: in Lightning `self.log(..., on_step=False, on_epoch=True,
sync_dist=True)`. A barrier beside another collective, or beside a backward, can go. What looks at each parameter by
itself (a norm, a test for NaN) does it with one call for all: `torch.nn.utils.clip_grad_norm_` returns the norm of all
gradients.

## Versions and sources

Holds for torch 2.2 to 2.13. Sources: PyTorch Tutorials, "Performance Tuning Guide", "Avoid unnecessary CPU-GPU
synchronization"; torch.distributed documentation.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    CallsTimed,
    Evidence,
    Finding,
    Fix,
    Place,
    Profiled,
    Severity,
    StepsTimed,
    Training,
    watch,
)

from .._steps import on_cpu, promise
from ..source._at_line import NUMBERS, PARAMETERS, what_at
from ..source._step_body import seldom
from ._calls import ALONE, READS, SMALL, Cost, by_line, cost_of
from ._collectives import of_collectives
from ._rows import most, rows_of, taken

AILMENT = Ailment("DDP906", Severity.NOTE)
MUCH = 0.1  # of a step
LEAST = 0.002  # seconds of a step
SHOWN = 4  # ranks, or lines
READ_TOGETHER = (
    "keep the tensors and read them together, once in a hundred steps or after the epoch: torch.stack(values).tolist() "
    "reads all at once"
)
SAY_SELDOM = "say it once in a hundred steps, all of it in one line"


@watch(StepsTimed)
def while_training(event: StepsTimed, training: Training) -> Iterator[Finding]:
    """Look for lines that take a large share of nearly each step."""
    on_cpu(event)
    told, measured = training.by_rank(CallsTimed), training.by_rank(Profiled)
    took = [value / 1e9 for each in measured.values() for value in each.total]
    if not told or not took:
        return
    total = statistics.median(took)
    by_function: dict[str, list[Cost]] = {}
    short: dict[bool, list[Cost]] = {True: [], False: []}  # those that read tensors, and those that print or log
    sent: list[Cost] = []
    loops = _told_loops(event, training)
    for (what, *at), calls in by_line(told).items():
        is_large = min(each.numbers for each in calls.values()) > SMALL
        if is_large or _is_told_with_its_loop(what, what_at(*at), loops):
            continue
        cost = cost_of(event, training, Cost(what, calls, 0.0), total)
        if not what.startswith(ALONE):
            sent.append(cost)
        elif cost.seconds < max(LEAST, MUCH * total):
            short[what.startswith("Tensor.")].append(cost)
        elif cost.whole:
            by_function.setdefault(cost.loop, []).append(cost)
        else:
            yield _finding(cost, told, took)
    yield from of_collectives(sent, told, took, max(LEAST, MUCH * total))
    for costs in by_function.values():
        yield _of_function(costs, told, took)
    for of_kind in short.values():
        costs = [each for each in of_kind if each.loop not in by_function]
        if costs[1:] and (seconds := _together(costs)) >= max(LEAST, MUCH * total):
            yield _of_lines(costs, told, took, seconds)


def _is_told_with_its_loop(what: str, at: tuple[str, str, int] | None, loops: set[tuple[str, int]]) -> bool:
    """Whether a call is one of a loop over numbers that is told, or sends gradients one by one."""
    if at is None:
        return False
    return at[1:] in loops if what.startswith(READS) else not what.startswith(ALONE) and at[0] == PARAMETERS


def _told_loops(event: StepsTimed, training: Training) -> set[tuple[str, int]]:
    """Return the loops over numbers that take much by themselves, by file and line."""
    groups = rows_of(event, training, {NUMBERS})
    return {(file, line) for (_, file, line), rows in groups.items() if taken(training, *most(rows)[:2]).is_much()}


def _together(costs: list[Cost]) -> float:
    """Return what several lines take of a step: no more than on the rank that they take longest of."""
    ranks = {rank for each in costs for rank in each.calls}
    timed = [sum(each.calls[rank].nanoseconds for each in costs if rank in each.calls) / 1e9 for rank in ranks]
    return min(sum(each.seconds for each in costs), max(timed, default=0.0))


def _of_lines(costs: list[Cost], told: dict[int, CallsTimed], took: list[float], seconds: float) -> Finding:
    """Tell of lines each of which takes little, and all of them much."""
    costs, steps = sorted(costs, key=lambda each: -each.seconds), max(1, next(iter(told.values())).steps)
    often, total = sum(each.most.times for each in costs) / steps, statistics.median(took)
    reads = costs[0].what.startswith("Tensor.")
    what = "read tensors" if reads else "print or log"
    return Finding(
        f"{len(costs)} lines {what}, {often:.3g} times a step, and take {1e3 * seconds:.1f} ms of each step of "
        f"{1e3 * total:.1f} ms together: {seconds / total:.0%}",
        tuple(
            Evidence(
                f"{1e3 * each.seconds:.1f} ms in {each.what}{'()' if reads else ''}, {each.most.times / steps:.3g} "
                "calls a step",
                "" if at else "none in most steps",
                f"{each.most.file}:{each.most.line} in {each.most.function}",
            )
            for at, each in enumerate(costs[:SHOWN])
        ),
        Fix(f"{READ_TOGETHER if reads else SAY_SELDOM}; {promise(took, [seconds] * len(took))} without them"),
        Place(file=costs[0].most.file, line=costs[0].most.line),
    )


def _finding(cost: Cost, told: dict[int, CallsTimed], took: list[float]) -> Finding:
    call, seconds, total = cost.most, cost.seconds, statistics.median(took)
    often = call.times / max(1, next(iter(told.values())).steps)
    said = f"{cost.what}()" if cost.what.startswith("Tensor.") else cost.what
    return Finding(
        f"{said} at {call.file}:{call.line} takes {1e3 * seconds:.1f} ms of each step of {1e3 * total:.1f} ms: "
        f"{seconds / total:.0%}, {often:.3g} {'calls' if often > 1 else 'call'} a step",
        tuple(
            Evidence(
                f"{each.nanoseconds / 1e6:.1f} ms in the median step, {each.times} calls in {told[number].steps} steps",
                "none in most steps" if number == min(cost.calls) else "",
                f"rank {number}",
            )
            for number, each in list(cost.calls.items())[:SHOWN]
        ),
        _fix(cost, took),
        Place(file=call.file, line=call.line),
    )


def _of_function(costs: list[Cost], told: dict[int, CallsTimed], took: list[float]) -> Finding:
    """Tell of a function that makes many calls in each step: once, whatever calls they are."""
    first, steps = costs[0], max(1, next(iter(told.values())).steps)
    call, seconds, total = first.most, first.seconds, statistics.median(took)
    often = sum(each.most.times for each in costs) / steps
    said = "reads tensors" if first.what.startswith("Tensor.") else "logs" if first.what == "logging" else "prints"
    return Finding(
        f"{call.function}(), called at {first.loop}, {said} {often:.3g} times a step, and takes {1e3 * seconds:.1f} ms "
        f"of each step of {1e3 * total:.1f} ms with all that it does: {seconds / total:.0%}",
        tuple(
            Evidence(
                f"{each.what}{'()' if each.what.startswith('Tensor.') else ''}, {each.most.times / steps:.3g} calls a "
                "step",
                "" if at else "none in most steps",
                f"{each.most.file}:{each.most.line}",
            )
            for at, each in enumerate(costs[:SHOWN])
        ),
        _fix(first, took),
        Place(file=call.file, line=call.line),
    )


def _fix(cost: Cost, took: list[float]) -> Fix:
    then = promise(took, [cost.seconds] * len(took))
    file, _, number = (cost.loop or f"{cost.most.file}:{cost.most.line}").rpartition(":")
    if cost.what in {"print", "logging"}:
        return Fix(f"say it once in a hundred steps: {then}", diff=seldom(file, int(number)))
    if cost.what.startswith("Tensor.") and cost.whole:
        return Fix(
            "where it only reports, call it once in a hundred steps; where the training needs it, let it work on all "
            f"tensors at once and read none (torch.nn.utils.clip_grad_norm_, torch.stack): {then} without it"
        )
    return Fix(
        f"keep the tensor, and read it once in a hundred steps or after the epoch: {then}",
        diff=seldom(file, int(number)),
    )
