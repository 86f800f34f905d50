"""Where an exception leaves a process: the interpreter's end, a process of multiprocessing, torchrun's error file."""

from __future__ import annotations

import importlib
import logging
import multiprocessing.process
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch.event_log import FORWARDS
from ddpdoctor.watch.events import NothingSpawned
from ddpdoctor.watch.rank.end.ending import last_words
from ddpdoctor.watch.rank.end.traceback_format import is_error
from ddpdoctor.watch.rank.patch import Patch, Wrap, patch
from ddpdoctor.watch.user_frames import is_users, user_site

if TYPE_CHECKING:
    from ddpdoctor.watch.rank.recorder import Recorder

ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
SPAWNED = "DDPDOCTOR_SPAWNED"
"""Tells the processes that mp.spawn starts how many there are."""


def hook(recorder: Recorder) -> list[Patch]:
    """Replace sys's hooks, what runs in children of multiprocessing and mp.spawn, and what writes the error file."""
    from torch.distributed.elastic.multiprocessing.errors import ErrorHandler

    spawn = importlib.import_module("torch.multiprocessing.spawn")  # the package has a function of that name
    package = importlib.import_module("torch.multiprocessing")  # re-exports what the module defines

    return [
        patch(sys, "excepthook", _excepthook(recorder)),
        patch(sys, "unraisablehook", _ignored(recorder)),
        patch(multiprocessing.process.BaseProcess, "run", _running(recorder)),
        patch(spawn, "_wrap", _spawned(recorder)),
        patch(spawn, "start_processes", _spawning(recorder)),
        patch(package, "start_processes", _spawning(recorder)),
        patch(ErrorHandler, "record_exception", _recorded(recorder)),
        patch(traceback, "print_exception", _shown(recorder)),  # what print_exc() and logging call
        patch(traceback, "format_exception", _shown(recorder)),
        patch(logging.Logger, "handle", _logged(recorder)),
    ]


def stay_outermost(recorder: Recorder) -> None:
    """Take the place of the excepthook that init_process_group installs: what it prints must not be cut off."""
    if not hasattr(sys.excepthook, "_ddpdoctor"):
        recorder.late.append(patch(sys, "excepthook", _excepthook(recorder)))


def _excepthook(recorder: Recorder) -> Wrap:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def excepthook(kind: Any, exc: BaseException, trace: Any) -> Any:
            with last_words(of_process=True):
                recorder.failed(exc)
                if isinstance(exc, KeyboardInterrupt):
                    recorder.safely(recorder.leaving.interrupted, exc)
                recorder.safely(_leave_error_file, exc)
                return original(kind, exc, trace)

        excepthook._ddpdoctor = True  # type: ignore[attr-defined]  # noqa: SLF001 - asked for above
        return excepthook

    return wrap


def _ignored(recorder: Recorder) -> Wrap:
    """Take note of an exception of what atexit calls: Python prints it, and ends with status 0."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def unraisablehook(unraisable: Any) -> Any:
            if "atexit" in (unraisable.err_msg or "") and unraisable.exc_value is not None:
                recorder.safely(recorder.failures.at_exit, unraisable.exc_value)
            return original(unraisable)

        return unraisablehook

    return wrap


def _leave_error_file(exc: BaseException) -> None:
    """Write what torchrun reports of this rank, where no @record in the script has."""
    path = os.environ.get(ERROR_FILE)
    if not path or not is_error(exc) or multiprocessing.process.parent_process() or Path(path).exists():
        return
    from torch.distributed.elastic.multiprocessing.errors import get_error_handler

    trace = exc.__traceback__
    try:
        raise exc  # noqa: TRY301 - the handler writes the exception that is being handled
    except BaseException:  # noqa: BLE001 - it is the one above
        exc.__traceback__ = trace
        get_error_handler().record_exception(exc)


def _running(recorder: Recorder) -> Wrap:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def run(process: Any) -> Any:
            try:
                return original(process)
            except BaseException as exc:
                recorder.failed(exc)
                raise

        return run

    return wrap


def _spawning(recorder: Recorder) -> Wrap:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def start_processes(fn: Any, args: Any = (), nprocs: int = 1, *rest: Any, **kwargs: Any) -> Any:
            if nprocs == 0:
                recorder.safely(_of_none, recorder)
            os.environ[SPAWNED] = str(nprocs)
            try:
                return original(fn, args, nprocs, *rest, **kwargs)
            finally:
                os.environ.pop(SPAWNED, None)

        return start_processes

    return wrap


def _of_none(recorder: Recorder) -> None:
    recorder.become_rank(None)
    recorder.emit(NothingSpawned)


def _spawned(recorder: Recorder) -> Wrap:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def _wrap(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            def explained(*inner: Any) -> Any:
                try:
                    return fn(*inner)
                except BaseException as exc:
                    recorder.failed(exc)
                    raise

            return original(explained, *args, **kwargs)

        return _wrap

    return wrap


def _shown(recorder: Recorder) -> Wrap:
    """Take note of an exception that the script prints and handles: the rank may go on without what it skipped."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def show(*args: Any, **kwargs: Any) -> Any:
            if recorder.is_rank and user_site() is not None:
                recorder.safely(recorder.failures.shows, sys.exc_info()[1])
            return original(*args, **kwargs)

        return show

    return wrap


def _logged(recorder: Recorder) -> Wrap:
    """Take note of an exception in whose handler a line of the user's logs a warning or an error."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def handle(logger: Any, record: Any) -> Any:
            error = sys.exc_info()[1]
            tells = error is not None and record.levelno >= logging.WARNING and recorder.is_rank
            if tells and is_users(record.pathname) and recorder.writer.counters[FORWARDS]:  # none: it sets out yet
                recorder.safely(recorder.failures.shows, error)
            return original(logger, record)

        return handle

    return wrap


def _recorded(recorder: Recorder) -> Wrap:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def record_exception(handler: Any, exc: BaseException) -> Any:
            recorder.explain(exc)  # before it is written
            return original(handler, exc)

        return record_exception

    return wrap
