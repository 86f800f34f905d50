"""What watch facets of loaders ask in the same way: the same pass over the same loader, on all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ddpdoctor.check import (
    DataSeen,
    EpochEnded,
    EpochStarted,
    Joined,
    OrderSeen,
    Sampler,
    Sharded,
    Training,
    Wrapped,
)

from .._evaluation.evaluations import shares_gradients

Passed = OrderSeen | EpochEnded
TELLING = 4  # samples in an order: fewer could agree by chance


@dataclass(frozen=True, slots=True)
class RankPass:
    """A pass that trained a model, on one rank."""

    order: OrderSeen
    started: EpochStarted
    data: DataSeen | None
    ended: EpochEnded | None

    @property
    def sampler(self) -> Sampler | None:
        """What the sampler says of itself."""
        return self.started.sampler


def same_pass(event: Passed, training: Training) -> dict[int, RankPass]:
    """Return the pass of each rank that shares gradients with the event's, by rank, once the last of them has told.

    Passes belong together that are the first, second, ... of their rank to train a model at the same line. Nothing is
    given where a library splits the data, where models are reduced over different groups, or where none is wrapped and
    the ranks' optimizers are not seen to be given the same gradients.
    """
    group = _sharing(event, training)
    if not event.trained or event.site is None or len(group) < 2:  # noqa: PLR2004 - nobody to compare with
        return {}
    pids = {rank: _processes(training, rank) for rank in group}
    if len({len(each) for each in pids.values()}) > 1:
        return {}  # after a restart some ranks are still those of before
    told = {rank: training.of(type(event), pid=each[-1], site=event.site, trained=True) for rank, each in pids.items()}
    if event.rank not in told or event not in told[event.rank]:
        return {}
    number = told[event.rank].index(event)
    if any(len(each) <= number for each in told.values()):
        return {}
    passes = {rank: rank_pass(each[number], training) for rank, each in told.items()}
    found = {rank: each for rank, each in passes.items() if each is not None and not each.started.owning_library}
    return found if len(found) == len(group) else {}


def _processes(training: Training, rank: int) -> list[int]:
    """List the processes that have trained as a rank, one after the other."""
    wrapped = [each.pid for each in wrappings(training, rank=rank)]
    return list(dict.fromkeys(wrapped or [each.pid for each in training.of(Joined, rank=rank)]))


def _sharing(event: Passed, training: Training) -> tuple[int, ...]:
    """Return the ranks that share gradients with the event's: of one wrapped model, or by the script's own exchange."""
    groups = {each.group for each in wrappings(training, pid=event.pid)}
    if len(groups) == 1:
        return groups.pop()
    if groups or wrappings(training) or not event.trained or not shares_gradients(event.pid, training):
        return ()
    return tuple(range(training.world_size))


def wrappings(training: Training, **having: int) -> list[Wrapped | Sharded]:
    """List the models that were wrapped in DDP or given to FSDP."""
    return [*training.of(Wrapped, **having), *training.of(Sharded, **having)]


def reducer(training: Training) -> str:
    """Return what averages the gradients, in the user's word."""
    return "FSDP" if training.of(Sharded) and not training.of(Wrapped) else "DDP"


def rank_pass(event: Passed, training: Training) -> RankPass | None:
    """Return what is known of the pass that an event tells of; None where its start or its order is not."""
    having = {"pid": event.pid, "loader": event.loader}
    started = training.of(EpochStarted, **having, number=event.number)
    orders = training.of(OrderSeen, **having, number=event.number)
    data = training.of(DataSeen, **having)
    ended = training.of(EpochEnded, **having, number=event.number)
    if not orders or not started:
        return None
    return RankPass(orders[-1], started[-1], data[-1] if data else None, ended[-1] if ended else None)


def repeated(event: OrderSeen, training: Training) -> tuple[RankPass, RankPass] | None:
    """Return the training pass before, and this one, where both had the same shuffled order; else None.

    A pass that was broken off and taken up again is no epoch that repeats another, nor is the first one of a second
    stage, with a sampler of its own: then a third must follow. Where a model was wrapped in between, a training begins.
    """
    if not event.trained or event.site is None or len(set(event.indices)) < TELLING:
        return None
    passes = training.of(OrderSeen, pid=event.pid, site=event.site, trained=True)
    *earlier, last, this = [None, None, *(rank_pass(each, training) for each in passes[-3:])]
    if last is None or this is None or last.order.indices != event.indices or this.started.owning_library:
        return None
    third = earlier[-1] is not None and earlier[-1].order.indices == event.indices
    if not third and not (last.ended and last.ended.complete):
        return None
    wrapped = wrappings(training, pid=event.pid)
    if any(_known_since(last, each) < each.time <= this.started.time for each in wrapped):
        return None
    same = {last.sampler.number if last.sampler else None, this.sampler.number if this.sampler else None}
    known = same_data({0: last, 1: this}) and third
    return (last, this) if this.sampler and (len(same) == 1 or known) else None


def _known_since(last: RankPass, wrapped: Wrapped | Sharded) -> float:
    """Return when a pass has begun, or gone some way where fully_shard's models are told at their first forward."""
    told_late = isinstance(wrapped, Sharded) and wrapped.api == "fully_shard"
    return last.order.time if told_late else last.started.time


def same_data(ranks: dict[int, RankPass]) -> bool | None:
    """Whether an index means the same sample on each rank; None where that cannot be told."""
    lengths = {each.started.length for each in ranks.values()}
    contents = {each.data.contents if each.data else "" for each in ranks.values()}
    if len(lengths) > 1 or len(contents - {""}) > 1:
        return False
    return None if "" in contents else True


def splitting(ranks: dict[int, RankPass]) -> dict[int, Sampler]:
    """Return the samplers by rank, where each takes its own rank's share of all; else nothing."""
    found = {
        rank: each.sampler
        for at, (rank, each) in enumerate(ranks.items())
        if each.sampler is not None and (each.sampler.replicas, each.sampler.rank) == (len(ranks), at)
    }
    return found if len(found) == len(ranks) else {}


def shared_out_by_a_library(ranks: dict[int, RankPass]) -> bool:
    """Whether Accelerate's batch sampler gives each rank its share of the positions."""
    return bool(ranks) and all(each.sampler and each.sampler.shares == len(ranks) for each in ranks.values())


def has_shares_of_its_own(seen: list[DataSeen]) -> bool:
    """Whether each rank has a Subset of the same data, and no two have a sample in common: it is split already."""
    if not all(each.picks and each.base and len(each.least) >= TELLING for each in seen):
        return False
    together = [number for each in seen for number in each.least]
    return len({each.base for each in seen}) == 1 and len(set(together)) == len(together)


def told(values: Sequence[object]) -> str:
    """List the values of the first ranks."""
    return ", ".join(map(str, values[:4])) + (", ..." if len(values) > 4 else "")  # noqa: PLR2004 - as above
