"""Reads what all watched processes write, and speaks as soon as a check finds something; runs without torch."""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from ddpdoctor.watch.command.exits import told
from ddpdoctor.watch.dispatcher import Dispatcher, Found
from ddpdoctor.watch.events import (
    Ended,
    EpochStarted,
    Event,
    Failed,
    FailedAlone,
    Joined,
    Joining,
    Left,
    Loaded,
    PeerLost,
    Stalled,
)
from ddpdoctor.watch.events.hosts.written import as_line, end_line, goes_on, joining_line
from ddpdoctor.watch.failure_explainer import Explainer
from ddpdoctor.watch.monitor.crashes import crashes
from ddpdoctor.watch.monitor.failures import Failures, is_fault
from ddpdoctor.watch.monitor.followed import Followed
from ddpdoctor.watch.monitor.optimizers import Optimizers
from ddpdoctor.watch.monitor.pacing import steps_of, timed
from ddpdoctor.watch.monitor.rank import deaf
from ddpdoctor.watch.monitor.ranks import Ranks
from ddpdoctor.watch.monitor.stands.positions import port_of_the_store
from ddpdoctor.watch.monitor.timeouts import timed_out
from ddpdoctor.watch.monitor.waiting import Launcher

if TYPE_CHECKING:
    from ddpdoctor.facets import Check
    from ddpdoctor.findings import Result
    from ddpdoctor.watch.events import RankSteps
    from ddpdoctor.watch.monitor.pacing import Pacing
    from ddpdoctor.watch.monitor.rank import Rank
    from ddpdoctor.watch.settings import Settings
    from ddpdoctor.watch.training import Training


class Monitor:
    """Follows one run; ``say`` is called with each finding as soon as it is made."""

    def __init__(self, settings: Settings, checks: Iterable[Check], say: Callable[[Found], None]) -> None:
        """Begin with an empty session."""
        self.found: list[Found] = []
        self.before: list[Found] = []
        """What the command itself says, before it begins: it does not end the training."""
        self.interrupted = False
        """Whether Ctrl-C has come, which ends the ranks one after another."""
        self.has_ended_the_deaf = False
        self._asked_at = math.inf
        self._settings, self._say = settings, say
        self._dispatcher = Dispatcher(checks := tuple(checks))
        self._failures = Failures(Explainer(checks))
        self._optimizers = Optimizers()
        self._stopped = False
        self._line = ""
        self._launcher = Launcher(settings.hang_after)
        self.ranks = Ranks(settings.session)
        self._followed: dict[int, Followed] = {}

    def poll(self) -> None:
        """Read what is new, and look for a hang."""
        for new in self.ranks.look():
            self._see(new)
        self._sort()
        for each in self._followed.values():
            for event in crashes(each):
                self.tell(self._dispatcher.see_of(each.training, event))
        self._see_killed()
        self.ranks.follow()
        if self.ranks.are_explaining:
            return  # it will say why the others wait
        for each in list(self._followed.values()):
            if each.new and self._failures.are_settled(each):
                self._explain(each)
            elif not each.new:
                self._look(each)
        self.ranks.hang(told=any(each.told_hang and each.hung_until_now for each in self._followed.values()))

    def _see_killed(self) -> None:
        """Take up what launchers say of ranks that are gone without a word."""
        exits = list(told(self._settings.session))
        for killed in [event for each in self._followed.values() for event in each.killed(exits)]:
            self._see(killed)

    def lines(self, pid: int) -> Iterator[str]:
        """Yield what is to stand in this host's log for who reads the logs of all hosts; ``pid`` is the command."""
        if line := self.look_at_launcher(pid):
            yield line
        if self._line:
            yield self._line
        self._line = ""
        yield from self.lines_at_end(is_last=False)

    def lines_at_end(self, *, is_last: bool) -> Iterator[str]:
        """Yield how the ranks of this host came to their end, where other hosts have more; once for each training.

        Not at the end of the command: torchrun waits for those of other hosts, minutes after the last rank is gone.
        """
        for each in self._followed.values():
            training = each.training
            if each.told_end or each.alive or not each.ranks:
                continue
            if not (each.is_over or is_last):
                each.is_over = True  # what the last rank wrote before it went is read by the next look
                continue
            each.told_end = True
            told = training.of(Loaded), training.of(Left, ended=True)
            if line := end_line(socket.gethostname(), each.progress(), training.world_size, *told):
                yield line

    def look_at_launcher(self, pid: int) -> str:
        """Look whether the command, a process, waits for other nodes while there is no rank; told once.

        Return the line that describes this host then.
        """
        last = next(reversed(self._followed.values()), None)
        event = self._launcher.look(pid, self.ranks, failed=last is not None and bool(last.failed))
        if event is None:
            return ""
        self.tell(self._dispatcher.see_of(self.training, event))
        return event.line

    def _time(self, training: Training, *, at_end: bool = False) -> None:
        """Take the stopwatch's figures of a training's steps to the checks."""
        profiles = bool(self._settings.profile)
        if event := timed(training, self._pacings(training), at_end=at_end, profiles=profiles):
            self.tell(self._dispatcher.see_of(training, event))

    def _pacings(self, training: Training) -> dict[int, Pacing]:
        own = self._ranks_of(training)
        return {each.rank: each.pacing for each in own if each.rank >= 0 and each.pacing.spans.spans}

    def _ranks_of(self, training: Training) -> list[Rank]:
        return [each for each in self.ranks if self._dispatcher.trainings.of(each.reader.pid) is training]

    @property
    def steps(self) -> tuple[RankSteps, ...]:
        """Where the steps of the training went that made most of them, by rank."""
        found = [steps_of(each, self._pacings(each)) for each in self.trainings]
        return max(found, key=lambda ranks: sum(each.steps for each in ranks), default=())

    def _look(self, each: Followed) -> None:
        """Look for a hang of a training, in its midst and at its end; and at its pace."""
        self._time(each.training)
        after = self._settings.hang_after
        for event in (*each.look_at_end(after), each.look(after)):
            if event is not None and not (self.interrupted and each.was_interrupted()):
                found = list(self._dispatcher.see_of(each.training, event))
                if isinstance(event, Stalled) and not any(map(is_fault, found)):
                    self._line = as_line(event, socket.gethostname(), each.training.of(EpochStarted))
                    each.lined_at = time.monotonic() if self._line else 0.0
                    self._line = self._line or joining_line(event, socket.gethostname(), each.training.by_rank(Joining))
                each.told_hang = each.told_hang or any(map(is_fault, found))
                self.tell(found)
        if each.goes_on:
            each.lined_at, self._line = 0.0, goes_on(socket.gethostname())

    def _sort(self) -> None:
        """Put each process where its training is."""
        for each in self._followed.values():
            each.ranks.clear()
        for rank in self.ranks:
            self._follow(rank.reader.pid).ranks.append(rank)

    def _follow(self, pid: int) -> Followed:
        training = self._dispatcher.trainings.of(pid)
        return self._followed.setdefault(id(training), Followed(training))

    def deaf(self) -> list[Rank]:
        """List all ranks that are left, if none of them can hear Ctrl-C."""
        return deaf(self.ranks, port_of_the_store(self.training))

    @property
    def explained(self) -> list[Found]:
        """Those of the findings that explain why a rank failed."""
        return self._failures.explained

    @property
    def crashes(self) -> tuple[Result, ...]:
        """The results of checks that crashed."""
        return tuple(self._dispatcher.crashes)

    @property
    def asked(self) -> frozenset[str]:
        """The codes of checks that had something to look at."""
        return frozenset(self._dispatcher.asked)

    @property
    def training(self) -> Training:
        """All that the ranks have told."""
        return self._dispatcher.trainings.all

    @property
    def trainings(self) -> tuple[Training, ...]:
        """The trainings of the command, each with what its ranks have told."""
        return tuple(self._dispatcher.trainings)

    @property
    def joined(self) -> bool:
        """Whether a rank has joined a process group."""
        return bool(self.training.of(Joined))

    def first_failure(self) -> str:
        """Return the first exception that left a rank before somebody ended it all, in a line; empty without one."""
        told = (each for each in self.training.of(Failed) if each.time < self._asked_at)
        failed = sorted(told, key=lambda event: event.time)
        if not failed:
            return ""
        first = failed[0]
        alike = {each.rank for each in failed if (each.said, each.site) == (first.said, first.site)}
        who = f"all {len(alike)} ranks" if len(alike) == self.training.world_size > 1 else f"rank {first.rank}"
        return f"{who}: {first.said}" + (f" ({first.site})" if first.site else "")

    def end(self, status: int, *, asked_at: float = math.inf) -> None:
        """Take the end of the command into account: what no rank will tell any more; ``asked_at``: when by a signal."""
        self._asked_at = asked_at
        self.poll()
        for each in self._followed.values():
            self._explain(each)
            if status and asked_at == math.inf:
                self._explain_silence(each)
                self._explain_alone(each)
        for training in list(self._dispatcher.trainings) or [self.training]:
            self._time(training, at_end=True)
            self.tell(self._dispatcher.see_of(training, Ended(pid=0, time=time.time(), status=status)))

    def stop_ranks(self, text: str) -> None:
        """Ask all ranks to end at their next batch or step; what has failed before is still told."""
        for followed in self._followed.values():
            self._explain(followed)
        self._stopped = True
        self.ranks.stop(text)

    @property
    def hung(self) -> bool:
        """Whether all trainings that are left stand: nobody works."""
        left = [each for each in self._followed.values() if each.alive]
        return bool(left) and all(each.hung for each in left)

    def _see(self, event: Event) -> None:
        event = self._optimizers.numbered(event)
        if not isinstance(event, Failed):
            self.tell(self._dispatcher.see(event))
            return
        training = self._dispatcher.trainings.add(event)
        if (looked := timed_out(event, self._ranks_of(training))) is not None:
            training.add(looked)
        is_end_of_a_hang = event.error.endswith("SignalException") and any(
            each.hung_until_now for each in self._followed.values()
        )
        if not event.error.startswith("ddpdoctor.") and not is_end_of_a_hang:
            self._follow(event.pid).fails(event)

    def _explain(self, each: Followed) -> None:
        """Report what the ranks of a training have failed of; of one that the watch has ended nothing more is said."""
        is_our_end = self.interrupted and (each.was_interrupted() or self.has_ended_the_deaf)
        if each.new and not self._stopped and not is_our_end:
            self.tell(self._failures.explain(each, self._dispatcher, self.found))

    def _explain_silence(self, each: Followed) -> None:
        """Ask what all ranks are gone of that told nothing: one died, and the launcher was quicker than the others."""
        if each.failed or self._stopped or not (gone := each.gone()):
            return
        progress, ended = each.progress(), each.ended()
        lost = PeerLost(pid=0, time=time.time(), first=None, others=(), gone=gone, ended=ended, progress=progress)
        self.tell(self._dispatcher.see_of(each.training, lost))

    def _explain_alone(self, each: Followed) -> None:
        """Ask what one rank has failed of by itself, where no check knows that and no other rank waited for it."""
        others = (*each.gone(), *each.ended())
        if each.known or self._stopped or self.interrupted or len(each.failed) != 1 or not others:
            return
        event = FailedAlone(pid=0, time=time.time(), first=each.failed[0], gone=each.gone(), ended=each.ended())
        self.tell(self._dispatcher.see_of(each.training, event))

    def tell(self, found: Iterable[Found]) -> None:
        """Keep findings, and say them."""
        for each in found:
            self.found.append(each)
            self._say(each)
