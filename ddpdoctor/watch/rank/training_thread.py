"""Which thread of a process trains: the main one, but where a framework runs the user's function in one of its own.

Ray Train does (a thread called ``TrainingThread(...)``; its main thread serves the actor), and so do servers of
notebooks and workflows.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType

from ddpdoctor.watch.user_frames import is_users

MAIN = 0
"""What stands for the main thread, by its ident and by its number in the kernel alike."""


class TrainingThread:
    """Tells it from who calls wrapped models and steps; before that, from who runs code of the user's."""

    def __init__(self, publish: Callable[[int], None]) -> None:
        """``publish`` is called with the kernel's number of the thread when it is found to be another one."""
        self._publish = publish
        self._main_trains = False
        self._other = MAIN

    def works(self) -> None:
        """Take note that the thread that calls has come a forward or a step further."""
        ident = threading.get_ident()
        if ident == self._other or self._main_trains:
            return
        self._main_trains = ident == threading.main_thread().ident
        self._take(MAIN if self._main_trains else ident)

    def ident(self) -> int:
        """Return the thread's ident; the main thread's where nothing tells it."""
        main = threading.main_thread().ident or 0
        frames = sys._current_frames()  # noqa: SLF001 - documented under this name
        if not self._main_trains and self._other not in frames:
            others = [ident for ident, frame in frames.items() if ident != main and _runs_the_users(frame)]
            self._take(others[0] if len(others) == 1 and not _runs_the_users(frames.get(main)) else MAIN)
        return self._other or main

    def _take(self, ident: int) -> None:
        if ident != self._other:
            self._other = ident
            number = next((each.native_id for each in threading.enumerate() if each.ident == ident), None)
            self._publish(number or MAIN)


def _runs_the_users(frame: FrameType | None) -> bool:
    """Whether a line of the user's is on the stack."""
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            return True
        frame = frame.f_back
    return False
