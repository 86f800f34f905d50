"""An exception as its process would print it, without the frames and the notes of the watch."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any, TypeGuard

from ddpdoctor.logs.read.tracebacks import frames_in
from ddpdoctor.watch.events import Site
from ddpdoctor.watch.failure_explainer import MARK
from ddpdoctor.watch.user_frames import frames, is_users, is_watchs, users_sites

QUOTED = 200  # characters of what an exception says
OF_A_WORKER = ".\nOriginal Traceback (most recent call last):\n"
ENDINGS = (SystemExit, KeyboardInterrupt, GeneratorExit)


def is_error(exc: BaseException | None) -> TypeGuard[BaseException]:
    """Whether an exception is no mere request to end; those of torch.distributed.checkpoint are no Exception."""
    return exc is not None and not isinstance(exc, ENDINGS)


def printed(exc: BaseException, *, inside: bool) -> tuple[str, Site | None]:
    """Return the traceback as text, and the user's innermost line in it.

    ``inside``: the exception is on its way through the caller's code, so what called is a part of the traceback.
    """
    told = traceback.TracebackException.from_exception(exc)
    for each in _links(told):
        each.__notes__ = [text for text in getattr(each, "__notes__", None) or () if not str(text).startswith(MARK)]
    frames = [*(traceback.extract_stack(_caller()) if inside else ()), *told.stack]
    told.stack = traceback.StackSummary.from_list([each for each in frames if not is_watchs(each.filename)])
    users = [each for each in told.stack if is_users(each.filename)]
    site = Site(users[-1].filename, users[-1].lineno or 0, users[-1].name) if users else None
    return "".join(told.format()), _in_a_worker(exc) or site


def raised_at(exc: BaseException) -> Site | None:
    """Return the user's innermost line in the traceback of an exception."""
    at = [(trace.tb_frame.f_code, line) for trace, line in _walked(exc) if is_users(trace.tb_frame.f_code.co_filename)]
    return Site(at[-1][0].co_filename, at[-1][1], at[-1][0].co_name) if at else None


def _in_a_worker(exc: BaseException) -> Site | None:
    """Return the user's innermost line in the traceback that torch took along from a DataLoader's worker process."""
    _, worker, original = str(exc).partition(OF_A_WORKER)
    return next(users_sites(reversed(frames_in(original))), None) if worker else None


def comes_from_a_handler(exc: BaseException) -> bool:
    """Whether the handler of a signal has raised an exception, wherever the signal met the process."""
    handlers = {getattr(signal.getsignal(number), "__code__", None) for number in signal.valid_signals()}
    return any(trace.tb_frame.f_code in handlers for trace, _ in _walked(exc))


def _walked(exc: BaseException) -> Iterator[tuple[TracebackType, int]]:
    trace = exc.__traceback__
    while trace is not None:
        yield trace, trace.tb_lineno
        trace = trace.tb_next


def first_line(exc: BaseException) -> str:
    """Return the first line of what an exception says, cut to a length that is quoted."""
    return (str(exc).strip().splitlines() or [""])[0][:QUOTED]


def qualified(exc: BaseException) -> str:
    """Return the name of an exception's type as a traceback does."""
    kind = type(exc)
    return (
        kind.__qualname__ if kind.__module__ in {"builtins", "__main__"} else f"{kind.__module__}.{kind.__qualname__}"
    )


def chain(exc: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and those that it was raised from, or beside, as a traceback shows them."""
    seen = set()
    while exc is not None and id(exc) not in seen:
        seen.add(id(exc))
        yield exc
        exc = exc.__cause__ or (None if exc.__suppress_context__ else exc.__context__)


def hide_watch(exc: BaseException) -> None:
    """Take the frames of the watch out of the traceback: it is the user's code that has called torch."""
    for each in chain(exc):
        each.__traceback__ = _from_others(each.__traceback__)
        at = each.__traceback__
        while at is not None:
            at.tb_next = _from_others(at.tb_next)
            at = at.tb_next


def _from_others(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and is_watchs(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return trace


def _links(told: Any) -> Iterator[Any]:
    seen = set()
    while told is not None and id(told) not in seen:
        seen.add(id(told))
        yield told
        told = told.__cause__ or told.__context__


def _caller() -> FrameType | None:
    return next((frame for frame in frames() if not is_watchs(frame.f_code.co_filename)), None)
