"""How a process comes to its end before the end of its script: by sys.exit, os._exit, or Ctrl-C."""

from __future__ import annotations

import re
import sys
import threading
from linecache import getline
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

from ddpdoctor.watch.events import INTERRUPTED, Left, Site
from ddpdoctor.watch.events.failures import LOST
from ddpdoctor.watch.rank.end.traceback_format import first_line, is_error, qualified, raised_at
from ddpdoctor.watch.rank.process import Process
from ddpdoctor.watch.user_frames import is_users, site_of

if TYPE_CHECKING:
    from ddpdoctor.watch.events import Failed
    from ddpdoctor.watch.rank.end.failures import Failures

CALLER = 3  # frames from here: this module's function, Recorder.safely, what stands in for sys.exit
OF_A_CALL = re.compile(r"exit\(\s*[\w.]+\(")
QUOTED = 60  # characters of what sys.exit is given


class ProcessThatLeaves(Process, Protocol):
    """A watched process, what it does about its exceptions, and how far it came."""

    failures: Failures

    def progress(self) -> int:
        """Return how many forwards of wrapped models and steps of optimizers this process has made."""


class Leaving:
    """What ends the process whose recorder this is, as far as it is known; nothing of an exception is kept."""

    def __init__(self, recorder: ProcessThatLeaves) -> None:
        """Begin with a process that comes to the end of its script."""
        self._recorder = recorder
        self._by = ""
        self._site: Site | None = None
        self._failure: Failed | None = None
        self._handled = ""
        self._progress = -1

    def exits(self, status: object) -> None:
        """Take note of a call of sys.exit in the main thread, and of the exception that it is the answer to.

        SystemExit can be caught: what the process does after it shows that it goes on. What leaves by the last line of
        a script has come to its end.
        """
        if not self._recorder.is_rank or threading.current_thread() is not threading.main_thread():
            return
        exc = sys.exc_info()[1]
        refused = refused_by_parser(sys._getframe(CALLER))  # noqa: SLF001 - who calls it
        answered = self._recorder.failures.answered(exc) if status and is_error(exc) and not refused else None
        self._failure = self._recorder.failures.said(refused) if refused else answered
        self._site = _called_at(sys._getframe(CALLER))  # noqa: SLF001 - who calls it
        self._by = f"sys.exit({_shown(status)})" if self._site and not _ends_script(self._site) else ""
        self._handled = _handled(exc)
        self._progress = self._recorder.progress()

    def interrupted(self, exc: BaseException) -> None:
        """Take note of KeyboardInterrupt, on its way out of the process."""
        if self._recorder.is_rank:
            self._by, self._site, self._failure, self._handled = INTERRUPTED, raised_at(exc), None, ""
            self._progress = self._recorder.progress()

    def at_once(self, status: object) -> None:
        """Tell of os._exit, called by the user's own code: nothing comes after it."""
        site = _called_at(sys._getframe(CALLER))  # noqa: SLF001 - who calls it
        if self._recorder.is_rank and site is not None:
            handled = _handled(sys.exc_info()[1])
            self._recorder.emit(Left, ended=True, by=f"os._exit({_shown(status)})", site=site, handled=handled)

    def tell(self) -> None:
        """Tell that the process ends, and by what."""
        told: dict[str, Any] = {}
        if self._recorder.is_rank and self._recorder.progress() == self._progress:
            if self._failure is not None:
                self._recorder.writer.event(self._failure)
            told = {"by": self._by, "site": self._site, "handled": self._handled} if self._by else {}
        self._recorder.emit(Left, ended=True, **told)


def _handled(exc: BaseException | None) -> str:
    """Return the error that is being handled, and its line.

    That there are no more batches is none, nor that another rank is gone, which has an error of its own.
    """
    if not is_error(exc) or isinstance(exc, (StopIteration, EOFError)) or LOST.search(str(exc)):
        return ""
    site = raised_at(exc)
    return f"{qualified(exc)}: {first_line(exc)}" + (f" ({site})" if site else "")


def _called_at(frame: FrameType) -> Site | None:
    """Return the line of the user's that calls a function; None where a library calls it."""
    return site_of(frame) if is_users(frame.f_code.co_filename) else None


def refused_by_parser(frame: FrameType) -> str:
    """Return what argparse says of arguments that it refuses, as it ends the program; empty where it does not."""
    is_parsers = frame.f_globals.get("__name__") == "argparse" and frame.f_code.co_name == "exit"
    return str(frame.f_locals.get("message") or "").strip() if is_parsers and frame.f_locals.get("status") else ""


def _ends_script(site: Site) -> bool:
    """Whether the line is ``sys.exit(main())``, or stands outside of all functions."""
    return site.function == "<module>" or bool(OF_A_CALL.search(getline(site.file, site.line)))


def _shown(status: object) -> str:
    return "" if status is None else repr(status)[:QUOTED] if isinstance(status, (int, str)) else type(status).__name__
