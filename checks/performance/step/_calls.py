"""What calls of a line cost a step: as they were timed, or by the share that their line had before that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ddpdoctor.check import STARVED, CallsTimed, LineKind, LinesSampled, RankSteps, StepsTimed, TimedCall, Training

from .._lines import share
from .._steps import STEADY

MANY = 16  # calls of a step
SMALL = 1024  # numbers of a collective: a metric, or a decision
READS = "Tensor."
ALONE = (READS, "print", "logging")
"""What a rank does by itself: all others are collectives, in which it waits."""
LOGGED = "self.log(sync_dist=True)"
"""What a LightningModule has reduced by a line that logs: the watch counts it under this name."""
FEW = 4  # of a step: where so many collectives are counted, no clock has to say that they are many


@dataclass(frozen=True, slots=True)
class Cost:
    """What a call at a line takes of a step; ``loop`` is the line of the loop that it is made for, as file:line.

    ``whole``: all that the function does in which the calls are made counts. ``counted``: the ranks wait for cores, so
    that the number of calls is what is certain, and the time is theirs and that of the wait.
    """

    what: str
    calls: dict[int, TimedCall]
    seconds: float
    loop: str = ""
    whole: bool = False
    counted: bool = False

    @property
    def most(self) -> TimedCall:
        """The calls of the rank that they take longest of."""
        return max(self.calls.values(), key=lambda each: each.nanoseconds)


def by_line(told: dict[int, CallsTimed]) -> dict[tuple[str, str, int], dict[int, TimedCall]]:
    """Return the calls that nearly each step has, by what they are and their line, then by rank."""
    by_line: dict[tuple[str, str, int], dict[int, TimedCall]] = {}
    for rank, each in told.items():
        for call in _of_lines([call for call in each.calls if call.steps >= STEADY * each.steps]):
            by_line.setdefault((call.what, call.file, call.line), {})[rank] = call
    return by_line


def _of_lines(calls: Sequence[TimedCall]) -> list[TimedCall]:
    """Return calls, those that read tensors on one line as one: ``(loss.item(), int(label))``."""
    together: dict[tuple[str, int], TimedCall] = {}
    for call in calls:
        at = (call.file, call.line) if call.what.startswith(READS) else (f"{call.file} {call.what}", call.line)
        known = together.get(at)
        together[at] = call if known is None else _added(*sorted((known, call), key=lambda each: -each.nanoseconds))
    return list(together.values())


def _added(longer: TimedCall, shorter: TimedCall) -> TimedCall:
    return longer._replace(times=longer.times + shorter.times, nanoseconds=longer.nanoseconds + shorter.nanoseconds)


def cost_of(event: StepsTimed, training: Training, cost: Cost, total: float) -> Cost:
    """Return what calls take: as they were timed, or by the share that their line had before calls were timed."""
    busy = any(each.starved > STARVED for each in event.ranks)
    steps = {each.rank: each for each in event.ranks if each.rank in cost.calls}
    if not cost.what.startswith(ALONE):
        often = min(each.times / max(1, each.steps) for each in cost.calls.values())
        if (busy and often < FEW and cost.what != LOGGED) or len(cost.calls) < training.world_size:
            return cost
        parts = [_collective(training, rank, cost.calls[rank]) for rank in steps]
        share, loop = min(parts, default=(1.0, ""))
        timed = min(each.nanoseconds for each in cost.calls.values()) / 1e9
        return replace(cost, seconds=min(timed, share * total), loop=loop, counted=busy)
    timed = max(each.nanoseconds for each in cost.calls.values()) / 1e9
    part, loop = max((_share(training, steps[rank], cost.calls[rank]) for rank in steps), default=(0.0, ""))
    if part * total > timed or busy:
        return replace(cost, seconds=part * total, loop=loop, whole=bool(loop))
    return replace(cost, seconds=timed)


def _share(training: Training, rank: RankSteps, call: TimedCall) -> tuple[float, str]:
    """Return the share of its time that a rank spends for a call, before the calls were timed, and in which line.

    Of a function that the loop calls for many of them (a meter, a metric) the whole time counts: the loop can leave it
    out. A single call in a line is not blamed for what else the line does, but for a line that logs.
    """
    told = training.by_rank(LinesSampled).get(rank.rank)
    if told is None:
        return 0.0, ""
    found = [(0.0, "")]
    for line in told.sampled:
        if line.kind != LineKind.LOGGING and (line.kind or call.times < MANY * call.steps):
            continue
        part = share(told, line, rank)
        if (line.inner_file, line.inner_line) == (call.file, call.line):
            found.append((part * line.most / max(1, line.nanoseconds), ""))
        if (line.inner_file, line.inner_function) == (call.file, call.function) and line.function != call.function:
            found.append((part, f"{line.file}:{line.line}"))
    return max(found)


def _collective(training: Training, rank: int, call: TimedCall) -> tuple[float, str]:
    """Return the share of its time that a rank was in a collective of this line, and for which line of the loop."""
    told = training.by_rank(LinesSampled).get(rank)
    if call.what == LOGGED:  # within the forward of the wrapper, and in an optimizer's closure
        parts = [part for line in (told.sampled if told else ()) for part in line.inside]
        spent = sum(part[3] for part in parts if part[:2] == (call.file, call.line))
        return (spent / max(1, told.nanoseconds) if told and spent else 1.0), ""
    lines = [
        each
        for each in (told.sampled if told else ())
        if each.kind == LineKind.COLLECTIVE and (each.inner_file, each.inner_line) == (call.file, call.line)
    ]
    if told is None or not lines:
        return 1.0, ""
    return sum(each.most for each in lines) / max(1, told.nanoseconds), f"{lines[0].file}:{lines[0].line}"
