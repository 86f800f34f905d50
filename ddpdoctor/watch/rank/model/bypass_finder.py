"""Finds the line that calls a wrapped model, or a part of it, past its wrapper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddpdoctor.watch.events import Bypassed, Site
from ddpdoctor.watch.user_frames import frames, is_users, site_of, variables_of

if TYPE_CHECKING:
    from ddpdoctor.watch.rank.model.wrapped_model import Model
    from ddpdoctor.watch.rank.process import Process


def spot(recorder: Process, model: Model) -> None:
    """Wait for the next call of a module of the model, with gradients on, by torch's hook for all modules; once."""
    import torch
    from torch.nn.modules.module import register_module_forward_pre_hook

    wrapper = model.wrapper()
    if wrapper is None or model.spotted:
        return
    model.spotted = True
    parts = {id(module) for module in wrapper.module.modules()}

    def before_forward(module: Any, _: Any) -> None:
        if id(module) == id(wrapper) or id(module) in parts:
            handle.remove()
            if id(module) != id(wrapper) and torch.is_grad_enabled():
                recorder.safely(lambda: recorder.emit(Bypassed, model=model.number, site=_caller(parts)))

    handle = register_module_forward_pre_hook(before_forward)


def _caller(parts: set[int]) -> Site | None:
    """Return the innermost line of the user's that is not one of the model's own methods."""
    for frame in frames():
        if is_users(frame.f_code.co_filename) and id(variables_of(frame).get("self")) not in parts:
            return site_of(frame)
    return None
