"""The optimizer steps, and none of the sharded parameters that it holds has a gradient.

## What happens

FSDP2 keeps the gradient of a backward whole, and apart from the parameter, while `set_requires_gradient_sync(False)`
holds; only a backward with it switched on again reduces it to the shards that the optimizer holds. Where it is never
switched on, or at the wrong micro-batch, every step finds no gradient, skips every parameter, and the model stays as it
was: nothing fails, and the whole gradients take memory.

## How to be sure

Before two sampled steps after one another there were backwards, and none of the shards had a gradient.

## How to mend it

    model.set_requires_gradient_sync(last)
    loss.backward()
    if last:
        optimizer.step()

## Versions and sources

Seen with torch 2.13, gloo, two ranks. Source: PyTorch documentation, `FSDPModule.set_requires_gradient_sync`.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Severity, StepFingerprinted, Training, place, watch

from ..._ledgers.calls import calls_of
from ..._ledgers.ledger import built

AILMENT = Ailment("DDP1506", Severity.ERROR)
SYNC = frozenset({"set_requires_gradient_sync"})
FIX = Fix(
    "reduce gradients in the last backward before each step",
    diff="+model.set_requires_gradient_sync((i + 1) % accumulate == 0)\n loss.backward()\n"
    " if (i + 1) % accumulate == 0:\n     optimizer.step()",
)


@watch(StepFingerprinted)
def while_training(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    """Count the shards without a gradient before two steps."""
    last = next(training.before(event, optimizer=event.optimizer), None)
    held = built(event, training)
    if last is None or held is None or event.rank != 0 or not held.shards or any(event.given):
        return
    before = next(training.before(last, optimizer=event.optimizer), None)
    told = before is not None and before.bare >= event.bare and last.backwards > before.backwards
    if told or not 0 < event.bare == last.bare == held.shards or event.backwards <= last.backwards:
        return
    calls = calls_of({event.site.file}, SYNC) if event.site is not None else []
    yield Finding(
        f"none of {held.shards} sharded parameters has a gradient when {held.kind} steps: it changes nothing",
        (
            Evidence(
                f"no gradient of {event.bare} shards before step {event.number}, after {event.backwards} backwards",
                "a gradient of each",
                f"rank {event.rank}",
            ),
            Evidence(f"the same before step {last.number}", "", f"rank {event.rank}"),
        ),
        FIX,
        calls[0] if len(calls) == 1 else place(event.site),
    )
