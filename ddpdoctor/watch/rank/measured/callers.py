"""Whose line a call is made by: the script's own, or that of a library or of the training itself."""

from __future__ import annotations

import functools
from types import FrameType

from ddpdoctor.watch.user_frames import is_users, is_watchs

LOGS = {"log", "log_dict"}


BETWEEN = ("torch.distributed.distributed_c10d", "torch.distributed.c10d_logger", "logging", "contextlib", "functools")


INNER = ("/torch/nn/modules/module.py", "/torch/autograd/", "/torch/optim/optimizer.py")


def calling_line(frame: FrameType | None) -> tuple[FrameType | None, bool]:
    """Return the frame of the user's that makes a call by itself, and whether it logs by Lightning.

    None where another library, or torch, stands between, or where the training itself calls.
    """
    is_direct, last = True, None
    while frame is not None and not is_users(frame.f_code.co_filename):
        if frame.f_globals.get("__name__") not in BETWEEN and not is_watchs(frame.f_code.co_filename):
            is_direct, last = False, frame
        frame = frame.f_back
    if frame is not None and last is not None and _logs(last):
        return frame, True
    return (None if frame is None or not is_direct or _is_within_the_training(frame) else frame), False


def _logs(frame: FrameType) -> bool:
    """Whether a frame is the method of a LightningModule that logs."""
    module = str(frame.f_globals.get("__name__"))
    return frame.f_code.co_name in LOGS and module.endswith(".core.module") and "lightning" in module


def _is_within_the_training(frame: FrameType | None) -> bool:
    """Whether a module's forward, a backward or an optimizer's step has called: what is done there is needed there."""
    while frame is not None:
        if _is_inner(frame.f_code.co_filename):
            return True
        frame = frame.f_back
    return False


@functools.cache
def _is_inner(file: str) -> bool:
    path = file.replace("\\", "/")
    return any(inner in path for inner in INNER)
