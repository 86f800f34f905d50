"""Which hosts try which: all of them each other, as long as they are some hundreds, else each host a few others.

A few thousand hosts have millions of links, and their states are gigabytes at the one that reports. With steps of 1, 2,
4, 8 and so on from its own number, each host tries one other in each of a dozen rounds and is tried by as many: a host
that lets nobody in or out, or that has the wrong interface, shows; one link of two hosts that are sound may not.
"""

from __future__ import annotations

FULL = 256  # hosts


def targets(here: int, count: int) -> tuple[int, ...]:
    """Return the hosts that one of them tries, in their order."""
    if count <= FULL:
        return tuple(each for each in range(count) if each != here)
    return tuple(sorted((here + step) % count for step in _steps(count)))


def sources(there: int, count: int) -> frozenset[int]:
    """Return the hosts that try one of them."""
    if count <= FULL:
        return frozenset(range(count)) - {there}
    return frozenset((there - step) % count for step in _steps(count))


def links(count: int) -> int:
    """Return how many links are tried in all, of two ends each."""
    return count * len(targets(0, count)) if count > 1 else 0


def _steps(count: int) -> list[int]:
    return [1 << power for power in range((count - 1).bit_length())]
