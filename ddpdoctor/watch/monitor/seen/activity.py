"""Whether a rank is at work, or stands still: followed all the time from outside, so that no single look decides."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ddpdoctor.watch.monitor.seen.usage import Thread, Usage, usages

WINDOW = 1.0  # seconds over which use is measured
TURNS = 0.5  # a second: a main thread that comes to run so often asks again and again for something
PARTS = 3  # of an answer: a main thread that reads from a connection comes to run for each part that arrives, only then
BYTES = 16_384  # a second: what a process reads and writes that downloads, copies or indexes


@dataclass(slots=True)
class Activity:
    """What is known of one process; ``quiet`` is what it had used when it was last seen at work, None before.

    ``thread`` is the one that trains, where that is not the main one.
    """

    thread: int = 0
    quiet: Usage | None = None
    last: Usage | None = None

    def take(self, now: Usage | None) -> None:
        """Take up what the process has used by now; what lies between two calls is one window."""
        if now is None:
            return
        if self.last is None or self.quiet is None or now.works_since(self.last) or now.helpers != self.quiet.helpers:
            self.quiet = now
        self.last = now

    def rest(self, now: Usage | None) -> None:
        """Leave out of account what the monitor's own question has just caused in the process."""
        if now is not None and self.last is not None and self.quiet is not None:
            main, since = self.quiet.main, self.last.main
            ran, waited, turns = (each - before for each, before in zip(now.main, since, strict=True))
            self.quiet = replace(
                self.quiet,
                threads={
                    **self.quiet.threads,
                    now.trains: Thread(main.ran + ran, main.waited + waited, main.turns + int(turns)),
                },
                moved=self.quiet.moved + now.moved - self.last.moved,
            )
            self.last = now

    def is_due(self, now: float) -> bool:
        """Whether it is time for another look: the longer nothing moves, the rarer."""
        return self.last is None or now - self.last.time > max(WINDOW, self.still / 10)

    @property
    def still(self) -> float:
        """The seconds for which the process has not computed, nor waited for a core or for a disk."""
        return self.last.time - self.quiet.time if self.last is not None and self.quiet is not None else 0.0

    @property
    def moves_data(self) -> bool:
        """Whether a process that does not compute reads or writes all the same."""
        return (
            self.last is not None
            and self.quiet is not None
            and self.last.moved - self.quiet.moved > BYTES * max(self.still, WINDOW)
        )

    @property
    def asks(self) -> bool:
        """Whether the main thread of a process that does not compute comes to run again and again all the same."""
        return (
            self.last is not None
            and self.quiet is not None
            and self.last.main.turns - self.quiet.main.turns > TURNS * max(self.still, WINDOW)
        )

    @property
    def is_served(self) -> bool:
        """Whether the main thread of a process that does not compute has come to run for a few parts of an answer."""
        return (
            self.last is not None and self.quiet is not None and self.last.main.turns - self.quiet.main.turns >= PARTS
        )


def follow(activities: dict[int, Activity]) -> None:
    """Look at processes, by pid: one window is over. Helpers are looked for where a process itself does nothing."""
    threads = {pid: each.thread for pid, each in activities.items()}
    now = usages(activities, helpers=False, threads=threads)
    works = {pid for pid, each in activities.items() if pid in now and each.last and now[pid].works_since(each.last)}
    now |= usages(now.keys() - works, threads=threads)
    for pid, each in activities.items():
        each.take(now.get(pid))


def leave_out(activities: dict[int, Activity]) -> None:
    """Look at them again after the monitor has asked them something."""
    now = usages(activities, threads={pid: each.thread for pid, each in activities.items()})
    for pid, each in activities.items():
        each.rest(now.get(pid))
