"""What a rank finds out about the user's loader; runs in the ranks of a job."""

from __future__ import annotations

import hashlib
import itertools
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, is_dataclass
from typing import Any

from ddpdoctor.probe.loader_facts import RankLoader, Sampler
from ddpdoctor.probe.loader_source import read_source
from ddpdoctor.probe.target import Target, build
from ddpdoctor.probe.tensors import raw

INDICES = 200_000  # of an epoch that are read from a sampler
BATCHES = 200  # of an epoch that are really loaded
SECONDS = 3.0  # for loading them
PROBES = 4  # samples that are fetched one by one


def look(target: Target) -> RankLoader:
    """Build the loader as a rank of the training would, and examine it."""
    import torch.distributed as dist

    rank, world = dist.get_rank(), dist.get_world_size()
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world)}
    loader = build(target, rank, world)
    if not isinstance(loader, Iterable):
        raise TypeError(f"{target.name}() gave {type(loader).__name__}, which cannot be iterated over")
    dataset = getattr(loader, "dataset", None)
    sampler = _sampler(loader)
    orders = _orders(loader, sampler)
    samples = _samples(dataset, orders[0]) if orders else ()
    in_workers = _in_workers(loader, dataset, orders[0]) if orders and _random(samples) else None
    loaded, complete = _loaded(loader)
    return RankLoader(
        rank=rank,
        kind=type(loader).__name__,
        dataset=type(dataset).__name__,
        iterable=_is_iterable(dataset),
        length=_length(dataset),
        batches=_length(loader),
        workers=getattr(loader, "num_workers", 0) or 0,
        sampler=None if sampler is None else _described(sampler),
        orders=orders,
        samples=samples,
        in_workers=in_workers,
        loaded=loaded,
        complete=complete,
        source=read_source(target) if rank == 0 else None,
    )


def _is_iterable(dataset: Any) -> bool:
    from torch.utils.data import IterableDataset

    return isinstance(dataset, IterableDataset)


def _length(thing: Any) -> int | None:
    try:
        return len(thing)
    except Exception:  # noqa: BLE001 - a user's __len__ can raise anything; then there is no length
        return None


def _sampler(loader: Any) -> Any:
    """Give the sampler that chooses the samples: a batch sampler's own where there is one."""
    batch_sampler = getattr(loader, "batch_sampler", None)
    return getattr(batch_sampler, "sampler", None) or batch_sampler or getattr(loader, "sampler", None)


def _described(sampler: Any) -> Sampler:
    from torch.utils.data import RandomSampler, WeightedRandomSampler
    from torch.utils.data.distributed import DistributedSampler

    replacement = isinstance(sampler, WeightedRandomSampler) or getattr(sampler, "replacement", False) is True
    return Sampler(
        kind=type(sampler).__name__,
        distributed=isinstance(sampler, DistributedSampler) or hasattr(sampler, "num_replicas"),
        replicas=_integer(getattr(sampler, "num_replicas", None)),
        rank=_integer(getattr(sampler, "rank", None)),
        shuffles=isinstance(sampler, RandomSampler) or getattr(sampler, "shuffle", False) is True,
        seed=_integer(getattr(sampler, "seed", None)),
        drops_last=getattr(sampler, "drop_last", False) is True,
        has_set_epoch=callable(getattr(sampler, "set_epoch", None)),
        draws_with_replacement=replacement,
    )


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _orders(loader: Any, sampler: Any) -> tuple[tuple[int, ...], ...]:
    """Give the indices of two epochs as the loader comes, then of epochs 1 and 2 where the sampler can be told.

    Empty where the loader does not choose its samples by indices.
    """
    if sampler is None or _is_iterable(getattr(loader, "dataset", None)):
        return ()
    source = getattr(loader, "batch_sampler", None) or sampler
    orders = [_indices(source), _indices(source)]
    if callable(getattr(sampler, "set_epoch", None)):
        for epoch in (1, 2):
            sampler.set_epoch(epoch)
            orders.append(_indices(source))
        sampler.set_epoch(0)
    return () if any(order is None for order in orders) else tuple(order for order in orders if order is not None)


def _indices(source: Iterable[Any]) -> tuple[int, ...] | None:
    """Give an epoch's indices, None where the source yields something else."""

    def flat() -> Iterator[Any]:
        for item in source:
            yield from item if isinstance(item, (list, tuple)) else (item,)

    taken = tuple(itertools.islice(flat(), INDICES))
    try:
        return tuple(index.__index__() for index in taken)
    except (AttributeError, TypeError):
        return None


def _samples(dataset: Any, order: tuple[int, ...]) -> tuple[tuple[int, tuple[str, ...], tuple[str, ...]], ...]:
    """Fetch some samples twice; give the index and the digests of the parts, of either time.

    The same positions of the data set on each rank: what differs between ranks is the data set, not the order.
    """
    length = _length(dataset)
    if not length or not order:
        return ()
    positions = sorted({(length - 1) * step // max(1, PROBES - 1) for step in range(PROBES)})
    started = time.monotonic()
    fetched = []
    for index in positions:
        fetched.append((index, parts(dataset[index]), parts(dataset[index])))
        if time.monotonic() - started > SECONDS:
            break
    return tuple(fetched)


def _random(samples: tuple[tuple[int, tuple[str, ...], tuple[str, ...]], ...]) -> bool:
    return any(first != second for _, first, second in samples)


def _in_workers(loader: Any, dataset: Any, order: tuple[int, ...]) -> tuple[tuple[tuple[str, ...], ...], ...] | None:
    """Fetch one sample twice in each of two workers; give the digests by worker, None without workers."""
    from torch.utils.data import DataLoader

    if getattr(loader, "num_workers", 0) < 2:  # noqa: PLR2004 - one worker has nobody to be equal to
        return None
    twin: Any = DataLoader(
        dataset,
        batch_size=None,
        sampler=[order[0]] * 4,
        num_workers=2,
        collate_fn=parts,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        timeout=10,
    )
    fetched = list(twin)
    return tuple(fetched[0::2]), tuple(fetched[1::2])


def _loaded(loader: Any) -> tuple[tuple[str, ...], bool]:
    """Load the first batches; give their digests, and whether that was the whole epoch.

    A batch whose parts are all constant has the empty digest: it cannot tell one sample from another.
    """
    started, digests = time.monotonic(), []
    for batch in loader:
        digests.append("" if _constant(batch) else hashlib.sha1("".join(parts(batch)).encode()).hexdigest())  # noqa: S324 - no secret, only equality
        if len(digests) == BATCHES or time.monotonic() - started > SECONDS:
            return tuple(digests), False
    return tuple(digests), True


def parts(value: Any) -> tuple[str, ...]:
    """Give a digest of each leaf of a sample or batch: tensors, arrays, numbers, texts."""
    import torch

    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, dict):
        return tuple(digest for key in value for digest in parts(value[key]))
    if isinstance(value, (list, tuple)):
        return tuple(digest for item in value for digest in parts(item))
    if isinstance(value, torch.Tensor):
        data = raw(value)
    elif hasattr(value, "tobytes"):  # an array of numpy, or a number of it
        data = value.tobytes()
    else:
        data = repr(value).encode()
    return (hashlib.sha1(data).hexdigest(),)  # noqa: S324 - as above


def _constant(value: Any) -> bool:
    import torch

    if isinstance(value, dict):
        return all(_constant(item) for item in value.values())
    if isinstance(value, (list, tuple)):
        return all(_constant(item) for item in value)
    if isinstance(value, torch.Tensor):
        return value.numel() == 0 or bool((value == value.flatten()[0]).all())
    return not isinstance(value, (str, bytes))
