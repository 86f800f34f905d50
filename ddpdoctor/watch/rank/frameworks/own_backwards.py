"""What the backward of a framework does that torch's own does not."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddpdoctor.watch.rank.model.models import Models


def gradient_state() -> dict[str, Any] | None:
    """Return what Accelerate shares about gradients in this process; None where it is not in use."""
    state = sys.modules.get("accelerate.state")
    shared = getattr(getattr(state, "GradientState", None), "_shared_state", None)
    return dict(shared) if shared else None


def accumulation(state: dict[str, Any]) -> int:
    """Return over how many steps Accelerate adds gradients up; 1 where it does not."""
    steps = state.get("plugin_kwargs", {}).get("num_steps", 1)
    return steps if isinstance(steps, int) else 1


def by_accelerate() -> tuple[str, str] | None:
    """Return Accelerate's own backward, and what it does besides; None where it does nothing."""
    shared = (
        getattr(getattr(sys.modules.get("accelerate.state"), "AcceleratorState", None), "_shared_state", None) or {}
    )
    if shared.get("_mixed_precision") == "fp16" and getattr(shared.get("device"), "type", "") != "cpu":
        return "accelerator.backward(loss)", "the loss is not scaled for float16"
    return divides_loss("accelerator.backward(loss)", accumulation(gradient_state() or {}))


def divides_loss(right: str, steps: int) -> tuple[str, str] | None:
    """Return what a framework's own backward does where it accumulates."""
    return (right, f"it is not divided by the {steps} steps of accumulation") if steps > 1 else None


def by_hand(models: Models) -> tuple[str, str] | None:
    """Return Lightning's backward of manual optimization, without which DDP is not told to reduce."""
    wrappers = [model.wrapper() for model in models.alive()]
    if any(getattr(getattr(each, "module", None), "automatic_optimization", True) is False for each in wrappers):
        return "self.manual_backward(loss)", "DDP does not average the gradients: manual_backward has it do so"
    return None
