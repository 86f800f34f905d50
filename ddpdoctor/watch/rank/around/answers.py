"""Answers the monitor from within a rank: where the thread that trains is, which collectives torch holds as under way.

A thread answers; it sleeps in a read, without the GIL, and interrupts nothing. Only where it does not come to its turn,
because native code holds the GIL, does the monitor send a signal.
"""

from __future__ import annotations

import faulthandler
import functools
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType

from ddpdoctor.host.stack import dump_on
from ddpdoctor.watch.event_log import ANSWERER, ASK, DUMP, NAMED
from ddpdoctor.watch.rank.training_thread import TrainingThread
from ddpdoctor.watch.settings import STACK_SIGNAL

ATTEMPTS = 10  # at the stack of a thread that runs meanwhile


class Answers:
    """What makes this process answer; ``base`` is the path of its files, without their suffix."""

    def __init__(self, base: Path, trains: TrainingThread | None = None) -> None:
        """Begin to answer, of the thread that trains or else of the main one. Signals are the main thread's to take."""
        self._dump: int | None = None
        free = STACK_SIGNAL is not None and signal.getsignal(STACK_SIGNAL) in {signal.SIG_DFL, signal.SIG_IGN}
        if STACK_SIGNAL is not None and free and threading.current_thread() is threading.main_thread():
            # What the interpreter puts back at its end: the monitor's question must not kill a rank that leaves.
            signal.signal(STACK_SIGNAL, signal.SIG_IGN)
            self._dump = dump_on(STACK_SIGNAL, base.with_suffix(DUMP))
        asked = base.with_suffix(ASK)
        with suppress(FileExistsError):
            os.mkfifo(asked, 0o600)
        descriptor = os.open(asked, os.O_RDWR)  # both ends: a read then waits for the next question
        trains = trains or TrainingThread(lambda _: None)
        answers = {
            "stack": lambda: thread_stack(trains.ident),
            "threads": lambda: other_stacks(trains.ident()),
            "flight": flight_record,
        }
        threading.Thread(target=_serve, args=(descriptor, base, answers), name=ANSWERER, daemon=True).start()

    def forked(self) -> None:
        """Leave the handler to a process that was forked: what that waits for may be asked once it rests for good."""
        self._dump = None

    def end(self) -> None:
        """Take no signal any more."""
        if self._dump is not None and STACK_SIGNAL is not None:
            faulthandler.unregister(STACK_SIGNAL)
            os.close(self._dump)
            self._dump = None


def _serve(descriptor: int, base: Path, answers: dict[str, Callable[[], str]]) -> None:
    """Answer; the question is also the suffix of the file that the answer is written to."""
    with suppress(OSError):  # no Linux; Python does so itself since 3.14
        Path("/proc/thread-self/comm").write_text(ANSWERER, encoding="ascii")
    while asked := os.read(descriptor, 4096).decode():
        for name in {name for name in asked.split() if name in answers}:
            with suppress(Exception):  # the session is gone, or torch refuses: then there is no answer
                partial = base.with_suffix(f".{name}-partial")
                partial.write_bytes(answers[name]().encode(errors="backslashreplace"))
                partial.rename(base.with_suffix(f".{name}"))


def thread_stack(ident: Callable[[], int]) -> str:
    """Return a thread's stack in faulthandler's words, innermost frame first."""
    for _ in range(ATTEMPTS):
        frame = innermost = _frame(thread := ident())
        lines = []
        while frame is not None:
            lines.append(f'  File "{frame.f_code.co_filename}", line {frame.f_lineno or 0} in {frame.f_code.co_name}\n')
            frame = frame.f_back
        if innermost is _frame(thread):
            break
    return "".join(lines)


def other_stacks(trains: int) -> str:
    """Return the stacks of all other threads of Python's but the one that answers, with an empty line between two.

    The name of the thread stands above its stack, where Python has given it one.
    """
    others = {*sys._current_frames()} - {trains, threading.get_ident()}  # noqa: SLF001 - documented under this name
    names = {each.ident: each.name for each in threading.enumerate()}
    return "\n".join(f"{NAMED}{names.get(each, '')}\n" + thread_stack(functools.partial(int, each)) for each in others)


def _frame(ident: int) -> FrameType | None:
    return sys._current_frames().get(ident)  # noqa: SLF001 - documented under this name


def flight_record() -> str:
    """Return the entries of torch's flight recorder in JSON; empty where it has none that speaks JSON."""
    dump = getattr(sys.modules.get("torch._C._distributed_c10d"), "_dump_fr_trace_json", None)
    text = dump() if dump is not None else b""
    return text.decode() if isinstance(text, bytes) else str(text)
