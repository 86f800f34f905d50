"""torch.compile, torch.jit.trace: when they are called, nothing is replaced, and no hook set, that they would see."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch.rank.patch import Patch, patch

if TYPE_CHECKING:
    from ddpdoctor.watch.rank.recorder import Recorder


def hook(recorder: Recorder) -> list[Patch]:
    """Replace torch.compile, which modules and frameworks call as well, and what traces."""
    import torch

    return [
        patch(torch, "compile", _compiling(recorder)),
        patch(torch.jit, "trace", _compiling(recorder)),
        patch(torch.jit, "trace_module", _compiling(recorder)),
    ]


def _compiling(recorder: Recorder) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def compile(*args: Any, **kwargs: Any) -> Any:  # noqa: A001 - its name
            recorder.safely(recorder.ledger.quiet)
            recorder.safely(recorder.rows.quiet)
            return original(*args, **kwargs)

        return compile

    return wrap
