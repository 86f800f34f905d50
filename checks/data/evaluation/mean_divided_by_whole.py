"""What the ranks have counted is averaged instead of added up, and divided by the size of the whole data set.

## What happens

Each rank counts its hits, or sums its losses, over its own share. `fabric.all_reduce(hits)` gives the mean of the
ranks' hits, since `reduce_op="mean"` is its default, and so does `strategy.reduce` of Lightning; torch's own and
Accelerate's `reduce` add up, unless they are told otherwise. Divided by `len(loader.dataset)`, which is the length of
the whole, the accuracy is too small by the number of ranks: two ranks tell half of it. Nothing fails.

## How to be sure

Run on one device: the number is larger by the number of ranks. ddpdoctor (`ddpdoctor run`) reports an evaluation of
which each rank had its share, and a number of which was averaged afterwards and divided by the length of a loader's
data set, in a function that does not count the ranks.

## How to mend it

    hits = fabric.all_reduce(hits, reduce_op="sum")
    accuracy = hits / len(loader.dataset)

Where the sampler repeats samples so that all ranks have as many, count the samples as well, and divide by their sum.

## Versions and sources

Seen with Lightning 2.6. Source: lightning/fabric/fabric.py, `all_reduce`; lightning/fabric/strategies, `reduce`;
accelerate/accelerator.py, `reduce`. Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpdoctor.check import (
    FABRIC,
    LIGHTNING,
    Ailment,
    EpochStarted,
    Evaluated,
    Evidence,
    Finding,
    Fix,
    Severity,
    Site,
    Training,
    place,
    watch,
)

from ._averaged import averaging, divided_by_whole

AILMENT = Ailment("DDP1635", Severity.ERROR)
MOST = 64  # elements: one number for each class


@watch(Evaluated)
def while_training(event: Evaluated, training: Training) -> Iterator[Finding]:
    """Look for a number of an evaluation of shares that is averaged, and divided by the length of the whole."""
    told = training.complete(Evaluated, loader=event.loader, number=event.number, site=event.site)
    if not told or not all(_is_share(each, training) for each in told.values()):
        return
    framework = training.framework
    by_default = framework is not None and framework.name in {FABRIC.name, LIGHTNING.name}
    for operation, _, elements, file, line in event.sent:
        if operation != "all_reduce" or not 0 < elements <= MOST:
            continue
        site = Site(file, line, "")
        call = averaging(site, by_default=by_default)
        quotient = divided_by_whole(call, site) if call is not None else None
        if call is None or quotient is None:
            continue
        length = ast.unparse(quotient.right)
        yield Finding(
            f"the ranks' counts are averaged, and divided by {length}, the size of the whole: the quotient is "
            f"{len(told)} times too small",
            (
                Evidence(" ".join(ast.unparse(call).split()), "the sum over the ranks", f"{file}:{line}"),
                Evidence(" ".join(ast.unparse(quotient).split()), "", f"{file}:{quotient.lineno}"),
                *(Evidence(f"{_samples(each, training)} of {_whole(each, training)} samples", "", f"rank {rank}")
                  for rank, each in told.items()),
            )[:8],
            _mend(call),
            place(site),
        )  # fmt: skip
        return


def _started(told: Evaluated, training: Training) -> EpochStarted | None:
    found = training.of(EpochStarted, pid=told.pid, loader=told.loader, number=told.number)
    return found[-1] if found else None


def _is_share(told: Evaluated, training: Training) -> bool:
    """Whether a sampler gives this rank its share of what it goes through, one for each rank."""
    started = _started(told, training)
    if started is None or not told.complete or started.sampler is None or started.subgroups:
        return False
    return training.world_size > 1 and training.world_size in {started.sampler.replicas, started.sampler.shares}


def _samples(told: Evaluated, training: Training) -> int | None:
    started = _started(told, training)
    if started is None or started.sampler is None or started.sampler.length is None:
        return None
    return started.sampler.length // (started.sampler.shares or 1)


def _whole(told: Evaluated, training: Training) -> int | None:
    started = _started(told, training)
    return started.length if started is not None else None


def _mend(call: ast.Call) -> Fix:
    text, function = " ".join(ast.unparse(call).split()), ast.unparse(call.func)
    given = ast.unparse(call.args[0])
    told = {each.arg for each in call.keywords}
    if "op" in told:
        mended = f"{function}({given})"
    elif "reduction" in told:
        mended = f'{function}({given}, reduction="sum")'
    else:
        mended = f'{function}({given}, reduce_op="sum")'
    return Fix("add the counts up over the ranks", diff=f"-{text}\n+{mended}")
