"""The optimizer goes through the parameters one by one, and its step takes a large part of the time.

## What happens

On a CPU, and with `foreach=False` anywhere, `torch.optim.Adam`, `AdamW` and `SGD` update each parameter by itself, in
half a dozen operations. With hundreds of parameters these are thousands of calls a step, and of large ones each is
read from memory half a dozen times. `fused=True` does all of it in one pass.

## How to be sure

`ddpdoctor run --profile 50 -- COMMAND` shows the optimizer's share of a step. ddpdoctor finds it where three tenths of
what the thread computes, and 3 ms of a step, go to an `Adam`, `AdamW` or `SGD` of torch that is not fused, on a CPU.
For 300 parameters of 8 x 8 up to 20 of 512 x 512 the fused step took an eighth to two fifths of the time of Adam's, and
a fifth to two thirds of that of SGD with momentum (torch 2.13, one thread).

## How to mend it

`torch.optim.AdamW(model.parameters(), fused=True)`. On a CPU since torch 2.4; not with sparse gradients. The results
are the same but for the rounding of the last digit.

## Versions and sources

Holds for torch 2.4 to 2.13. Source: PyTorch documentation, `torch.optim`, "Algorithms", `fused`.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Fix,
    LineKind,
    LinesSampled,
    OptimizerSeen,
    Place,
    Profiled,
    Severity,
    StepFingerprinted,
    StepsTimed,
    Training,
    watch,
)

from .._lines import computed
from .._steps import on_cpu

AILMENT = Ailment("DDP916", Severity.NOTE)
MUCH, LEAST = 0.3, 0.003  # of what the thread computes; seconds of a step
TAKES = {"Adam": (0.12, 0.41), "AdamW": (0.12, 0.41), "SGD": (0.2, 0.63)}
"""What part of its time a fused step took, as measured: the least and the most."""
SHOWN = 4  # ranks


@watch(StepsTimed)
def while_training(event: StepsTimed, training: Training) -> Iterator[Finding]:
    """Compare what each rank's only optimizer takes with all that the rank computes."""
    on_cpu(event)
    measured, sampled = training.complete(Profiled), training.complete(LinesSampled)
    seen = training.of(OptimizerSeen)
    steps = training.of(StepFingerprinted)
    kinds = {each.kind for each in seen}
    if not measured or not sampled or not steps or len(kinds) != 1 or not kinds <= TAKES.keys():
        return
    if any(("fused", "True") in group for each in steps for group in each.options):
        return
    shares = {rank: computed(training, rank, LineKind.OPTIMIZER) for rank in sampled}
    part = min(shares.values())
    computes = statistics.median(value / 1e9 for each in measured.values() for value in each.worked)
    if part < MUCH or part * computes < LEAST:
        return
    kind, took = kinds.pop(), part * computes
    least, most = (1e3 * each * took for each in TAKES[kind])
    line = next(line for told in sampled.values() for line in told.sampled if line.kind == LineKind.OPTIMIZER)
    yield Finding(
        f"the step of {kind} takes {1e3 * took:.1f} of the {1e3 * computes:.1f} ms that a rank computes a step, "
        f"{part:.0%}, parameter by parameter",
        tuple(
            Evidence(f"{each:.0%} of what it computes in the optimizer's step", "" if at else "fused=True",
                     f"rank {rank}, {sampled[rank].steps} steps")
            for at, (rank, each) in enumerate(list(shares.items())[:SHOWN])
        ),
        Fix(f"let one call do it; its part is about {least:.1f} to {most:.1f} instead of {1e3 * took:.1f} ms then "
            "(on a CPU since torch 2.4; not with sparse gradients)",
            diff=f"-torch.optim.{kind}(model.parameters(), ...)\n+torch.optim.{kind}(model.parameters(), ..., "
            "fused=True)"),
        Place(file=line.file, line=line.line),
    )  # fmt: skip
