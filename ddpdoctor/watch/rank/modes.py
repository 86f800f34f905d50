"""Training mode and evaluation mode, as the layers of a wrapped model have it."""

from __future__ import annotations

from typing import Any


def is_training(model: Any) -> bool:
    """Whether what a wrapper wraps is in training mode: Lightning leaves its wrapper in evaluation mode."""
    return bool(getattr(getattr(model, "module", None), "training", model.training))
