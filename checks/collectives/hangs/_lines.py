"""Where the ranks of several hosts waited, put together from the lines that the watch of each has printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpdoctor.check import RANKS_LINE, Evidence, Training, behind_a_loop, counts_from, loaders_from, stalled_from

from ._hangs import hang_of
from ._told import short

if TYPE_CHECKING:
    from ddpdoctor.check import Log, Record, Stalled

    from ._kinds import Hang

NOTHING_TOLD = Training()
"""The lines tell where the ranks are, and nothing of what they called before."""


def hang_in(record: Record, log: Log, *hangs: Hang) -> Stalled | None:
    """Return the hang that the lines tell together, if it is one of these; with the first of these lines alone."""
    found = list(log.find(RANKS_LINE))
    if not found or found[0][0] is not record:
        return None
    event = stalled_from(match[1] for _, match in found)
    return event if event is not None and hang_of(event, NOTHING_TOLD) in hangs else None


def waited_for_others(record: Record, log: Log) -> Stalled | None:
    """Return where the ranks waited of which the lines tell, where some are on none of these hosts; else None."""
    found = list(log.find(RANKS_LINE))
    if not found or found[0][0] is not record:
        return None
    event = stalled_from((match[1] for _, match in found), whole=False)
    alike = event is not None and len({(each.operation, each.site) for each in event.ranks}) == 1
    return event if alike else None


def counted(log: Log) -> tuple[str, tuple[Evidence, ...]]:
    """Return how far the ranks came, in words and as evidence, where they came not equally far; empty else."""
    counts = counts_from(match[1] for _, match in log.find(RANKS_LINE))
    if len({forwards for forwards, _ in counts.values()}) < 2:  # noqa: PLR2004 - they differ
        return "", ()
    most, fewest = (pick(counts, key=lambda rank: counts[rank][0]) for pick in (max, min))
    said = f"rank {most} has begun forward {counts[most][0]}, rank {fewest} came to {counts[fewest][0]}"
    evidence = tuple(
        Evidence(f"{forwards} forwards, {steps} steps", "as many on all ranks", f"rank {rank}")
        for rank, (forwards, steps) in sorted(counts.items())[:SHOWN]
    )
    return said, evidence


def unequal_loaders(log: Log) -> tuple[str, tuple[Evidence, ...]]:
    """Return that the loaders of two ranks are of different lengths, in words and as evidence; else empty."""
    told = loaders_from(match[1] for _, match in log.find(RANKS_LINE))
    loaders = {rank: each for rank, each in told.items() if each[1]}
    if len({*loaders.values()}) < 2:  # noqa: PLR2004 - they differ
        return "", ()
    (first, usual), *others = sorted(loaders.items())
    other, odd = next(each for each in others if each[1] != usual)
    said = f"the loader of rank {first} has {_length(usual)}, that of rank {other} {_length(odd)}"
    return said, tuple(
        Evidence(_length(each), "the same on all ranks", f"rank {rank}, its loader")
        for rank, each in sorted(loaders.items())[:SHOWN]
    )


def _length(told: tuple[int | None, int | None]) -> str:
    samples, batches = told
    return f"{batches} batches" + (f" of {samples} samples in all" if samples else "")


def loop_left_in_words(log: Log) -> str:
    """Return who waits below a loop that another rank is in; empty where the hosts have not told of loops."""
    found = behind_a_loop(match[1] for _, match in log.find(RANKS_LINE))
    if found is None:
        return ""
    ahead, behind, loop = found
    return f"rank {ahead} waits behind the loop at {short(loop)}, in which rank {behind} is"


SHOWN = 8  # ranks
