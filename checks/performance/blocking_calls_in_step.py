"""A line of the training loop keeps each step waiting: it reads a tensor, prints, logs, or agrees on something.

## What happens

`loss.item()`, `.cpu()`, `.tolist()`, `if loss > best:` hand numbers from the device to Python, which waits until the
device has computed them; on a GPU nothing new is launched meanwhile. `outputs.tolist()` makes a Python object of each
number. `print` waits for who reads it, and `dist.all_reduce(loss)` or `dist.barrier()` for all ranks. Once in an epoch
that costs nothing; in each step it is paid in each step.

## How to be sure

`ddpdoctor run --profile 50 -- COMMAND` times these calls by line, while it measures steps closely. ddpdoctor finds a
line that takes a tenth of the step or more in the median step, and 2 ms or more, in nearly all of them: of
collectives on the rank that waits least, of the rest on the rank that takes longest. Only calls that your own lines
make by themselves count, outside the forward of a module, the backward and an optimizer's step, and of collectives
those of at most 1,024 numbers: a metric or a decision, not data that the training is made of. Before the calls are
timed, it is looked every few milliseconds where the thread is; of many calls in a step the line's share of that counts
where it is larger: timing makes calls longer. Where ranks wait for a core, it alone counts, and of collectives nothing
is said. On a GPU ddpdoctor shows the times, and does not judge them: Python waits there for kernels that have to be
computed anyway. Where torch.compile has compiled something, nothing is timed.

## How to mend it

Keep tensors, add them up (`total += loss.detach()`), and read, print and log once in a hundred steps or after the
epoch. Average a metric over the ranks there as well.

## Versions and sources

Holds for torch 2.2 to 2.13. Sources: PyTorch Tutorials, "Performance Tuning Guide", "Avoid unnecessary CPU-GPU
synchronization"; torch.distributed documentation.
"""

from __future__ import annotations

import linecache
import statistics
from collections.abc import Iterator

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
from ._steps import STEADY, on_cpu

AILMENT = Ailment("DDP906", Severity.NOTE)
MUCH = 0.1  # of a step
LEAST = 0.002  # seconds of a step
MANY = 16  # calls of a step
STARVED = 0.3  # of the time: beyond it, a call waits for a core
SHOWN = 4  # ranks
ALONE = ("Tensor.", "print", "logging")
"""What a rank does by itself: all others are collectives, in which it waits."""


@watch(StepsTimed)
def while_training(event: StepsTimed, training: Training) -> Iterator[Finding]:
    """Look for lines that take a large share of nearly each step."""
    on_cpu(event)
    told, measured = training.by_rank(CallsTimed), training.by_rank(Profiled)
    if not told or not measured:
        return
    busy = any(each.starved > STARVED for each in event.ranks)
    steps = {each.rank: each for each in event.ranks}
    total = statistics.median(value / 1e9 for each in measured.values() for value in each.total)
    by_line: dict[tuple[str, str, int], dict[int, TimedCall]] = {}
    for rank, each in told.items():
        for call in each.calls:
            if call.steps >= STEADY * each.steps:
                by_line.setdefault((call.what, call.file, call.line), {})[rank] = call
    for (what, *_), calls in by_line.items():
        alone = what.startswith(ALONE)
        if not alone and len(calls) < training.world_size:
            continue
        seconds = (max if alone else min)(each.nanoseconds for each in calls.values()) / 1e9
        shares = [_share(training, steps[rank], each) for rank, each in calls.items() if rank in steps]
        part, caller = max(shares, default=(0.0, ""))
        if (alone and part * total > seconds) or busy:
            seconds = part * total if alone else 0.0
        else:
            caller = ""
        if seconds >= max(LEAST, MUCH * total):
            yield _finding(what, calls, told, seconds, total, caller)


def _share(training: Training, rank: RankSteps, call: TimedCall) -> tuple[float, str]:
    """Return the share of its time that a rank spends for a call, before the calls were timed, and in which line.

    Of a function that the loop calls for many of them (a meter, a metric) the whole time counts: the loop can leave it
    out. A single call in a line is not blamed for what else the line does.
    """
    told = training.by_rank(LinesSampled).get(rank.rank)
    if told is None or call.times < MANY * call.steps:
        return 0.0, ""
    found = [(0.0, "")]
    for line in told.sampled:
        part = share(told, line, rank) if line.kind in {"", "logging"} else 0.0
        if (line.inner_file, line.inner_line) == (call.file, call.line):
            found.append((part * line.most / max(1, line.nanoseconds), ""))
        if (line.inner_file, line.inner_function) == (call.file, call.function) and line.function != call.function:
            found.append((part, f"{line.file}:{line.line}"))
    return max(found)


def _finding(  # noqa: PLR0913, PLR0917 - what is known of the line
    what: str, calls: dict[int, TimedCall], told: dict[int, CallsTimed], seconds: float, total: float, caller: str
) -> Finding:
    rank, call = max(calls.items(), key=lambda item: item[1].nanoseconds)
    often = call.times / told[rank].steps
    said = f"{what}()" if what.startswith("Tensor.") else what
    within = f", with all that {call.function}() does for it, called at {caller}," if caller else ""
    return Finding(
        f"{said} at {call.file}:{call.line}{within} takes {1e3 * seconds:.1f} ms of each step of {1e3 * total:.1f} ms: "
        f"{seconds / total:.0%}, {often:.3g} {'calls' if often > 1 else 'call'} a step",
        tuple(
            Evidence(
                f"{each.nanoseconds / 1e6:.1f} ms in the median step, {each.times} calls in {told[number].steps} steps",
                "none in most steps" if number == min(calls) else "",
                f"rank {number}",
            )
            for number, each in list(calls.items())[:SHOWN]
        ),
        _fix(what, call, seconds, total, caller),
        Place(file=call.file, line=call.line),
    )


def _fix(what: str, call: TimedCall, seconds: float, total: float, caller: str) -> Fix:
    promise = f"about {1e3 * (total - seconds):.1f} instead of {1e3 * total:.1f} ms a step"
    file, _, number = caller.rpartition(":")
    line = linecache.getline(file or call.file, int(number or call.line)).rstrip()
    whole = line.strip() and line.count("(") == line.count(")") and not line.rstrip().endswith((":", "\\", ","))
    diff = _sometimes(line) if whole else ""
    if what.startswith("Tensor."):
        return Fix(f"keep the tensor, and read it once in a hundred steps or after the epoch: {promise}", diff=diff)
    if what in {"print", "logging"}:
        return Fix(f"say it once in a hundred steps: {promise}", diff=diff)
    return Fix(
        "where the training does not need it in each step, let the ranks agree once in a hundred, in the same ones "
        f"on all ranks: {promise}",
        diff=diff,
    )


def _sometimes(line: str) -> str:
    """Return the line under a condition on the step."""
    indent = line[: len(line) - len(line.lstrip())]
    return f"-{line}\n+{indent}if step % 100 == 0:\n+{indent}    {line.strip()}"
