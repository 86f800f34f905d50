"""The watched process's own record: who it is, its ledger, and what must never disturb the training."""

from __future__ import annotations

import atexit
import faulthandler
import os
import signal
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch import ledger
from ddpdoctor.watch.events import Event, Joined, Joining, Left, Started
from ddpdoctor.watch.failures import Failures, FindOut
from ddpdoctor.watch.flight import answer
from ddpdoctor.watch.handles import Handles
from ddpdoctor.watch.models import Models
from ddpdoctor.watch.passes import Feed
from ddpdoctor.watch.reads import Reads
from ddpdoctor.watch.rehearse import RehearsalOver
from ddpdoctor.watch.session import with_monitor
from ddpdoctor.watch.settings import ENDED
from ddpdoctor.watch.users import user_site

if TYPE_CHECKING:
    from ddpdoctor.watch.patch import Patch
    from ddpdoctor.watch.settings import Settings

# A real-time signal that neither training code nor launchers use; its default action is never taken, as it is
# sent only to processes that have written their ``.stack`` file.
STACK_SIGNAL = signal.SIGRTMAX - 3 if hasattr(signal, "SIGRTMAX") else None


EARLY = 2  # steps in which gradients are looked at right after backward


class FaultFoundError(RuntimeError):
    """The watch found a fault and was asked to end the training (``on_finding="raise"``); the text is the finding."""


class Recorder:
    """One watched process; after a fork the child is another one, which is watched once it joins a process group."""

    def __init__(self, settings: Settings) -> None:
        """Begin with nothing written: a process that is no rank leaves no trace."""
        self.settings = settings
        self.rank: int | None = None
        self.active = True
        self.late: list[Patch] = []
        self.models = Models(self)
        self.feed = Feed()
        self.handles = Handles(self)
        self.failures = Failures(self)
        self.reads = Reads()
        self._writer: ledger.Writer | None = None
        self._stacks: Any = None
        self._answers = False
        self._complained = False
        self._numbers: dict[tuple[str, int], tuple[int, Callable[[], object]]] = {}
        self._counts: Counter[str] = Counter()
        os.register_at_fork(after_in_child=self._forked)
        atexit.register(self.ends)

    @property
    def is_rank(self) -> bool:
        """Say whether this process was told a rank, or joins a process group."""
        return self.active and self._writer is not None

    @property
    def early(self) -> bool:
        """Say whether this process is in its first steps, with a wrapped model."""
        return bool(self.models.known) and self.writer.counters[ledger.STEPS] <= EARLY

    @property
    def writer(self) -> ledger.Writer:
        """Give the ledger of a process that is a rank."""
        assert self._writer is not None, "only a rank writes"  # noqa: S101 - the hooks ask is_rank first
        return self._writer

    def become_rank(self, rank: int | None) -> None:
        """Open the ledger; from now on the monitor sees this process."""
        if not self.active or threading.current_thread() is not threading.main_thread():
            return
        if rank is not None:
            self.rank = rank
        if self._writer is None:
            if not self.settings.session:
                self.settings = with_monitor(self.settings)
            self._writer = ledger.Writer(self.settings.session)
            if STACK_SIGNAL is not None and signal.getsignal(STACK_SIGNAL) in {signal.SIG_DFL, signal.SIG_IGN}:
                # What the interpreter puts back at its end: the monitor's question must not kill a rank that leaves.
                signal.signal(STACK_SIGNAL, signal.SIG_IGN)
                self._stacks = self._writer.stack.open("w")
                self._stacks.write(f"{threading.main_thread().ident:x}\n")
                self._stacks.flush()
                faulthandler.register(STACK_SIGNAL, file=self._stacks, all_threads=True)
            self.emit(Started, program=" ".join(sys.argv))

    def emit(self, event: type[Event], /, **values: Any) -> None:
        """Write an event of this process, if it is a rank; the line of the user's is added unless it is given."""
        if self.is_rank:
            values.setdefault("site", user_site())
            self.writer.event(event(pid=self.writer.pid, time=time.time(), rank=self.rank, **values))

    def joining(self, rank: int, **told: Any) -> None:
        """Tell that init_process_group was entered."""
        self.become_rank(rank if rank >= 0 else None)
        self.emit(Joining, **told)

    def joined(self) -> None:
        """Tell that there is a default process group."""
        import torch.distributed as dist

        self.become_rank(dist.get_rank())
        if not self._answers:
            self._answers = True
            answer(self.writer.base)
        self.emit(Joined, world_size=dist.get_world_size(), backend=str(dist.get_backend()))

    def count(self, counter: int) -> None:
        """Add one to a counter."""
        if self._writer is not None:
            self._writer.counters[counter] += 1

    def progress(self) -> int:
        """Give how many forwards of wrapped models and steps of optimizers this process has made."""
        return self.writer.counters[ledger.FORWARDS] + self.writer.counters[ledger.STEPS]

    def number(self, what: str, thing: object) -> int:
        """Number the objects of a kind in the order in which they are first seen."""
        key = (what, id(thing))
        number, alive = self._numbers.get(key, (0, None))
        if alive is None or alive() is not thing:  # not seen, or one that took the place of one that was freed
            number = self._counts[what] = self._counts[what] + 1
            self._numbers[key] = (number, _reference(thing))
        return number - 1

    def safely(self, function: Callable[..., None], *args: Any) -> None:
        """Call a function of the watch; if it fails itself, training goes on, and one line says so."""
        try:
            function(*args)
        except Exception as exc:  # noqa: BLE001 - whatever it is, it is the watch's fault and not the training's
            if not self._complained:
                self._complained = True
                with suppress(OSError, ValueError):
                    text = f"ddpdoctor: the watch failed in {function.__qualname__}: {type(exc).__name__}: {exc}\n"
                    os.write(2, text.encode())

    def explain(self, exc: BaseException, find_out: FindOut | None = None) -> None:
        """Add the explanation of an error, once, as a note; its type and its traceback stay.

        ``find_out`` gives the fields of Failed that are known where the error is raised.
        """
        if self.active and isinstance(exc, Exception) and not _in_loader_worker():
            self.safely(self.failures.passes, exc, find_out)

    def failed(self, exc: BaseException) -> None:
        """Tell that an exception is about to leave the process, and explain it."""
        if self.active and isinstance(exc, Exception) and not _in_loader_worker():
            self.safely(self.failures.leaves, exc)

    def left(self) -> None:
        """Tell that the default process group is given up."""
        self.emit(Left, ended=False)

    def obey(self) -> None:
        """End here if the monitor asks for it: at a batch or a step, where nothing is half done.

        Raises:
            FaultFoundError: a finding is to end the training.
            RehearsalOver: the rehearsal has seen enough.
        """
        if self._writer is not None and self._writer.counters[ledger.STOP]:
            if self.settings.rehearsal is not None:
                raise RehearsalOver(0)
            raise FaultFoundError((Path(self.settings.session) / ENDED).read_text(encoding="utf-8"))

    def over(self, epoch: int, *, training: bool) -> None:
        """End a rehearsal at the start of an epoch, which all ranks reach together.

        Raises:
            RehearsalOver: this would be one epoch too many.
        """
        if self.settings.rehearsal is not None and training and epoch >= self.settings.rehearsal.epochs:
            raise RehearsalOver(0)

    def enough_steps(self) -> None:
        """End a rehearsal after so many steps, where no loop over a loader ends it.

        Raises:
            RehearsalOver: this would be one step too many.
        """
        if self.settings.rehearsal is not None and self.writer.counters[ledger.STEPS] > self.settings.rehearsal.steps:
            raise RehearsalOver(0)

    def stop(self) -> None:
        """Write nothing any more."""
        self.active = False
        if self._stacks is not None and STACK_SIGNAL is not None:
            faulthandler.unregister(STACK_SIGNAL)
            signal.signal(STACK_SIGNAL, signal.SIG_IGN)
            self._stacks = None

    def _forked(self) -> None:
        if self._stacks is not None and STACK_SIGNAL is not None:
            faulthandler.unregister(STACK_SIGNAL)
        self._writer, self._stacks, self.rank, self._answers = None, None, None, False
        self._numbers, self._counts = {}, Counter()
        self.models, self.feed = Models(self), Feed()
        self.handles, self.failures = Handles(self), Failures(self)

    def ends(self) -> None:
        """Tell that the program has come to its end."""
        if self.active and not _in_loader_worker():
            self.safely(self.failures.at_end)
        self.safely(lambda: self.emit(Left, ended=True))
        self.handles.waiting.clear()  # what the interpreter frees from now on, no line of the script dropped


def _in_loader_worker() -> bool:
    """Say whether this is a worker of a DataLoader, whose errors the training is given."""
    data = sys.modules.get("torch.utils.data")
    return data is not None and data.get_worker_info() is not None


def _reference(thing: object) -> Callable[[], object]:
    try:
        return weakref.ref(thing)
    except TypeError:  # a list, say: kept, so that its identity stays its own
        return lambda: thing
