"""Where the steps of a training go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ddpdoctor.host.tcp import LinkUse  # noqa: TC001 - some make events by the types of their fields
from ddpdoctor.watch.events.base import Event
from ddpdoctor.watch.events.steps.blocks import STEPS, Block

STARVED = 0.3  # of the time: where ranks wait so much for a core, the clock alone does not tell what a step costs


@dataclass(frozen=True, slots=True, kw_only=True)
class Equipped(Event):
    """A rank has made its first step: the device of what it trains, threads of an operation, cores it may run on."""

    device: str
    threads: int
    cpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled(Event):
    """A rank has measured so many steps closely (``--profile``): nanoseconds of each, as DDP's own logger counts them.

    ``hidden`` is communication while the backward computes, ``exposed`` what the backward waits for after that, both of
    the last backward before the step. ``total`` is from step to step. ``buckets`` are the bytes of DDP's buckets.
    ``forwards``, ``synced`` (those outside no_sync) and ``backwards`` are of a step, as ``cost``, in seconds, is.
    ``largest`` are the bytes of the largest parameter. ``searches``: DDP looks for unused parameters; ``unused`` are
    the bytes of those that it found in the step that had most. ``broadcast`` are the bytes of the buffers that it
    sends before each forward, ``largest_buffer`` the name of the largest one. ``anomalies``: torch looks for anomalies.
    ``worked`` are the nanoseconds of the processor that the thread which trains took for each step. ``recorded`` counts
    the steps that torch's profiler recorded. ``links`` are other hosts and what they were sent in ``window``
    nanoseconds, all measured steps. ``double`` is the share of the parameters' numbers that is float64, where that is
    not torch's default. Where several models are wrapped, or none is, ``model`` is -1, and empty what DDP counts.
    """

    model: int
    total: tuple[int, ...]
    exposed: tuple[int, ...]
    hidden: tuple[int, ...]
    buckets: tuple[int, ...]
    forwards: float
    synced: float
    backwards: float
    cost: float
    largest: int = 0
    searches: bool = False
    unused: int = 0
    broadcast: int = 0
    largest_buffer: str = ""
    anomalies: bool = False
    worked: tuple[int, ...] = ()
    recorded: int = 0
    window: int = 0
    links: tuple[LinkUse, ...] = ()
    double: float = 0.0


class RankSteps(NamedTuple):
    """The steps of one rank: spans of ``STEPS`` times ``per`` steps each, numbered alike on all ranks.

    ``starved`` is the share of the time in which the rank, or a process that it has started, waited for a core,
    ``throttled`` that in which the quota of its cgroup kept it from one. ``beside`` has the processes that computed on
    its cores alone, where it may use some of the host's only: name, number, share of the time. ``bound`` are these
    cores, of the ``host_cores`` that the host has; empty where it may use all. ``worked`` is the share of the time that
    the process computed which it has started and that computed most: a worker of its loader.
    """

    rank: int
    per: int
    spans: tuple[Block, ...]
    starved: float = 0.0
    device: str = ""
    threads: int = 0
    cpus: int = 0
    throttled: float = 0.0
    beside: tuple[tuple[str, int, float], ...] = ()
    bound: tuple[int, ...] = ()
    host_cores: int = 0
    worked: float = 0.0

    @property
    def steps(self) -> int:
        """How many steps its spans are."""
        return len(self.spans) * self.per * STEPS

    @property
    def seconds(self) -> float:
        """How long they took."""
        return sum(span.total for span in self.spans) / 1e9

    def shares(self, part: str) -> list[float]:
        """Return what share of each span a part of the step took."""
        return [getattr(span, part) / max(1, span.total) for span in self.spans]

    def a_step(self, part: str) -> list[float]:
        """Return the seconds of a part of a step, in each span."""
        return [getattr(span, part) / 1e9 / self.per / STEPS for span in self.spans]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsTimed(Event):
    """Made by the monitor: where the steps of a training went, by rank; once, after a while or at its end."""

    ranks: tuple[RankSteps, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleAtEnd(Event):
    """A schedule of learning rates has ``made`` so many steps, ``began`` after others, when the process ends.

    ``lengths`` are the numbers of steps that it can be made for: its own, or whole numbers that its function was made
    with. ``optimizer`` is the number of the one whose rates it sets. ``site`` is the line of its first step.
    ``planned`` is how many steps the Trainer of Lightning is to make that steps it; 0 without one.
    """

    kind: str
    lengths: tuple[int, ...]
    began: int
    made: int
    optimizer: int = -1
    planned: int = 0
