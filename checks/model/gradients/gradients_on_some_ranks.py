"""A parameter has a gradient on some ranks only, where the script itself exchanges gradients.

## What happens

A part of the model that a rank's batch does not reach (an expert, a head, a branch) has no gradient there: `grad` is
None. A loop that exchanges `[p.grad for p in model.parameters() if p.grad is not None]` then gives other tensors to
the collective on each rank. Where their sizes happen to fit, nothing fails: the gradients of one part are added to
those of another, and the optimizer steps each part on the ranks alone that have reached it. The copies drift apart.

## How to be sure

ddpdoctor compares what the optimizers are given: parameters that began alike have no gradient on one rank, and on
another one that is not what it has computed, twice.

## How to mend it

Put zeros where there is no gradient, so that all ranks exchange the same list. DDP does so with
`find_unused_parameters=True`.

Silent under DDP, where parameters are exchanged besides, and where a rank steps with its own (experts that are a
rank's own).

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, torch.distributed.all_reduce:
the tensor must have the same number of elements on all ranks, and nothing says whose gradient it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Severity, StepFingerprinted, Training, watch

from ..._ledgers.ledger import data_parallel_sheets
from ..._ledgers.sheets import NEVER, Line, Sheet
from ..._ledgers.wordings import line_of
from .._words import counted, listed

AILMENT = Ailment("DDP1522", Severity.ERROR)
SURE = 2  # steps
EXACT = 1e-4


@watch(StepFingerprinted)
def while_training(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    """Look for parameters with a gradient on some ranks, in steps before which others were exchanged."""
    steps = data_parallel_sheets(event, training, SURE)
    if not steps or any(each.exchanged("parameter") for each in steps):
        return
    found = [lines for each in steps if (lines := _on_some(each))]
    if len(found) != SURE or not _on_some(steps[-1]):
        return
    last, lines = steps[-1], found[-1]
    have = [str(rank) for rank, each in zip(last.ranks, lines[0].given, strict=True) if each is not None]
    exchanged = [each for each in last.exchanged("gradient") if each.when == "after backward"]
    yield Finding(
        f"{counted(len(lines), 'parameter')} {'has' if len(lines) == 1 else 'have'} a gradient on some ranks only, "
        f"which alone step {'it' if len(lines) == 1 else 'them'}: " + listed([each.name for each in lines], 4),
        (
            Evidence(
                f"{lines[0].name} has a gradient on rank {', '.join(have)}, and none on the others",
                "on all ranks",
                f"step {last.number}",
            ),
            Evidence("it is not what that rank has computed: gradients of several parts are mixed up", "", "same step"),
        ),
        Fix(
            "put zeros where there is no gradient, before the exchange",
            diff="+for parameter in model.parameters():\n+    if parameter.grad is None:\n"
            "+        parameter.grad = torch.zeros_like(parameter)\n"
            " for parameter in model.parameters():\n     dist.all_reduce(parameter.grad)",
        ),
        line_of(exchanged[0]),
    )


def _on_some(step: Sheet) -> list[Line]:
    """List the parameters that some ranks have no gradient of, and others one that came of an exchange."""
    by_hand = any(each.when == "after backward" for each in step.exchanged("gradient"))
    return [line for line in step.lines if by_hand and line.replica and line.managed == NEVER and _is_mixed(line)]


def _is_mixed(line: Line) -> bool:
    have = [rank for rank, each in enumerate(line.given) if each is not None]
    if not 0 < len(have) < len(line.given):
        return False
    own = [line.times_own(rank) for rank in have]
    return all(each is None or not math.isclose(each, 1, rel_tol=EXACT) for each in own)
