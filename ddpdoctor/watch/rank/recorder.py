"""The watched process's own record: who it is, its event log, and what must never disturb the training."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch import event_log
from ddpdoctor.watch.events import Event, Joined, Joining, Left, Started, WatchFailed
from ddpdoctor.watch.rank.around.answers import Answers
from ddpdoctor.watch.rank.around.crash_dump import CrashDump
from ddpdoctor.watch.rank.around.forked import Inherited, has_group
from ddpdoctor.watch.rank.around.session import launched, with_monitor
from ddpdoctor.watch.rank.async_work import Handles
from ddpdoctor.watch.rank.compared.aliased import Aliases
from ddpdoctor.watch.rank.compared.exchanges import Exchanges
from ddpdoctor.watch.rank.compared.losses import Losses
from ddpdoctor.watch.rank.data.built import Built
from ddpdoctor.watch.rank.data.draws import Draws
from ddpdoctor.watch.rank.data.given_rows import GivenRows
from ddpdoctor.watch.rank.data.numberings import Numberings
from ddpdoctor.watch.rank.data.passes import Feed
from ddpdoctor.watch.rank.data.reads import Reads
from ddpdoctor.watch.rank.data.suspended import Streams
from ddpdoctor.watch.rank.end.failures import Failures, FindOut
from ddpdoctor.watch.rank.end.leaving import Leaving
from ddpdoctor.watch.rank.end.traceback_format import comes_from_a_handler, is_error
from ddpdoctor.watch.rank.evaluation.evaluations import Evaluations, Sums
from ddpdoctor.watch.rank.frameworks.frameworks import Frameworks
from ddpdoctor.watch.rank.frameworks.horovod import Horovod
from ddpdoctor.watch.rank.graph.operands import Operands
from ddpdoctor.watch.rank.growing.growing import Growing
from ddpdoctor.watch.rank.ledger.functional import Functional
from ddpdoctor.watch.rank.ledger.ledger import Ledger
from ddpdoctor.watch.rank.ledger.without_optimizer import Updates
from ddpdoctor.watch.rank.limits import Limits
from ddpdoctor.watch.rank.measured.profile import Profile
from ddpdoctor.watch.rank.model.beside.used import Calls
from ddpdoctor.watch.rank.model.models import Models
from ddpdoctor.watch.rank.numbers import Numbers
from ddpdoctor.watch.rank.stopwatch import Stopwatch
from ddpdoctor.watch.rank.training_thread import TrainingThread
from ddpdoctor.watch.user_frames import user_site

if TYPE_CHECKING:
    from ddpdoctor.watch.rank.patch import Patch
    from ddpdoctor.watch.settings import Settings

EARLY = 2  # steps in which gradients are looked at right after backward


class Recorder:
    """One watched process; after a fork the child is another one, which is watched once it joins a process group.

    ``log`` is the event log while this process is watched as a rank, else None: what each step asks, so no property.
    """

    def __init__(self, settings: Settings) -> None:
        """Begin with nothing written: a process that is no rank leaves no trace."""
        self.settings = settings
        self.rank: int | None = None
        self.active = True
        self.has_joined = False
        self.given_port = os.environ.get("MASTER_PORT", "")
        self.late: list[Patch] = []
        self.last_looks: list[Callable[[], None]] = []
        self.before_first_step: list[Callable[[], None]] = [Numberings(self).tell]
        self.limits = Limits(self)
        self.reads = Reads()
        self.frameworks = Frameworks(self)
        self.horovod = Horovod()
        self._begin()
        self.last_looks.append(lambda: self.evaluations.over(at_end=True))
        self.inherited: Inherited | None = None
        self.log: event_log.Writer | None = None
        self._writer: event_log.Writer | None = None
        self._answers: Answers | None = None
        self._crash_dump: CrashDump | None = None
        self._complained = False
        os.register_at_fork(after_in_child=self._forked)
        atexit.register(self.ends)

    def _begin(self) -> None:
        """Know nothing of a training yet: at the start, and after a fork in the child."""
        self.number = Numbers()
        self.models = Models(self)
        self.exchanges, self.losses = Exchanges(), Losses(self)
        self.ledger, self.updates = Ledger(self, Calls(self, self.models.shards), Operands(self)), Updates(self)
        self.functional = Functional(self)
        self.feed, self.rows, self.built = Feed(Draws(self), Streams(self)), GivenRows(self), Built()
        self.evaluations: Evaluations = Evaluations(self)
        self.sums, self.aliases = Sums(self), Aliases(self)
        self.stopwatch = Stopwatch()
        self.growing = Growing(self)
        self.profile = Profile(self, self.settings.profile) if self.settings.profile else None
        self.handles, self.failures, self.leaving = Handles(self), Failures(self), Leaving(self)
        self.trains = TrainingThread(self._trains_in)

    @property
    def is_rank(self) -> bool:
        """Whether this process was told a rank, or joins a process group."""
        return self.log is not None

    @property
    def early(self) -> bool:
        """Whether this process is in its first steps, with a wrapped model."""
        return bool(self.models.known) and self.writer.counters[event_log.STEPS] <= EARLY

    @property
    def writer(self) -> event_log.Writer:
        """The event log of a process that is a rank."""
        assert self._writer is not None, "only a rank writes"  # noqa: S101 - the hooks ask is_rank first
        return self._writer

    def become_rank(self, rank: int | None) -> None:
        """Open the event log; from now on the monitor sees this process."""
        if not self.active or self._is_one_of_several_ranks():
            return
        if rank is not None:
            self.rank = rank
        if self._writer is None:
            if not self.settings.session:
                self.settings = with_monitor(self.settings)
            self._writer = event_log.Writer(self.settings.session)
            self.safely(self._answer)
            self.log = self._writer  # only now: the watch's own files are not the script's
            self.emit(Started, program=" ".join(sys.argv), **launched())

    def _answer(self) -> None:
        self._answers = Answers(self.writer.base, self.trains)
        self._crash_dump = CrashDump(self.writer.base.with_suffix(event_log.CRASH))

    def _trains_in(self, thread: int) -> None:
        if self._writer is not None:
            self._writer.counters[event_log.THREAD] = thread

    def _is_one_of_several_ranks(self) -> bool:
        """Whether ranks are threads of this one process, as in torch's own tests: what is kept is a process's."""
        threaded = "torch.testing._internal.distributed.multi_threaded_pg" in sys.modules
        return threaded and threading.current_thread() is not threading.main_thread()

    def emit(self, event: type[Event], /, **values: Any) -> None:
        """Write an event of this process, if it is a rank; the line of the user's is added unless it is given."""
        if self.is_rank:
            values.setdefault("site", user_site())
            self.writer.event(event(pid=self.writer.pid, time=time.time(), rank=self.rank, **values))

    def joining(self, rank: int, **told: Any) -> None:
        """Record that init_process_group was entered."""
        self.become_rank(rank if rank >= 0 else None)
        self.emit(Joining, **told)

    def joined(self) -> None:
        """Record that there is a default process group."""
        import torch.distributed as dist

        self.has_joined = True
        self.become_rank(dist.get_rank())
        self.emit(Joined, world_size=dist.get_world_size(), backend=str(dist.get_backend()))
        self.frameworks.seen(wraps=False)

    def joined_unseen(self) -> None:
        """Record a default process group that was made where init_process_group is not watched."""
        import torch.distributed as dist

        if not self.has_joined and dist.is_initialized():
            self.joined()

    def count(self, counter: int) -> None:
        """Count a forward or a step, and take note of the thread that makes it; hooks of DDP do so themselves."""
        if self.log is not None:
            self.log.counters[counter] += 1
            self.trains.works()

    def progress(self) -> int:
        """Return how many forwards of wrapped models and steps of optimizers this process has made."""
        return self.writer.counters[event_log.FORWARDS] + self.writer.counters[event_log.STEPS]

    def safely(self, function: Callable[..., None], *args: Any) -> None:
        """Call a function of the watch; if it fails itself, training goes on, and one line says so.

        What a handler of a signal raises meanwhile, as torchrun's does, or one that limits the time of a step, is
        passed on.
        """
        try:
            function(*args)
        except Exception as exc:  # noqa: BLE001 - whatever it is, it is the watch's fault and not the training's
            for each in (exc, exc.__cause__):
                if each is not None and comes_from_a_handler(each):
                    raise each from each.__cause__
            if not self._complained:
                self._complained = True
                part, said = function.__qualname__, f"{type(exc).__name__}: {exc}"
                with suppress(OSError, ValueError):
                    os.write(2, f"ddpdoctor: the watch failed in {part}: {said}\n".encode())
                self.safely(self._fails, part, said)

    def _fails(self, part: str, said: str) -> None:
        self.emit(WatchFailed, part=part, said=said)

    def explain(self, exc: BaseException, find_out: FindOut | None = None, *, step: bool = False) -> None:
        """Add the explanation of an error, once, as a note; its type and its traceback stay.

        ``find_out`` gives the fields of Failed that are known where the error is raised. ``step``: in a step of the
        training, which a rank that catches it skips.
        """
        if self.active and is_error(exc) and not _in_loader_worker():
            self.safely(self.failures.passes, exc, find_out, step)

    def failed(self, exc: BaseException) -> None:
        """Record that an exception is about to leave the process, and explain it."""
        if self.active and is_error(exc) and not _in_loader_worker():
            self.safely(self.failures.leaves, exc)

    def left(self) -> None:
        """Record that the default process group is destroyed."""
        self._look_a_last_time()
        self.emit(Left, ended=False, models=len(self.models.alive()))

    def _look_a_last_time(self) -> None:
        for look in self.last_looks if self.is_rank else ():
            self.safely(look)

    def stop(self) -> None:
        """Write nothing any more."""
        self.active, self.log = False, None
        self.ledger.quiet()
        self.rows.end()
        self._end_answers()

    def _end_answers(self) -> None:
        for each in (self._answers, self._crash_dump):
            if each is not None:
                each.end()
        self._answers = self._crash_dump = None

    def _forked(self) -> None:
        if self._answers is not None:
            self._answers.forked()
        self._end_answers()
        if self.log is not None and has_group():
            self.inherited = Inherited(self.log, self.rank)
        self._writer, self.log, self.rank = None, None, None
        self.rows.end()
        self.ledger.quiet()
        self.frameworks.forget()
        if self.profile is not None:
            self.profile.forget()
        self._begin()

    def ends(self) -> None:
        """Record that the program has come to its end."""
        if self.active and not _in_loader_worker():
            self.safely(self.failures.at_end)
            self._look_a_last_time()
        self.safely(self.leaving.tell)
        self.handles.waiting.clear()  # what the interpreter frees from now on, no line of the script dropped


def _in_loader_worker() -> bool:
    """Whether this is a worker of a DataLoader, whose errors the training is given."""
    data = sys.modules.get("torch.utils.data")
    return data is not None and data.get_worker_info() is not None
