"""The exceptions of a watched process: explained once, where torch raises them, and told when they leave it."""

from __future__ import annotations

import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddpdoctor.areas import shows_network
from ddpdoctor.host.network_context import Seen, network
from ddpdoctor.watch import event_log
from ddpdoctor.watch.command import exits
from ddpdoctor.watch.dispatcher import Dispatcher
from ddpdoctor.watch.event_log import Reader
from ddpdoctor.watch.events import ErrorSeen, Failed
from ddpdoctor.watch.events.failures import LOST
from ddpdoctor.watch.failure_explainer import MARK, Explainer, note
from ddpdoctor.watch.rank.end.ending import last_words
from ddpdoctor.watch.rank.end.traceback_format import (
    chain,
    first_line,
    hide_watch,
    is_error,
    printed,
    qualified,
    raised_at,
)
from ddpdoctor.watch.settings import ENDED, HANGS
from ddpdoctor.watch.user_frames import user_site

if TYPE_CHECKING:
    from ddpdoctor.facets import Check
    from ddpdoctor.watch.rank.model.models import ProcessWithModels

NUMBERED = re.compile(r"[Pp]arameter (?:at index|indices)|params\[\d+\]")
INDICES = re.compile(r"Parameter indices which did not receive grad for rank \d+: ([\d ]+)")
AT_END = ("barrier", "monitored_barrier", "destroy_process_group")
GATHERED = ("ChildFailedError", "ProcessRaisedException", "ProcessExitedException", "CalledProcessError")
"""Raised where the failures of other processes are gathered; each was explained where it happened."""
NO_STORE = "RendezvousConnectionError"
"""Raised in the torchrun of one node where that of another one is gone; of several, the ranks tell what ended it."""
SIGNALLED = "SignalException"
"""Raised in torchrun when it is sent a signal."""
KNOWN, EXPLAINED, TOLD, UNSAID, RAISED = (
    f"_ddpdoctor_{name}" for name in ("known", "explained", "told", "note", "raised")
)
"""Attributes of an exception: fields of Failed; what was done; the note for which Python 3.10 has no place."""
MOST = 20  # exceptions raised into a process that are told
Known = dict[str, Any]
FindOut = Callable[[], Known]


@dataclass(slots=True)
class Failures:
    """What the process does about its exceptions; ``recorder`` is its own."""

    recorder: ProcessWithModels
    since: float = field(default_factory=time.time)
    _raised: int = 0
    _checks: tuple[Check, ...] = ()
    _explainer: Explainer | None = None

    def passes(self, exc: BaseException, find_out: FindOut | None, step: bool) -> None:  # noqa: FBT001 - see safely
        """Explain an exception that torch has raised into the user's code."""
        known = self._known(exc, find_out)
        hide_watch(exc)
        if step:
            self._tell_raised(exc)
        if LOST.search(str(exc)):
            return
        with last_words() as received:
            self._explain(exc, known, inside=True)
            if received:
                self._tell(self._failure(exc, known, inside=True))

    def handles(self, exc: BaseException | None) -> None:
        """Record an exception that is being handled, or passes through `finally`, while the rank communicates."""
        if is_error(exc) and RAISED not in vars(exc) and not LOST.search(str(exc)):
            self._tell_raised(exc, handled=True, site=raised_at(exc))

    def loses(self, exc: BaseException) -> None:
        """Record that another rank is gone, as a backward says: a script can catch that with what a batch raises."""
        if LOST.search(str(exc)) and RAISED not in vars(exc):
            self._tell_raised(exc)

    def shows(self, exc: BaseException | None) -> None:
        """Tell of an exception that the script prints while it handles it."""
        if is_error(exc) and RAISED not in vars(exc) and not LOST.search(str(exc)):
            self._tell_raised(exc, shown=True, site=raised_at(exc))

    def borne(self, exc: BaseException) -> None:
        """Record an exception that ends a training, and not its rehearsal."""
        self._tell(self._failure(exc, self._known(exc, None), inside=True))

    def leaves(self, exc: BaseException) -> None:
        """Record that an exception is about to leave the process, which can be killed for it; then explain it."""
        if TOLD in vars(exc):
            return
        vars(exc)[TOLD] = True
        exits.tell(self.recorder.settings.session, exits.exits_in(exc))
        known = self._known(exc, None)
        hide_watch(exc)
        failure = self._failure(exc, known, inside=False)
        told = self._tell(failure)
        self._explain(exc, known, inside=False)
        if not told and has_note(exc):
            self.recorder.become_rank(None)
            self._tell(self._failure(exc, known, inside=False))
        if text := vars(exc).get(UNSAID, ""):
            with suppress(OSError, ValueError):
                sys.stderr.write(f"{text}\n")

    def at_exit(self, exc: BaseException) -> None:
        """Tell of a rank that a collective of an atexit callback has lost; a last barrier is often let fail there."""
        called = {frame.f_code.co_name for frame, _ in traceback.walk_tb(exc.__traceback__)}
        if self.recorder.is_rank and LOST.search(str(exc)) and called.isdisjoint(AT_END):
            self.leaves(exc)

    def answered(self, exc: BaseException) -> Failed | None:
        """Return what an exception would be told as that the script answers by ending; None where that was done."""
        told = TOLD in vars(exc)
        return None if told else self._failure(exc, self._known(exc, None), inside=False)

    def said(self, text: str) -> Failed:
        """Return what the process is told to have failed of that ends with a word of its own, and no exception."""
        return Failed(
            pid=os.getpid(), rank=self.recorder.rank, time=time.time(), site=user_site(), error="SystemExit", text=text
        )

    def at_end(self) -> None:
        """Record and explain the exception that ended the interpreter, if an excepthook has kept it."""
        exc = getattr(sys, "last_value", None)
        if not is_error(exc) or TOLD in vars(exc) or hasattr(sys, "ps1"):
            return
        noted = has_note(exc)
        self.leaves(exc)
        if not noted:
            for text in filter(is_note, getattr(exc, "__notes__", ())):
                sys.stderr.write(f"{text}\n")

    def _tell_raised(self, exc: BaseException, **told: Any) -> None:
        """Record it once: where it is caught, and the rank goes on, the others wait for what it skipped."""
        if self.recorder.is_rank and self._raised < MOST and RAISED not in vars(exc):
            vars(exc)[RAISED] = True
            self._raised += 1
            forwards = self.recorder.writer.counters[event_log.FORWARDS]
            self.recorder.emit(ErrorSeen, error=qualified(exc), text=first_line(exc), forwards=forwards, **told)

    def _tell(self, failure: Failed) -> bool:
        if self.recorder.is_rank:
            self.recorder.writer.event(failure)
        return bool(self.recorder.is_rank)

    def _explain(self, exc: BaseException, known: Known, *, inside: bool) -> None:
        """Add what the checks say as a note, unless another process, or an exception before this one, has it.

        What is seen of this host for that is kept with what is known.
        """
        if self._is_there(ENDED) or (type(exc).__name__ == SIGNALLED and self._is_there(HANGS)):
            return
        of_others = type(exc).__name__ in GATHERED or type(exc).__module__.startswith("ddpdoctor.")
        of_others = of_others or _is_of_another_node(exc)
        if EXPLAINED in vars(exc) or of_others or any(MARK in str(each) or has_note(each) for each in chain(exc)):
            return
        vars(exc)[EXPLAINED] = True
        with self._busy():
            text, known["seen"] = self._note(self._failure(exc, known, inside=inside))
        if text:
            if hasattr(exc, "add_note"):
                exc.add_note(text)
            else:
                vars(exc)[UNSAID] = text

    def _is_there(self, said: str) -> bool:
        """Whether the monitor has said that of the training: what fails from then on follows from it."""
        session = self.recorder.settings.session
        return bool(session) and (Path(session) / said).exists()

    @contextmanager
    def _busy(self) -> Iterator[None]:
        """Let the monitor know that a failure is being explained: it waits, to compare ranks."""
        counters = self.recorder.writer.counters if self.recorder.is_rank else None
        if counters is None:
            yield
            return
        counters[event_log.EXPLAINING] = 1
        try:
            yield
        finally:
            counters[event_log.EXPLAINING] = 0

    def _known(self, exc: BaseException, find_out: FindOut | None) -> Known:
        """Return what is known of an exception, and keep it with the exception."""
        if KNOWN not in vars(exc):
            inner = vars(exc.__cause__).get(KNOWN) if exc.__cause__ else None
            found = {"time": time.time(), **self._numbered(str(exc), find_out() if find_out else {})}
            vars(exc)[KNOWN] = inner or found
        known: Known = vars(exc)[KNOWN]
        return known

    def _failure(self, exc: BaseException, known: Known, *, inside: bool) -> Failed:
        text, site = printed(exc, inside=inside)
        return Failed(pid=os.getpid(), rank=self.recorder.rank, site=site, error=qualified(exc), text=text, **known)

    def _numbered(self, text: str, known: Known) -> Known:
        """Add the names of the parameters where the message has their numbers."""
        if NUMBERED.search(text) and "parameters" not in known:
            known = {**known, "parameters": self.recorder.models.numbered()}
        if (found := INDICES.search(text)) and (names := known["parameters"]):
            known["unused"] = tuple(names[index] for index in map(int, found[1].split()) if index < len(names))
        return known

    def _note(self, failure: Failed) -> tuple[str, Seen]:
        """Return what the checks say of a failure, and what was seen of this host for them."""
        if self._explainer is None:
            from ddpdoctor.registry import load_checks

            self._checks = load_checks()
            self._explainer = Explainer(self._checks)
        peers = self._peers() if self._explainer.tells_of_another(failure) else []
        found = self._explainer.explain([*peers, failure], Dispatcher(self._checks))
        if not failure.seen and _can_be_of_ranks(failure) and any(shows_network(check.area) for check, _ in found):
            failure = replace(failure, seen=network(failure.text))
            found = self._explainer.explain([*peers, failure], Dispatcher(self._checks))
        return note(found, failure.text), failure.seen

    def _peers(self) -> list[Failed]:
        """Return the failures of other ranks of this host, in this attempt."""
        session = self.recorder.settings.session
        return [
            event
            for path in (Path(session).glob("*.events") if session else ())
            if path.stem != str(os.getpid())
            for event in Reader(path).new()
            if isinstance(event, Failed) and event.time >= self.since
        ]


def has_note(exc: BaseException) -> bool:
    """Whether an exception was explained in this process."""
    return UNSAID in vars(exc) or any(map(is_note, getattr(exc, "__notes__", ())))


def is_note(text: object) -> bool:
    """Whether a note of an exception is an explanation of ours."""
    return str(text).startswith(MARK)


def _is_of_another_node(exc: BaseException) -> bool:
    """Whether the torchrun of a node, of several, has lost that of another one."""
    if type(exc).__name__ != NO_STORE:
        return False
    from ddpdoctor.cluster.command import launch_of

    return launch_of(("torchrun", *sys.argv[1:])) is not None


def _can_be_of_ranks(failure: Failed) -> bool:
    """Whether ranks that do not reach each other can have raised it: a library that downloads has errors of its own."""
    return "." not in failure.error or failure.error.startswith("torch.")
