"""Where an exception leaves a process: the interpreter's end, mp.spawn, torchrun's error file."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

from ddpdoctor.watch.patch import Patch, patch
from ddpdoctor.watch.recorder import Recorder


def hook(recorder: Recorder) -> list[Patch]:
    """Replace sys.excepthook, what mp.spawn calls in its children, and what writes torchrun's error file."""
    from torch.distributed.elastic.multiprocessing.errors import ErrorHandler

    spawn = importlib.import_module("torch.multiprocessing.spawn")  # the package has a function of that name

    return [
        patch(sys, "excepthook", _excepthook(recorder)),
        patch(spawn, "_wrap", _spawned(recorder)),
        patch(ErrorHandler, "record_exception", _recorded(recorder)),
    ]


def _excepthook(recorder: Recorder) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def excepthook(kind: Any, exc: BaseException, trace: Any) -> Any:
            recorder.safely(recorder.failed, exc)
            return original(kind, exc, trace)

        return excepthook

    return wrap


def _spawned(recorder: Recorder) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def _wrap(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            def explained(*inner: Any) -> Any:
                try:
                    return fn(*inner)
                except Exception as exc:
                    recorder.safely(recorder.failed, exc)
                    raise

            return original(explained, *args, **kwargs)

        return _wrap

    return wrap


def _recorded(recorder: Recorder) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def record_exception(handler: Any, exc: BaseException) -> Any:
            recorder.safely(recorder.explain, exc)  # before it is written
            return original(handler, exc)

        return record_exception

    return wrap
