"""What the figures of all ranks' steps say: large and steady, or nothing."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ddpdoctor.check import Block, Evidence, NotRun, Profiled, RankSteps, StepsTimed

LARGE = 0.2  # of a step
LEAST = 0.005  # seconds of a step: what is shorter is a toy, or the noise of one
STEADY = 0.8  # of the spans
TWO_DIGITS = 10  # milliseconds: what is shorter is told with a tenth
ALSO = 0.08  # of the time: a rank that waits so much for its workers has none that are ahead


@dataclass(frozen=True, slots=True)
class Behind:
    """One rank that the others wait for: seconds of a step by which it takes longer, and their share of the step.

    ``shares`` are those of single spans, of which a step ``took`` so many seconds.
    """

    rank: RankSteps
    seconds: float
    share: float
    took: tuple[float, ...] = ()
    shares: tuple[float, ...] = ()

    @property
    def promise(self) -> str:
        """What a step takes where the rank is as fast as the others."""
        return promise(self.took, [took * max(0.0, share) for took, share in zip(self.took, self.shares, strict=True)])


def on_cpu(event: StepsTimed) -> None:
    """Refuse what the clock on the wall does not tell.

    Raises:
        NotRun: no step was timed, or kernels run on a device while Python does something else.
    """
    if not event.ranks:
        raise NotRun("no step was timed")
    if any(each.device != "cpu" for each in event.ranks):
        raise NotRun("kernels run on the device while Python goes on: the clock on the wall does not tell")


def middle(rank: RankSteps, part: str) -> float:
    """Return the median seconds of a part of a step."""
    return statistics.median(rank.a_step(part))


def share(rank: RankSteps, part: str) -> float:
    """Return the median share of a part of a step."""
    return statistics.median(rank.shares(part))


def promise(took: Sequence[float], saved: Sequence[float]) -> str:
    """Return what steps take without the part of each that is saved, and what they take: the median, in milliseconds.

    With what a tenth of them lies below, and a tenth above.
    """
    then = sorted(max(0.0, each - part) for each, part in zip(took, saved, strict=True))
    tenth, now = len(then) // 10, 1e3 * statistics.median(took)
    low, middle, high = (1e3 * each for each in (then[tenth], statistics.median(then), then[-1 - tenth]))
    digits = 0 if now >= TWO_DIGITS else 1
    return f"about {middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f}) instead of {now:.{digits}f} ms a step"


def promise_of_mean(step: float, part: float) -> str:
    """Return what steps of so many seconds take on average without a part that is not in each of them."""
    digits = 0 if 1e3 * step >= TWO_DIGITS else 1
    return f"about {1e3 * step * max(0.0, 1 - part):.{digits}f} instead of {1e3 * step:.{digits}f} ms a step on average"


def without(share: float, measured: Profiled) -> str:
    """Return what steps that were measured closely take without a share of each."""
    took = [each / 1e9 for each in measured.total]
    return promise(took, [share * each for each in took])


def seen(rank: RankSteps, part: str, what: str, expected: str = "") -> Evidence:
    """Return the figures of a part of a rank's step."""
    shares = sorted(rank.shares(part))
    low, high = shares[len(shares) // 10], shares[-1 - len(shares) // 10]
    text = (
        f"{what} {1e3 * middle(rank, part):.1f} of {1e3 * middle(rank, 'total'):.1f} ms a step: "
        f"{share(rank, part):.0%} ({low:.0%} to {high:.0%})"
    )
    return Evidence(text, expected, f"rank {rank.rank}, {rank.steps} steps")


def behind(event: StepsTimed, part: str) -> Behind | None:
    """Find the rank that takes much longer for a part of nearly every step, and that the others wait for."""
    if len(event.ranks) < 2 or len({each.per for each in event.ranks}) > 1:  # noqa: PLR2004 - nobody to wait for
        return None
    by_rank = [{span.number: span for span in each.spans} for each in event.ranks]
    common = sorted(set.intersection(*map(set, by_rank)))
    last = []
    for number in common:
        values = [_of(each[number], part) for each in by_rank]
        last.append(values.index(max(values)))
    worst = statistics.mode(last) if last else 0
    if not common or last.count(worst) < STEADY * len(common):
        return None
    more, waits = [], []
    for number in common:
        spans = [each[number] for each in by_rank]
        others = [span for at, span in enumerate(spans) if at != worst]
        total = max(1, spans[worst].total)
        more.append((_of(spans[worst], part) - statistics.median(_of(each, part) for each in others)) / total)
        waits.append((statistics.median(each.backward for each in others) - spans[worst].backward) / total)
    rank = event.ranks[worst]
    excess, waited, total_seconds = statistics.median(more), statistics.median(waits), middle(rank, "total")
    steady = sum(each >= LARGE / 2 for each in more) >= STEADY * len(more)
    if not steady or excess < LARGE or excess * total_seconds < LEAST or waited < excess / 2:
        return None
    took = tuple(_seconds(rank, common))
    return Behind(rank, excess * total_seconds, excess, took, tuple(more))


def all_wait_at_times(event: StepsTimed) -> bool:
    """Whether each rank waits for its workers: all loaders are slow, and that of one rank is behind by chance."""
    return all(
        sum(span.data for span in each.spans) >= ALSO * max(1, sum(span.total for span in each.spans))
        for each in event.ranks
    )


def last_in(event: StepsTimed) -> RankSteps | None:
    """Find the rank that takes longest for what is its own in nearly every step, while the others wait in backward."""
    if len(event.ranks) < 2 or len({each.per for each in event.ranks}) > 1:  # noqa: PLR2004 - nobody to wait for
        return None
    worst = max(event.ranks, key=lambda each: middle(each, "own"))
    others = [{span.number: span for span in each.spans} for each in event.ranks if each is not worst]
    last = [
        all(span.own > other[span.number].own and span.backward < other[span.number].backward for other in others)
        for span in worst.spans
        if all(span.number in other for other in others)
    ]
    return worst if last and sum(last) >= STEADY * len(last) else None


def exposed(measured: Mapping[int, Profiled]) -> list[float]:
    """Return for each measured step the seconds that the rank waited which waited least."""
    return [min(each) / 1e9 for each in zip(*(each.exposed for each in measured.values()), strict=False)]


def _seconds(rank: RankSteps, numbers: Sequence[int]) -> list[float]:
    """Return the seconds of a step in these spans."""
    by_number = {span.number: each for span, each in zip(rank.spans, rank.a_step("total"), strict=True)}
    return [by_number[number] for number in numbers]


def _of(span: Block, part: str) -> int:
    value: int = getattr(span, part)
    return value
