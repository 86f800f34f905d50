"""Methods of a model that a traceback shows to be called beside its forward."""

from __future__ import annotations

from collections.abc import Sequence

from ddpdoctor.check import Frame

NO_METHODS = frozenset({"forward", "__call__", "<module>", "main", "train", "step", "<lambda>"})
LAYERS = "torch/nn/modules/"


def method_beside_forward(frames: Sequence[Frame]) -> str:
    """Return the user's own function that called a layer, where no forward of a module of theirs is around it."""
    last = calls_layer(frames)
    return "" if last in NO_METHODS else last


def calls_layer(frames: Sequence[Frame]) -> str:
    """Return the user's own function, whatever it is, that called a layer, where no forward of theirs is around it."""
    users = [at for at, each in enumerate(frames) if each.is_users]
    if not users or users[-1] + 1 >= len(frames):
        return ""
    around = frames[: users[-1] + 1]
    called = any(each.function == "forward" and LAYERS not in each.file for each in around)
    return around[-1].function if LAYERS in frames[users[-1] + 1].file and not called else ""
