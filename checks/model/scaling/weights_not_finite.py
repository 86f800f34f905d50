"""The weights are no numbers any more: the training goes on, and computes nothing.

## What happens

One loss that is NaN or infinite is enough: its gradient is, and DDP's average gives it to all ranks. The optimizer then
writes NaN into the weights, and into its own averages, and nothing takes it out again. No error comes: the loss prints
as `nan`, comparisons with it are false, the best checkpoint is never replaced, and the job runs to its end. It begins
on one rank alone as a rule, with one batch: the rank that prints is often another.

## How to be sure

ddpdoctor reads fingerprints of the weights of each rank before sampled steps, and names the step in which one is not
finite, and the last one before it in which all were. On a CPU it reads the loss of each backward as well, and names
the step and the rank whose loss was the first; elsewhere reading would wait for the device, and the rank is named only
where its own gradient was not finite in a step that is compared. Where each rank has a part of each parameter (FSDP),
it is told once the losses of all ranks are no numbers in two compared steps, one after the other.

Silent for gradients that are not finite while the weights are (a GradScaler leaves such steps out), and for weights
that were not finite before the first step while the loss is.

## How to mend it

Stop where it begins, and look at the batch of that rank: rows without a valid label, a logarithm or a root of 0, a
division by a count that is 0, a mask that hides all of a row. `torch.autograd.set_detect_anomaly(True)` names the
operation. Where nothing is wrong with the batch: a smaller learning rate, a longer warm-up, clipped gradients, bfloat16
in place of float16. Resume from a checkpoint of before, and not with the optimizer's state of after.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, "Automatic Mixed Precision
examples", and "Anomaly detection".
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Fix,
    LossNotFinite,
    Place,
    Severity,
    StepFingerprinted,
    Training,
    place,
    watch,
)

from ..._ledgers.ledger import built, of_all_ranks
from .._alike import earlier
from ._without_values import without_values

if TYPE_CHECKING:
    from ..._ledgers.sheets import Print

AILMENT = Ailment("DDP1579", Severity.ERROR)
SHOWN = 8  # ranks
BEFORE = " (it began there, or with a gradient of the step before)"
Ranks = dict[int, StepFingerprinted]
FIX = Fix(
    "stop at the first loss that is no number, and say whose it is; then look at that batch",
    diff="+if not torch.isfinite(loss):\n"
    '+    raise RuntimeError(f"rank {dist.get_rank()}, step {step}: loss {loss.item()}, "\n'
    '+                       f"inputs finite: {bool(torch.isfinite(inputs).all())}")\n'
    " loss.backward()",
)


@watch(StepFingerprinted)
def while_training(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    """Look for the first compared step before which weights are not finite that were so before."""
    ranks, held = of_all_ranks(event, training), built(event, training)
    broken = {rank: places for rank, each in ranks.items() if (places := _not_finite(each.values))}
    if not broken or held is None or any(_is_finite(each.loss) for each in ranks.values()):
        return
    past = list(earlier(event, training, of_all_ranks))
    if any(_not_finite(each.values) for step in past for each in step.values()):
        return  # told there
    last, first = (past[0] if past else {}), broken[min(broken)]
    where = "all ranks" if len(broken) == len(ranks) else f"rank {', '.join(map(str, broken))}"
    evidence = Evidence(
        f"NaN or infinite: {held.names[first[0]]}{' and others' if first[1:] else ''}",
        f"finite, as before step {_number(last)}" if last else "finite",
        f"{where}, before step {event.number}",
    )
    what = f"{len(first)} of {len(held.names)} parameters are no numbers any more on {where}"
    yield _finding(what, evidence, ranks, last, training)


@watch(StepFingerprinted)
def of_parts(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    """Look for losses that stay no numbers, where each rank holds a part of each parameter."""
    ranks = of_all_ranks(event, training)
    if not ranks or any(_is_number(each) or any(map(bool, each.values)) for each in ranks.values()):
        return
    past = list(earlier(event, training, of_all_ranks))
    lost = [not any(map(_is_number, step.values())) for step in past]
    if lost[:2] == [True, False] or lost == [True]:
        last = past[1] if past[1:] else {}
        found = _finding("the loss is no number any more on all ranks", None, ranks, last, training)
        yield found if last else without_values(found)


def _finding(what: str, evidence: Evidence | None, ranks: Ranks, last: Ranks, training: Training) -> Finding:
    """Tell with what it began: ``last`` is the last compared step in which all was finite."""
    event = next(iter(ranks.values()))
    losses, gradients = _first_losses(training, _number(last)), [*_gradients(last)]
    site = next((each.site for each in losses if each.site), None)
    backward = Place(file=event.backward[0], line=event.backward[1]) if event.backward[0] else place(event.site)
    return Finding(
        f"{what}: {_since(_number(last), event.number, losses)}, and nothing is trained since then",
        (
            *([evidence] if evidence else []),
            *_of_losses(losses),
            *gradients,
            *(
                Evidence(f"loss {each.loss}", "finite", f"rank {rank}, step {event.number}")
                for rank, each in list(ranks.items())[:SHOWN]
                if each.loss is not None and not losses and not gradients
            ),
        ),
        FIX,
        place(site) if site else backward,
    )


def _number(step: Ranks) -> int:
    """Return the number of a step; 0 of none."""
    return next((each.number for each in step.values()), 0)


def _is_number(step: StepFingerprinted) -> bool:
    """Whether the loss of a step is finite, or not known."""
    return step.loss is None or math.isfinite(step.loss)


def _since(finite: int, broken: int, losses: Sequence[LossNotFinite]) -> str:
    """Return when it began, and on which rank: where the losses of a CPU tell it, else between two compared steps."""
    if losses and len({each.steps for each in losses}) > 1:
        return f"the loss of rank {losses[0].rank} was the first, in step {losses[0].steps + 1}"
    if losses:
        return f"the loss was no number in step {losses[0].steps + 1}, on {_ranks(losses)} at once{BEFORE}"
    between = f"in one of the steps {finite} to {broken - 1}" if finite < broken - 1 else f"in step {broken - 1}"
    return f"it began {between}" if finite else f"it began before step {broken}"


def _ranks(losses: Sequence[LossNotFinite]) -> str:
    numbers = ", ".join(str(each.rank) for each in losses[:SHOWN])
    return f"ranks {numbers}" if losses[1:] else f"rank {numbers}"


def _first_losses(training: Training, finite: int) -> list[LossNotFinite]:
    """Return the first loss of each rank that was not finite, earliest first, if no weights were read after it.

    A loss before that, whose step a scaler has left out, tells nothing.
    """
    told = sorted(training.by_rank(LossNotFinite).values(), key=lambda each: (each.steps, each.rank or 0))
    return told if told and told[0].steps >= finite - 1 else []


def _of_losses(losses: Sequence[LossNotFinite]) -> Iterator[Evidence]:
    for each in losses[:SHOWN]:
        first = each.steps == losses[0].steps
        after = "" if first else ", after the exchange had given it to this rank's weights"
        yield Evidence(
            f"loss {each.value} for the first time in step {each.steps + 1}{after}",
            "finite" if first else "",
            f"rank {each.rank}, {each.site}" if each.site else f"rank {each.rank}",
        )


def _gradients(last: Ranks) -> Iterator[Evidence]:
    """Yield of the last step whose weights were finite which rank's own gradient was, if one's was not."""
    broken = {rank for rank, each in last.items() if _not_finite(each.local)}
    for rank, each in list(last.items())[:SHOWN] if broken else []:
        yield Evidence(
            f"own gradient {'NaN or infinite' if rank in broken else 'finite'}",
            "finite" if rank in broken else "",
            f"rank {rank}, step {each.number}, before the exchange",
        )


def _not_finite(prints: tuple[Print | None, ...]) -> list[int]:
    """Return the places of fingerprints that hold NaN or an infinite number."""
    return [at for at, each in enumerate(prints) if each is not None and not math.isfinite(each[-1])]


def _is_finite(loss: float | None) -> bool:
    return loss is not None and math.isfinite(loss)
