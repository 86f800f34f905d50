"""Training mode and evaluation mode, as the layers of a wrapped model have it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from ddpdoctor.watch.user_frames import is_users

LAYERS = "torch.nn.modules."
DETECTORS = "torchvision.models.detection."
MOST = 4  # names that are told


def is_training(model: Any) -> bool:
    """Whether what a wrapper wraps is in training mode: Lightning leaves its wrapper in evaluation mode."""
    return bool(getattr(getattr(model, "module", None), "training", model.training))


def telling(model: Any, *, training: bool) -> tuple[str, ...]:
    """Name the first parts of a model that compute otherwise in the other mode, and are in this one."""
    return tuple(islice(_telling(model, training), MOST))


def _telling(model: Any, training: bool) -> Iterator[str]:  # noqa: FBT001 - the mode itself
    for name, part in model.named_modules():
        if part.training is training and _tells(part):
            yield f"{name.removeprefix('module.') or 'forward'} ({type(part).__name__})"


def _tells(part: Any) -> bool:
    """Whether a module drops something, keeps statistics, or asks for its mode in its forward.

    That is the user's own, or a detector's of torchvision, which returns its losses in training mode alone.
    """
    file = type(part).__module__
    if file == f"{LAYERS}dropout":
        return bool(part.p > 0)
    if file == f"{LAYERS}batchnorm":
        return bool(part.track_running_stats)
    if file == f"{LAYERS}rnn":
        return bool(getattr(part, "dropout", 0)) and part.num_layers > 1
    code = getattr(type(part).forward, "__code__", None)
    if code is None or "training" not in code.co_names:
        return False
    return file.startswith(DETECTORS) or is_users(code.co_filename)
