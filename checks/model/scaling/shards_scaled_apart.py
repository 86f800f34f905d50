"""Each rank multiplies its part of a sharded gradient by a number of its own.

## What happens

FSDP leaves each rank with a part of each gradient. A clipping of the script's own, adaptive clipping or a
normalisation by `grad.norm()` then sees the norm of that part, as if it were the whole, and each rank scales by another
factor: the parts of one gradient no longer belong together. The step goes in another direction than the gradient, and
another one with another number of ranks; nothing fails.

## How to be sure

ddpdoctor takes fingerprints of each rank's part in sampled steps, when backward has left it and right before the
optimizer's step. Here the part of each rank is a multiple of what backward had left, and the multiples of the ranks
differ, in two compared steps. Element-wise changes (clamping, noise, weight decay) are no multiple: nothing is said of
them, nor of parameters that one rank holds alone.

## How to mend it

The norm of the whole is that of all parts together:

    total = sum(p.grad.float().square().sum() for p in model.parameters() if p.grad is not None)
    dist.all_reduce(total)
    total = total.sqrt()

FullyShardedDataParallel does this in `model.clip_grad_norm_(1.0)`; with `fully_shard`,
`torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)` is right, and so is `grad.norm()` of a DTensor that was not
made local.

## Versions and sources

Holds for FSDP1 and FSDP2 of torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation,
FullyShardedDataParallel.clip_grad_norm_.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Fix,
    Place,
    Severity,
    Sharded,
    ShardedGradient,
    ShardsClipped,
    ShardsScaled,
    StepFingerprinted,
    Training,
    place,
    watch,
)

from ..._ledgers.calls import calls_of
from ..._ledgers.ledger import of_all_ranks
from ..._ledgers.sheets import multiple_of

AILMENT = Ailment("DDP1550", Severity.ERROR)
SURE = 2  # steps
EXACT = 5e-3  # of a multiple: what is rounded to 16 bits is one still
APART = 0.02  # relative
SCALING = frozenset({"mul_", "div_", "_foreach_mul_", "_foreach_div_", "_foreach_mul", "copy_"})
OF_FSDP1 = Fix(
    "take the norm of the whole: let FullyShardedDataParallel clip, or add up the squares of all ranks",
    diff="-norm = torch.sqrt(sum(p.grad.square().sum() for p in model.parameters()))\n"
    "+square = sum(p.grad.square().sum() for p in model.parameters())\n+dist.all_reduce(square)\n"
    "+norm = square.sqrt()\nor\n+model.clip_grad_norm_(max_norm)",
)
OF_FSDP2 = Fix(
    "take the norm of the whole: of the DTensor, not of its local part",
    diff="-norm = p.grad.to_local().norm()\n+norm = p.grad.norm().full_tensor()   # called by all ranks\n"
    "or\n+torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)",
)


class Scaled(NamedTuple):
    """A gradient, and by what each rank has multiplied its part of it."""

    name: str
    factors: dict[int, float]


@watch(StepFingerprinted)
def while_training(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    """Compare the multiples of one gradient, in this step and in one before."""
    found = _scaled(event, training)
    is_told = bool(training.of(ShardsClipped)) or bool(training.of(ShardsScaled))
    if found is None or is_told:
        return
    before = [each for each in training.before(event, optimizer=event.optimizer) if each.number < event.number]
    if sum(_scaled(each, training) is not None for each in before) != SURE - 1:
        return  # too early, or told
    shown = ", ".join(f"{factor:.4g} on rank {rank}" for rank, factor in list(found.factors.items())[:8])
    by_class = any(each.api == "FullyShardedDataParallel" for each in training.of(Sharded))
    yield Finding(
        f"each rank multiplies its part of the gradient by another number: {shown}",
        (
            Evidence(
                f"{found.name}: {shown} times what backward has left",
                "the same on all ranks",
                f"right before step {event.number}",
            ),
        ),
        OF_FSDP1 if by_class else OF_FSDP2,
        _place(event),
    )


def _scaled(event: StepFingerprinted, training: Training) -> Scaled | None:
    """Return the gradient for which the ranks' multiples differ most; None where all are equal, or not known."""
    ranks = of_all_ranks(event, training) if event.parts else {}
    parts = {rank: {each.name: each for each in told.parts} for rank, told in ranks.items()}
    found = []
    for name in next(iter(parts.values()), {}):
        factors = {rank: _multiple(each.get(name)) for rank, each in parts.items()}
        known = {rank: factor for rank, factor in factors.items() if factor is not None}
        if len(known) == len(factors) and max(known.values()) - min(known.values()) > APART * max(known.values()):
            found.append(Scaled(name, known))
    return max(found, key=lambda each: max(each.factors.values()) / min(each.factors.values()), default=None)


def _multiple(part: ShardedGradient | None) -> float | None:
    return multiple_of(part.given, part.left, EXACT) if part is not None else None


def _place(event: StepFingerprinted) -> Place:
    """Return the one line of the script's that scales a gradient, else that of the step."""
    lines = calls_of({event.site.file}, SCALING, about="grad") if event.site else []
    return lines[0] if len(lines) == 1 else place(event.site)
