"""The samplers of a loader in a rank: what they say of themselves, and the indices that they yield.

The loader is built once, since that can be dear, and its own sampler is iterated over, not a copy: a copy can fail,
and one epoch after the other is what a training does to a sampler, too. set_epoch comes after the plain epochs. The
indices are those of the batch sampler where there is one, since ``loader.sampler`` is then a stand-in.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Iterable, Iterator
from typing import Any

from ddpdoctor.examine.loader.facts import Index, Order, RankSampler

INDICES = 200_000  # of an epoch that are read
FURTHER = 10_000  # of the other epochs, where the first did not end
SECONDS = 0.5  # for reading one of the four epochs
LOOK = 256  # batches between two looks at the clock
DEPTH = 6  # samplers within samplers
NESTED = ("batch_sampler", "sampler", "base_sampler")


def get(thing: Any, name: str) -> Any:
    """Return an attribute; None where it is not there, or its property raises."""
    try:
        return getattr(thing, name, None)
    except Exception:  # noqa: BLE001 - a user's __getattr__ or property can raise anything
        return None


def length(thing: Any) -> int | None:
    """Return the length; None where there is none."""
    try:
        return len(thing)
    except Exception:  # noqa: BLE001 - a user's __len__ can raise anything
        return None


def integer(value: Any) -> int | None:
    """Return a number that really is one."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def samplers(loader: Any) -> tuple[Any, ...]:
    """Return the loader's samplers, from the outermost to the innermost."""
    outer = get(loader, "batch_sampler")
    found: list[Any] = []
    waiting = [get(loader, "sampler") if outer is None else outer]
    while waiting and len(found) < DEPTH:
        sampler = waiting.pop(0)
        if sampler is None or any(sampler is other for other in found) or not isinstance(sampler, Iterable):
            continue
        found.append(sampler)
        if not isinstance(sampler, (list, tuple, range, str)):
            waiting += [get(sampler, name) for name in NESTED]
    return tuple(found)


def described(chain: tuple[Any, ...]) -> RankSampler | None:
    """Describe the sampler that splits by rank, or else the innermost one."""
    if not chain:
        return None
    sampler = next((each for each in chain if _replicas(each) is not None), chain[-1])
    return RankSampler(
        kind=type(sampler).__name__,
        around=tuple(type(each).__name__ for each in chain),
        standard=type(sampler).__module__.startswith("torch.utils.data"),
        replicas=_replicas(sampler),
        rank=_rank(sampler),
        shuffle=_shuffles(sampler),
        seed=integer(get(sampler, "seed")),
        drop_last=get(sampler, "drop_last") if isinstance(get(sampler, "drop_last"), bool) else None,
        replacement=get(sampler, "replacement") is True,
        has_set_epoch=any(callable(get(each, "set_epoch")) for each in chain),
        length=length(sampler),
    )


def _replicas(sampler: Any) -> int | None:
    """Return the number of shares; accelerate's samplers call them processes."""
    if (replicas := integer(get(sampler, "num_replicas"))) is not None:
        return replicas
    return integer(get(sampler, "num_processes"))


def _rank(sampler: Any) -> int | None:
    rank = integer(get(sampler, "rank"))
    return integer(get(sampler, "process_index")) if rank is None else rank


def _shuffles(sampler: Any) -> bool | None:
    from torch.utils.data import RandomSampler, SequentialSampler, SubsetRandomSampler

    if isinstance(sampler, (RandomSampler, SubsetRandomSampler)):
        return True
    if isinstance(sampler, SequentialSampler):
        return False
    said = get(sampler, "shuffle")
    return said if isinstance(said, bool) else None


def set_epoch(owners: Iterable[Any], epoch: int) -> bool:
    """Set the epoch of the first that has ``set_epoch``; return False where none has."""
    for owner in owners:
        if callable(get(owner, "set_epoch")):
            try:
                owner.set_epoch(epoch)
            except TypeError:  # it takes something else than an epoch
                return False
            return True
    return False


def orders(loader: Any, chain: tuple[Any, ...]) -> tuple[tuple[Order, ...], tuple[Order, ...]]:
    """Return two epochs as the loader gives them, and two after set_epoch(1) and set_epoch(2) where it can be told.

    The sampler is told its own epoch again in the end.
    """
    batched = get(loader, "batch_sampler") is not None
    first = epoch(chain[0], batched=batched)
    limit = INDICES if first.complete else FURTHER
    plain = (first, epoch(chain[0], batched=batched, limit=limit))
    owners = (*chain, get(loader, "dataset"), loader)
    before = next((integer(get(each, "epoch")) for each in owners if callable(get(each, "set_epoch"))), None)
    told = tuple(epoch(chain[0], batched=batched, limit=limit) for number in (1, 2) if set_epoch(owners, number))
    set_epoch(owners, before or 0)
    return plain, told


def epoch(source: Iterable[Any], *, batched: bool, limit: int = INDICES) -> Order:
    """Read an epoch's indices; ends at a number of them, or a time."""
    until = time.monotonic() + SECONDS
    indices: list[Index] = []
    sizes: list[int] = []
    for at, item in enumerate(source, 1):
        before = len(indices)
        indices += _members(item) if batched else (_index(item),)
        sizes.append(len(indices) - before)
        if len(indices) >= limit or (at % LOOK == 0 and time.monotonic() > until):
            return Order(tuple(indices), tuple(sizes), complete=False)
    return Order(tuple(indices), tuple(sizes), complete=True)


def _members(batch: Any) -> Iterator[Index]:
    batch = batch.tolist() if callable(get(batch, "tolist")) else batch
    if isinstance(batch, (str, bytes)) or not isinstance(batch, Iterable):
        yield _index(batch)
    else:
        yield from map(_index, batch)


def _index(item: Any) -> Index:
    if type(item) is int:
        return item
    try:
        return operator.index(item)
    except TypeError:
        return repr(item)[:200]


def below(dataset: Any) -> tuple[Any, tuple[int, ...] | None]:
    """Return the data set below all Subsets, and the indices that these choose from it."""
    from torch.utils.data import Subset

    chosen: tuple[int, ...] | None = None
    while isinstance(dataset, Subset):
        indices = tuple(_members(dataset.indices))
        numbers = tuple(index for index in indices if isinstance(index, int))
        if len(numbers) < len(indices):
            break
        chosen = numbers if chosen is None else tuple(numbers[index] for index in chosen)
        dataset = dataset.dataset
    return dataset, chosen
