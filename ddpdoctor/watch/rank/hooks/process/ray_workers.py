"""Where Ray Train catches what ends the training function of a worker: the exception never leaves the process."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ddpdoctor.on_import import Awaited, when_imported
from ddpdoctor.watch.rank.end.traceback_format import is_error
from ddpdoctor.watch.rank.patch import Wrap, patch

if TYPE_CHECKING:
    from types import ModuleType

    from ddpdoctor.watch.rank.recorder import Recorder

OF_V2, CATCHES = (
    "ray.train.v2._internal.execution.worker_group.thread_runner",
    "construct_user_exception_with_traceback",
)
OF_V1, PASSES = "ray.air._internal.util", "_propagate_exception"


def hook(recorder: Recorder) -> list[Awaited]:
    """Replace what takes the exception, in the two generations of Ray Train, once it is imported."""

    def of_v2(module: ModuleType) -> None:
        if hasattr(module, CATCHES):
            recorder.late.append(patch(module, CATCHES, _catching(recorder, 0)))

    def of_v1(module: ModuleType) -> None:
        if hasattr(getattr(module, "RunnerThread", None), PASSES):
            recorder.late.append(patch(module.RunnerThread, PASSES, _catching(recorder, 1)))

    return [when_imported(OF_V2, of_v2), when_imported(OF_V1, of_v1)]


def _catching(recorder: Recorder, at: int) -> Wrap:
    """Tell of the exception, the argument number ``at``, before Ray has it."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def catching(*args: Any, **kwargs: Any) -> Any:
            exc = args[at] if len(args) > at else None
            if recorder.is_rank and isinstance(exc, BaseException) and is_error(exc):
                recorder.safely(recorder.failures.leaves, exc)
            return original(*args, **kwargs)

        return catching

    return wrap
