"""Gradients of DeepSpeed's engine are clipped by torch, when ZeRO has taken them from the parameters.

## What happens

Under ZeRO the engine averages gradients while backward runs, keeps each rank's part in buffers of its own, and clears
`parameter.grad`. `torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)` then finds no gradient, returns a norm of 0,
and clips nothing: the engine steps with gradients of any size.

## How to be sure

Print what `clip_grad_norm_` returns: 0. In a running training (`ddpdoctor run`) the script clipped parameters of the
engine's model, under ZeRO 1 to 3, and none of them had a gradient.

## How to mend it

Set `gradient_clipping` in DeepSpeed's config: `engine.step()` clips by the norm of all ranks' parts. What that was is
told by `engine.get_global_grad_norm()`.

## Versions and sources

Source: DeepSpeed documentation, "DeepSpeed Configuration JSON", gradient clipping. Seen with DeepSpeed 0.19 and torch
2.13 CPU; in a running training with torch 2.4 and later.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import Ailment, EngineClipped, Evidence, Finding, Fix, Severity, place, watch

AILMENT = Ailment("DDP1564", Severity.ERROR)


@watch(EngineClipped)
def while_training(event: EngineClipped) -> Iterator[Finding]:
    """Report it once for the training, by rank 0."""
    if event.rank == 0:
        yield Finding(
            f"clip_grad_norm_ clips nothing: under ZeRO {event.stage} DeepSpeed has taken the gradients already",
            (
                Evidence(
                    f"none of {event.parameters} parameters has a gradient",
                    "gradients to clip",
                    "rank 0",
                ),
            ),
            Fix(
                "let the engine clip, by its config",
                diff="-torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n engine.step()\n"
                '+"gradient_clipping": 1.0,   # in the config of DeepSpeed',
            ),
            place(event.site),
        )
