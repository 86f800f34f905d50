"""What watch facets of loaders ask in the same way: the same pass over the same loader, on all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ddpdoctor import Place
from ddpdoctor.watch.events import DataSeen, EpochStarted, OrderSeen, Sampler, Site, Wrapped
from ddpdoctor.watch.training import Training


@dataclass(frozen=True, slots=True)
class RankPass:
    """A pass that trained a model, on one rank."""

    order: OrderSeen
    started: EpochStarted
    data: DataSeen | None

    @property
    def sampler(self) -> Sampler | None:
        """Give what the sampler says of itself."""
        return self.started.sampler


def same_pass(event: OrderSeen, training: Training) -> dict[int, RankPass]:
    """Give the pass of each rank that shares gradients with the event's, by rank, once the last of them has told.

    Passes belong together that are the first, second, ... of their rank to train a model at the same line. Nothing is
    given where a library splits the data, or where models are reduced over different groups.
    """
    groups = {each.group for each in training.of(Wrapped, pid=event.pid)}
    group = groups.pop() if len(groups) == 1 else ()
    if not event.trained or event.site is None or len(group) < 2:  # noqa: PLR2004 - nobody to compare with
        return {}
    orders = {rank: training.of(OrderSeen, rank=rank, site=event.site, trained=True) for rank in group}
    if event.rank not in orders:
        return {}
    number = orders[event.rank].index(event)
    if any(len(each) <= number for each in orders.values()):
        return {}
    found = {rank: rank_pass(each[number], training) for rank, each in orders.items()}
    return {} if any(each.started.keeper for each in found.values()) else found


def rank_pass(order: OrderSeen, training: Training) -> RankPass:
    """Give what is known of the pass that an order is of."""
    started = training.of(EpochStarted, pid=order.pid, loader=order.loader, number=order.number)
    data = training.of(DataSeen, pid=order.pid, loader=order.loader)
    return RankPass(order, started[-1], data[-1] if data else None)


def same_data(ranks: dict[int, RankPass]) -> bool | None:
    """Say whether an index means the same sample on each rank; None where that cannot be told."""
    lengths = {each.started.length for each in ranks.values()}
    contents = {each.data.contents if each.data else "" for each in ranks.values()}
    if len(lengths) > 1 or len(contents - {""}) > 1:
        return False
    return None if "" in contents else True


def splitting(ranks: dict[int, RankPass]) -> dict[int, Sampler]:
    """Give the samplers by rank, where each takes its own rank's share of all; else nothing."""
    found = {
        rank: each.sampler
        for at, (rank, each) in enumerate(ranks.items())
        if each.sampler is not None and (each.sampler.replicas, each.sampler.rank) == (len(ranks), at)
    }
    return found if len(found) == len(ranks) else {}


def line(site: Site | None) -> Place:
    """Give the place of a line."""
    return Place() if site is None else Place(file=site.file, line=site.line)


def told(values: Sequence[object]) -> str:
    """List the values of the first ranks."""
    return ", ".join(map(str, values[:4])) + (", ..." if len(values) > 4 else "")  # noqa: PLR2004 - as above
