"""Gradients that are asked for, and not added up: torch.autograd.grad, and torch.func, which calls it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch.rank.patch import Patch, Wrap, patch

if TYPE_CHECKING:
    from ddpdoctor.watch.rank.recorder import Recorder

ENGINE = "_engine_run_backward"  # what both of torch's ways to gradients call in the end; since torch 2.3
INPUTS = 4  # place of what gradients are asked for, after outputs, their gradients and two flags


def hook(recorder: Recorder) -> list[Patch]:
    """Be told of each such call when it has ended. A name that compiled code never sees is replaced."""
    import torch

    return [patch(torch.autograd, ENGINE, _asked(recorder))] if hasattr(torch.autograd, ENGINE) else []


def _asked(recorder: Recorder) -> Wrap:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            if kwargs.get("accumulate_grad", True) or recorder.log is None or recorder.functional.off:
                return result
            if len(args) > INPUTS and not recorder.exchanges.in_backward:
                recorder.safely(recorder.functional.computed, args[INPUTS], result)
            return result

        return run

    return wrap
