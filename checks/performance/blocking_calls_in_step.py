"""A line of the training loop keeps each step waiting: it reads a tensor, prints, logs, or agrees on something.

## What happens

`loss.item()`, `.cpu()`, `.tolist()`, `if loss > best:` hand numbers from the device to Python, which waits until the
device has computed them; on a GPU nothing new is launched meanwhile. `outputs.tolist()` makes a Python object of each
number. `print` waits for who reads it, and `dist.all_reduce(loss)` or `dist.barrier()` for all ranks. Once in an epoch
that costs nothing; in each step it is paid in each step.

## How to be sure

`ddpdoctor run --profile 50 -- COMMAND` times these calls by line, while it measures steps closely. ddpdoctor finds a
line that takes a tenth of the step or more in the median step, and 2 ms or more, in nearly all of them: of collectives
on the rank that waits least, of the rest on the rank that takes longest. Only calls that your own lines make by
themselves count, outside the forward of a module, the backward and an optimizer's step, and of collectives those of at
most 1,024 numbers: a metric or a decision, not data that the training is made of. Before the calls are timed, it is
looked every few milliseconds where the thread is; of many calls in a step the line's share of that counts where it is
larger: timing makes calls longer. Of collectives it counts where it is smaller. Where ranks wait for a core, it alone
counts, without what that takes, and of collectives nothing is said. On a GPU ddpdoctor shows the times, and does not
judge them: Python waits there for kernels that have to be computed anyway. Where torch.compile has compiled something,
nothing is timed.

## How to mend it

Keep tensors, add them up (`total += loss.detach()`), and read, print and log once in a hundred steps or after the
epoch. Average a metric over the ranks there as well. What looks at each parameter by itself (a norm, a test for NaN)
does it with one call for all: `torch.nn.utils.clip_grad_norm_` returns the norm of all gradients.

## Versions and sources

Holds for torch 2.2 to 2.13. Sources: PyTorch Tutorials, "Performance Tuning Guide", "Avoid unnecessary CPU-GPU
synchronization"; torch.distributed documentation.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ddpdoctor.check import (
    Ailment,
    CallsTimed,
    Evidence,
    Finding,
    Fix,
    LinesSampled,
    Place,
    Profiled,
    RankSteps,
    Severity,
    StepsTimed,
    TimedCall,
    Training,
    watch,
)

from ._lines import share
from ._seldom import seldom
from ._steps import STEADY, on_cpu

AILMENT = Ailment("DDP906", Severity.NOTE)
MUCH = 0.1  # of a step
LEAST = 0.002  # seconds of a step
MANY = 16  # calls of a step
STARVED = 0.3  # of the time: beyond it, a call waits for a core
SHOWN = 4  # ranks, or lines
ALONE = ("Tensor.", "print", "logging")
"""What a rank does by itself: all others are collectives, in which it waits."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a call at a line takes of a step; ``loop`` is the line of the loop that it is made for, as file:line.

    ``whole``: all that the function does in which the calls are made counts.
    """

    what: str
    calls: dict[int, TimedCall]
    seconds: float
    loop: str = ""
    whole: bool = False

    @property
    def most(self) -> TimedCall:
        """The calls of the rank that they take longest of."""
        return max(self.calls.values(), key=lambda each: each.nanoseconds)


@watch(StepsTimed)
def while_training(event: StepsTimed, training: Training) -> Iterator[Finding]:
    """Look for lines that take a large share of nearly each step."""
    on_cpu(event)
    told, measured = training.by_rank(CallsTimed), training.by_rank(Profiled)
    if not told or not measured:
        return
    total = statistics.median(value / 1e9 for each in measured.values() for value in each.total)
    by_function: dict[str, list[Cost]] = {}
    for (what, *_), calls in _by_line(told).items():
        cost = _cost(event, training, Cost(what, calls, 0.0), total)
        if cost.seconds < max(LEAST, MUCH * total):
            continue
        if cost.whole:
            by_function.setdefault(cost.loop, []).append(cost)
        else:
            yield _finding(cost, told, total)
    for costs in by_function.values():
        yield _of_function(costs, told, total)


def _by_line(told: dict[int, CallsTimed]) -> dict[tuple[str, str, int], dict[int, TimedCall]]:
    """Return the calls that nearly each step has, by what they are and their line, then by rank."""
    by_line: dict[tuple[str, str, int], dict[int, TimedCall]] = {}
    for rank, each in told.items():
        for call in each.calls:
            if call.steps >= STEADY * each.steps:
                by_line.setdefault((call.what, call.file, call.line), {})[rank] = call
    return by_line


def _cost(event: StepsTimed, training: Training, cost: Cost, total: float) -> Cost:
    """Return what calls take: as they were timed, or by the share that their line had before calls were timed."""
    busy = any(each.starved > STARVED for each in event.ranks)
    steps = {each.rank: each for each in event.ranks if each.rank in cost.calls}
    if not cost.what.startswith(ALONE):
        if busy or len(cost.calls) < training.world_size:
            return cost
        parts = [_collective(training, rank, cost.calls[rank]) for rank in steps]
        share, loop = min(parts, default=(1.0, ""))
        timed = min(each.nanoseconds for each in cost.calls.values()) / 1e9
        return replace(cost, seconds=min(timed, share * total), loop=loop)
    timed = max(each.nanoseconds for each in cost.calls.values()) / 1e9
    part, loop = max((_share(training, steps[rank], cost.calls[rank]) for rank in steps), default=(0.0, ""))
    if part * total > timed or busy:
        return replace(cost, seconds=part * total, loop=loop, whole=bool(loop))
    return replace(cost, seconds=timed)


def _share(training: Training, rank: RankSteps, call: TimedCall) -> tuple[float, str]:
    """Return the share of its time that a rank spends for a call, before the calls were timed, and in which line.

    Of a function that the loop calls for many of them (a meter, a metric) the whole time counts: the loop can leave it
    out. A single call in a line is not blamed for what else the line does, but for a line that logs.
    """
    told = training.by_rank(LinesSampled).get(rank.rank)
    if told is None:
        return 0.0, ""
    found = [(0.0, "")]
    for line in told.sampled:
        if line.kind != "logging" and (line.kind or call.times < MANY * call.steps):
            continue
        part = share(told, line, rank)
        if (line.inner_file, line.inner_line) == (call.file, call.line):
            found.append((part * line.most / max(1, line.nanoseconds), ""))
        if (line.inner_file, line.inner_function) == (call.file, call.function) and line.function != call.function:
            found.append((part, f"{line.file}:{line.line}"))
    return max(found)


def _collective(training: Training, rank: int, call: TimedCall) -> tuple[float, str]:
    """Return the share of its time that a rank was in a collective of this line, and for which line of the loop."""
    told = training.by_rank(LinesSampled).get(rank)
    lines = [
        each
        for each in (told.sampled if told else ())
        if each.kind == "collective" and (each.inner_file, each.inner_line) == (call.file, call.line)
    ]
    if told is None or not lines:
        return 1.0, ""
    return sum(each.most for each in lines) / max(1, told.nanoseconds), f"{lines[0].file}:{lines[0].line}"


def _finding(cost: Cost, told: dict[int, CallsTimed], total: float) -> Finding:
    call, seconds = cost.most, cost.seconds
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
        _fix(cost, often, total),
        Place(file=call.file, line=call.line),
    )


def _of_function(costs: list[Cost], told: dict[int, CallsTimed], total: float) -> Finding:
    """Tell of a function that makes many calls in each step: once, whatever calls they are."""
    first, steps = costs[0], max(1, next(iter(told.values())).steps)
    call, seconds = first.most, first.seconds
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
        _fix(first, often, total),
        Place(file=call.file, line=call.line),
    )


def _fix(cost: Cost, often: float, total: float) -> Fix:
    promise = f"about {1e3 * (total - cost.seconds):.1f} instead of {1e3 * total:.1f} ms a step"
    file, _, number = (cost.loop or f"{cost.most.file}:{cost.most.line}").rpartition(":")
    if cost.what in {"print", "logging"}:
        return Fix(f"say it once in a hundred steps: {promise}", diff=seldom(file, int(number)))
    if cost.what.startswith("Tensor.") and cost.whole:
        return Fix(
            "where it only reports, call it once in a hundred steps; where the training needs it, let it work on all "
            f"tensors at once and read none (torch.nn.utils.clip_grad_norm_, torch.stack): {promise} without it"
        )
    if cost.what.startswith("Tensor."):
        return Fix(
            f"keep the tensor, and read it once in a hundred steps or after the epoch: {promise}",
            diff=seldom(file, int(number)),
        )
    at_once = f"put the {often:.0f} numbers of a step into one tensor (torch.stack), and " if often >= 2 else ""  # noqa: PLR2004 - more than one
    return Fix(
        f"{at_once}where the training does not need it in each step, let the ranks agree once in a hundred, in the "
        f"same ones on all ranks: {promise}",
        diff=seldom(file, int(number)),
    )
