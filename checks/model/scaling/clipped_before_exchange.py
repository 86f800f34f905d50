"""Each rank clips its gradients by their own norm, and they are averaged only then.

## What happens

Clipping by norm is to scale one gradient: the mean of all ranks. Before the exchange each rank scales its own, by
another factor: what is averaged is no gradient of the loss any more, its norm is below the limit by an unknown
amount, and a rank with large gradients counts for less. So it goes by hand where `clip_grad_norm_` stands before the
`all_reduce`, and with DDP where it stands in a loop over micro-batches, of which all but the last are within `no_sync`.

## How to be sure

In two sampled steps gradients were clipped, on some rank by a norm above the limit, before anything was exchanged;
the step was given the same gradients on all ranks.

## How to mend it

Exchange first; clip once, right before the step:

    loss.backward()
    average_gradients(model)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()

## Versions and sources

Holds for torch 2.4 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, `clip_grad_norm_`;
"DistributedDataParallel", no_sync.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import (
    ACCELERATE,
    HOROVOD,
    Ailment,
    Clip,
    Evidence,
    Finding,
    Fix,
    Framework,
    Place,
    Severity,
    StepFingerprinted,
    Training,
    watch,
)

from ..._ledgers.ledger import data_parallel_sheets
from ..._ledgers.sheets import NEVER, Sheet

AILMENT = Ailment("DDP1505", Severity.WARNING)
SURE = 2
LITTLE = 100  # times fewer elements than gradients: a loss that is averaged for the log
BY_HAND = Fix(
    "exchange the gradients, then clip them",
    diff="-torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n average_gradients(model)\n"
    "+torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n optimizer.step()",
)
WITH_DDP = Fix(
    "clip once, right before the step",
    diff="-torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n if (i + 1) % accumulate == 0:\n"
    "+    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n     optimizer.step()",
)
WITH_ACCELERATE = Fix(
    "clip once, right before the step",
    diff="-accelerator.clip_grad_norm_(model.parameters(), 1.0)\n+if accelerator.sync_gradients:\n"
    "+    accelerator.clip_grad_norm_(model.parameters(), 1.0)\n optimizer.step()",
)
WITH_HOROVOD = Fix(
    "await the averaged gradients, clip them, and step without averaging them again",
    diff=" loss.backward()\n+optimizer.synchronize()\n torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
    "-optimizer.step()\n+with optimizer.skip_synchronize():\n+    optimizer.step()",
)


@watch(StepFingerprinted)
def while_training(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    """Look at what was clipped before it was exchanged."""
    steps = data_parallel_sheets(event, training, SURE) if event.clips else []
    if (
        len(steps) < SURE
        or not all(_early(each) for each in steps[-SURE:])
        or (len(steps) > SURE and all(_early(each) for each in steps[-SURE - 1 : -1]))
    ):
        return
    step = steps[-1]
    clips = _early(step)
    by_hand = all(each.synced for each in clips.values())
    first = next(iter(clips.values()))
    yield Finding(
        f"{len(step.ranks)} ranks clip their gradients each by its own norm, before these are averaged",
        tuple(
            Evidence(
                f"norm {each.norm:.4g} clipped to {each.most:.4g}",
                "the norm of the averaged gradient, on all ranks",
                f"rank {rank}, {'before the exchange' if by_hand else 'within no_sync'} of step {step.number}",
            )
            for rank, each in list(clips.items())[:8]
        ),
        _fix(training.framework, by_hand=by_hand),
        Place(file=first.file, line=first.line),
    )


def _fix(framework: Framework | None, *, by_hand: bool) -> Fix:
    if framework is HOROVOD:
        return WITH_HOROVOD
    if by_hand:
        return BY_HAND
    return WITH_ACCELERATE if framework is ACCELERATE else WITH_DDP


def _early(step: Sheet) -> dict[int, Clip]:
    """Return by rank what clipped gradients that are exchanged afterwards; empty where nothing did."""
    telling = step.lines_that_tell
    if not telling or not all(line.shared for line in telling):
        return {}
    by_hand = all(line.managed == NEVER for line in telling)
    found = {}
    for rank, each in step.ranks.items():
        early = [
            clip
            for clip in each.clips
            if (by_hand and clip.reduced * LITTLE < step.elements) or (not by_hand and not clip.synced)
        ]
        if early:
            found[rank] = max(early, key=lambda clip: clip.norm)
    counts = len(found) == len(step.ranks) and len({each.norm for each in found.values()}) > 1
    return found if counts and any(each.norm > each.most for each in found.values()) else {}
