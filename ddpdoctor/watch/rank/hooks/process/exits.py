"""Where a script ends its process itself, and where an exception ends a thread of it."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch.events import ThreadFailed
from ddpdoctor.watch.rank.end.traceback_format import first_line, is_error, qualified, raised_at
from ddpdoctor.watch.rank.patch import Patch, Wrap, patch

if TYPE_CHECKING:
    from ddpdoctor.watch.rank.recorder import Recorder


def hook(recorder: Recorder) -> list[Patch]:
    """Replace sys.exit, os._exit and threading.excepthook."""
    return [
        patch(sys, "exit", _exit(recorder)),
        patch(os, "_exit", _exit_at_once(recorder)),
        patch(threading, "excepthook", _in_thread(recorder)),
    ]


def _exit(recorder: Recorder) -> Wrap:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def exit(*status: Any) -> Any:  # noqa: A001 - its name
            recorder.safely(recorder.leaving.exits, status[0] if status else None)
            return original(*status)

        return exit

    return wrap


def _exit_at_once(recorder: Recorder) -> Wrap:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def _exit(status: int) -> Any:
            recorder.safely(recorder.leaving.at_once, status)
            return original(status)

        return _exit

    return wrap


def _in_thread(recorder: Recorder) -> Wrap:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def excepthook(args: Any) -> Any:
            recorder.safely(_tell, recorder, args)
            return original(args)

        return excepthook

    return wrap


def _tell(recorder: Recorder, args: Any) -> None:
    if not is_error(args.exc_value):
        return
    text = first_line(args.exc_value)
    said = f"{qualified(args.exc_value)}: {text}" if text else qualified(args.exc_value)
    name = args.thread.name if args.thread is not None else ""
    recorder.emit(ThreadFailed, thread=name, said=said, site=raised_at(args.exc_value))
