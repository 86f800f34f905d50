"""An exception that was raised on one rank only, and after which that rank has gone on."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.check import LOST, ErrorSeen, Failed, Left, calls_at, last_name, resolve, tree_of

if TYPE_CHECKING:
    from ddpdoctor.check import Position, Progress, Site, Training


TRAINS = frozenset("torch accelerate deepspeed horovod lightning lightning_fabric pytorch_lightning ignite".split())
"""Packages whose calls other ranks can wait in."""
AT_END = frozenset("barrier monitored_barrier destroy_process_group wait_for_everyone end_training cleanup".split())


class Swallowed(NamedTuple):
    """The rank that went on, the error, how often; a rank that had fewer of it, and how many."""

    rank: int
    error: ErrorSeen
    times: int
    other: int
    others: int


def swallowed(ranks: Iterable[Position | Progress], training: Training) -> Swallowed | None:
    """Find an error at a line that one rank has caught more often than another one."""
    caught = {each.rank: _caught(each, training) for each in ranks}
    counts = {rank: Counter(map(_key, errors)) for rank, errors in caught.items()}
    for rank, errors in caught.items():
        for error in errors:
            times = counts[rank][_key(error)]
            fewest = min(counts, key=lambda other: counts[other][_key(error)])
            if counts[fewest][_key(error)] < times:
                return Swallowed(rank, error, times, fewest, counts[fewest][_key(error)])
    return None


def _key(error: ErrorSeen) -> tuple[str, Site | None]:
    return error.error, error.site


def _caught(rank: Position | Progress, training: Training) -> list[ErrorSeen]:
    """Return the errors after which a rank has begun something more: another forward, or a communication."""
    left = [each.time for each in training.of(Failed, rank=rank.rank)]
    last = max((each.time for each in rank.recent), default=0.0)
    return [
        each
        for each in training.of(ErrorSeen, rank=rank.rank)
        if not LOST.search(each.text)
        and not (each.shown and each.site is not None and _is_aside(each.site))
        and _went_on(rank, each, last)
        and not any(abs(each.time - time) < 1 for time in left)
    ]


def _is_aside(site: Site) -> bool:
    """Whether the ``try`` around a line calls libraries alone that do not train: a tracker that does not answer, say.

    Whoever catches that has left out no call that another rank waits in.
    """
    tree = tree_of(site.file)
    around = [each for each in tree.of(ast.Try) if each.body[0].lineno <= site.line <= (each.body[-1].end_lineno or 0)]
    if not around:
        return False
    calls = (node for part in around[-1].body for node in ast.walk(part) if isinstance(node, ast.Call))
    called = [(resolve(tree, each.func) or "").partition(".")[0] for each in calls]
    return all(each and each not in TRAINS for each in called)


def _went_on(rank: Position | Progress, error: ErrorSeen, last: float) -> bool:
    """Whether a rank has begun something more; after one that the script has printed, a forward shows nothing."""
    if error.shown:
        return rank.forwards == error.forwards and last > error.time
    return rank.forwards > error.forwards or last > error.time


def lost_and_swallowed(training: Training) -> tuple[ErrorSeen, Left] | None:
    """Find a rank that lost another one in its training, and came to its end as if nothing had been.

    The other one had come to its end before: with fewer steps. What ends a program (a last barrier, the end of the
    group) is often tried and let fail, and does not count.
    """
    for error in training.of(ErrorSeen):
        if not LOST.search(error.text) or error.site is None or training.of(Failed, pid=error.pid):
            continue
        if {last_name(each.func) for each in calls_at(error.site.file, error.site.line)} & AT_END:
            continue
        own = any(each.time >= error.time for each in training.of(Left, pid=error.pid, ended=True))
        ended = [each for each in training.of(Left, ended=True) if each.pid != error.pid]
        before = [each for each in ended if each.time <= error.time + 1]
        if own and before and error.forwards:
            return error, before[0]
    return None
