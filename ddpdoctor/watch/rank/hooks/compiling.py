"""torch.compile, torch.export and what else traces: when they are called, nothing is replaced, and no hook is set."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ddpdoctor.on_import import Awaited, when_imported
from ddpdoctor.watch.rank.patch import Wrap, patch

if TYPE_CHECKING:
    from types import ModuleType

    from ddpdoctor.watch.rank.recorder import Recorder

TRACE = {
    "torch": ("compile",),
    "torch.jit": ("trace", "trace_module", "_get_trace_graph"),
    "torch.export": ("export", "export_for_training", "export_for_inference"),
    "torch.onnx": ("export", "dynamo_export"),
    "torch._dynamo": ("export",),
    "torch.fx": ("symbolic_trace",),
}
"""What compiles or traces a model, by module; which of it there is depends on torch's version."""


def hook(recorder: Recorder) -> list[Awaited]:
    """Replace what compiles or traces, which modules and frameworks call as well, once it is imported."""
    return [when_imported(name, functools.partial(_replace, recorder, names)) for name, names in TRACE.items()]


def _replace(recorder: Recorder, names: tuple[str, ...], module: ModuleType) -> None:
    recorder.late += [patch(module, name, _tracing(recorder)) for name in names if hasattr(module, name)]


def _tracing(recorder: Recorder) -> Wrap:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def trace(*args: Any, **kwargs: Any) -> Any:
            for quiet in (recorder.ledger.quiet, recorder.rows.quiet, recorder.evaluations.quiet):
                recorder.safely(quiet)
            return original(*args, **kwargs)

        return trace

    return wrap
