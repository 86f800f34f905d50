"""What one rank alone does in the loop, in lines that the others hardly come to, while they wait for it."""

from __future__ import annotations

from dataclasses import dataclass

from ddpdoctor.check import LinesSampled, RankSteps, SampledLine, StepsTimed, Training

from .._lines import HARDLY, LOADS, WAITS, own
from .._steps import LARGE

LEAST = 0.002  # seconds of a step
FEWEST, PART = 5, 0.1  # steps, and their share of those looked at: what is rarer is no matter of each step
SEVERAL, MUCH = 3, 0.3  # steps, and the share of the time: what takes so much is told where it is rarer


@dataclass(frozen=True, slots=True)
class Alone:
    """The longest line of one rank alone; ``seconds`` of a ``step`` are those of all such lines together, by the clock.

    ``share`` is what they take of the time in which the rank did not wait for a core. ``waits`` is where another rank
    waits meanwhile.
    """

    rank: RankSteps
    told: LinesSampled
    line: SampledLine
    seconds: float
    step: float
    share: float
    waits: tuple[int, LinesSampled, SampledLine]


def alone(event: StepsTimed, training: Training) -> Alone | None:
    """Find the rank that the others wait for while it does what they do not; None where there is none."""
    told = training.by_rank(LinesSampled)
    if len(event.ranks) < 2 or any(each.rank not in told for each in event.ranks):  # noqa: PLR2004 - nobody waits
        return None
    found = [each for rank in event.ranks if (each := _of(rank, told)) is not None]
    return max(found, key=lambda each: each.share, default=None)


def _of(rank: RankSteps, told: dict[int, LinesSampled]) -> Alone | None:
    mine, others = told[rank.rank], {number: each for number, each in told.items() if number != rank.rank}
    theirs = {
        (line.file, line.line)
        for each in others.values()
        for line in each.sampled
        if line.nanoseconds >= HARDLY * each.nanoseconds
    }
    loops = [{(line.file, line.function) for line in each.sampled} for each in others.values()]
    nobody_else_loads = not any(line.kind in LOADS for each in others.values() for line in each.sampled)
    lines = [
        line
        for line in mine.sampled
        if line.kind not in WAITS
        and (line.kind not in LOADS or nobody_else_loads)
        and (line.file, line.line) not in theirs
        if all((line.file, line.function) in each for each in loops)
    ]
    longest = max(lines, key=own, default=None)
    spent, steps = sum(map(own, lines)), max(1, mine.steps)
    share = spent / _with_a_core(mine)
    fewest = max(FEWEST, PART * mine.steps) if share < MUCH else SEVERAL
    if longest is None or longest.steps < fewest:
        return None
    number, least = min(others.items(), key=lambda each: _waits(each[1]))
    waits = [each for each in least.sampled if each.kind in WAITS]
    if not waits or share < LARGE or spent / steps < LEAST * 1e9 or _waits(least) - _waits(mine) < share / 2:
        return None
    same = {(each.file, each.line): own(each) / _with_a_core(mine) for each in mine.sampled if each.kind in WAITS}
    line = max(waits, key=lambda each: own(each) / _with_a_core(least) - same.get((each.file, each.line), 0.0))
    seconds = sum(each.nanoseconds for each in lines) / steps / 1e9
    return Alone(rank, mine, longest, seconds, mine.nanoseconds / steps / 1e9, share, (number, least, line))


def _with_a_core(told: LinesSampled) -> int:
    return max(1, told.nanoseconds - told.waited)


def _waits(told: LinesSampled) -> float:
    """Return the share of its time in which a rank waits for others."""
    return sum(own(line) for line in told.sampled if line.kind in WAITS) / _with_a_core(told)
