"""A loop that one rank has left by itself, while another one is still in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.check import Doing, EpochEnded, EpochStarted, Exit, LoopLeft, Site, loop_left, ways_out

from ..handed._callbacks import has_ended

if TYPE_CHECKING:
    from ddpdoctor.check import PeerLost, Stalled, Training


class LeftBy(NamedTuple):
    """The rank that has left a loop, the one that is in it, and where that one is."""

    rank: int
    other: int
    site: Site
    loop: LoopLeft


class StepSkipped(NamedTuple):
    """A loop of which the rank outside has taken all batches, as many as the other one; the ways past a step."""

    left: LeftBy
    batches: int
    ways: tuple[Exit, ...]

    @property
    def in_handlers(self) -> bool:
        """Whether it is the handler of an exception that leads past a step, and nothing else."""
        return all("except" in (each.kind.split()[0], each.test.partition(" ")[0]) for each in self.ways)


def step_skipped(event: Stalled, training: Training) -> StepSkipped | None:
    """Find it where the rank outside came to the end of its pass, and the one inside has no batch more."""
    left = loop_left_by(event, training)
    taken = {each.rank: each.batches for each in event.ranks}
    if left is None or taken[left.rank] != taken[left.other]:
        return None
    passes = [_passes(training, rank, left.loop.file, left.loop.line) for rank in (left.rank, left.other)]
    if not all(passes) or len(passes[0]) != len(passes[1]):
        return None
    last = passes[0][-1]
    ended = training.of(EpochEnded, rank=left.rank, loader=last.loader, number=last.number, complete=True)
    ways = tuple(each for each in left.loop.exits if each.skips)
    return StepSkipped(left, ended[-1].batches, ways) if ended and ways else None


def loop_left_by(event: Stalled, training: Training) -> LeftBy | None:
    """Compare the lines of the ranks that wait, and of those that have ended, or are in what their end calls."""
    for one in event.doing(Doing.WAITING):
        for other in event.doing(Doing.WAITING, Doing.ENDED):
            ended = other.doing is Doing.ENDED or has_ended(other)
            if other is not one and one.stack and (ended or other.stack):
                outside = () if ended else other.stack
                if found := loop_left_behind(one.rank, one.stack, other.rank, outside, training):
                    return found
    return None


def loop_left_before_the_end(event: PeerLost, training: Training) -> LeftBy | None:
    """Find it where a rank lost another one that has come to the end of its program, and there is one way to it."""
    found = loop_parted_by_an_end(event, training)
    return found if found is not None and found.loop.only else _left_with_batches(event, training)


def loop_parted_by_an_end(event: PeerLost, training: Training) -> LeftBy | None:
    """Return the loop that a rank was in when it lost one that has come to its end, with all ways out of it."""
    if not (event.stack and event.ended and event.others):
        return None
    return loop_left_behind(_who_lost(event), event.stack, event.ended[0], (), training)


def _who_lost(event: PeerLost) -> int:
    """Return the rank that lost the other one; -1 where it is not known."""
    return -1 if event.others[0].rank is None else event.others[0].rank


def _left_with_batches(event: PeerLost, training: Training) -> LeftBy | None:
    """Find the loop over a loader that the rank which ended has left by its one way, with batches left."""
    passes = training.of(EpochStarted, rank=event.ended[0]) if event.stack and event.ended and event.others else []
    if not passes or passes[-1].site is None:
        return None
    last, at = passes[-1], passes[-1].site
    if training.of(EpochEnded, rank=event.ended[0], loader=last.loader, number=last.number, complete=True):
        return None
    ways = ways_out(at.file, at.line)
    if len(ways) != 1 or (at.file, at.function) not in {(each.file, each.function) for each in event.stack}:
        return None
    left = LoopLeft(at.file, at.line, ways, ends_itself=False)
    return LeftBy(event.ended[0], _who_lost(event), event.stack[0], left)


def loop_left_behind(
    inside: int, stack: Sequence[Site], outside: int, other: Sequence[Site], training: Training
) -> LeftBy | None:
    """Return the loop that one rank is in, by its stack, and another one has left, by its own."""

    def broken_off(file: str, line: int) -> bool:
        """Whether the one outside left a pass over a loader before its end, or came to its end as the other one did."""
        theirs = _passes(training, outside, file, line)
        ours = _passes(training, inside, file, line)
        if not theirs or not ours:
            return False
        last = theirs[-1]
        if training.of(EpochEnded, rank=outside, loader=last.loader, number=last.number, complete=True):
            return len(ours) > len(theirs)
        return True

    loop = loop_left(stack, other, broken_off)
    return LeftBy(outside, inside, stack[0], loop) if loop is not None else None


def _passes(training: Training, rank: int, file: str, line: int) -> list[EpochStarted]:
    """Return the passes over loaders that a loop has begun on a rank."""
    return [
        each
        for each in training.of(EpochStarted, rank=rank)
        if each.site is not None and (each.site.file, each.site.line) == (file, line)
    ]
