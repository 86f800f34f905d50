"""What a rank does for the examination of a loader: build it as the training would, and look."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any

from ddpdoctor.examine.blame import own_files
from ddpdoctor.examine.loader.collated import uncollated
from ddpdoctor.examine.loader.contents import drawn, in_workers, probes, stream
from ddpdoctor.examine.loader.facts import RankLoader
from ddpdoctor.examine.loader.generators import held, told
from ddpdoctor.examine.loader.indices import below, described, get, integer, length, orders, samplers
from ddpdoctor.examine.loader.ordered import drawing_at, seeded, share
from ddpdoctor.examine.loader.worker_seeds import seeds_by_number
from ddpdoctor.examine.model.prepared import drawn as states, prepare
from ddpdoctor.examine.target import Target, build

WITHIN = ("dataloader", "data_loader", "loader")  # where wrappers keep the loader that they feed from


class NotALoaderError(Exception):
    """The factory gave something that is no loader; the text says what."""


def look(target: Target) -> tuple[RankLoader, tuple[str, ...]]:
    """Build the loader and examine it; return the files of the user's modules that are loaded, too."""
    from torch.utils.data import DataLoader, Dataset, IterableDataset

    rank, world = prepare()
    before = set(sys.modules)
    with seeded() as seeds:
        loader = build_loader(target, rank, world)
    files = own_files(before) if rank == 0 else ()
    inner = loader
    if not isinstance(loader, DataLoader) and not samplers(loader):
        inner = next((each for name in WITHIN if (each := get(loader, name)) is not None), loader)
    held_one = within(loader)
    feeds = inner if held_one is None else held_one  # not by its truth: that asks for its length
    dataset = get(inner, "dataset")
    chain = samplers(inner)
    iterable = isinstance(dataset, IterableDataset)
    # Whoever overrides __iter__ can send other samples than the indices say, such as accelerate's dispatcher.
    plain = isinstance(loader, DataLoader) and type(loader).__iter__ is DataLoader.__iter__
    indexed = plain and not iterable and bool(chain)
    facts: dict[str, Any] = {}
    if indexed:
        at_first = states()
        facts["plain"], facts["told"] = orders(loader, chain)
        facts["order_of_process"] = not seeds and states() != at_first
        facts["takes_share"], facts["draws_at"] = share(chain, rank, world), drawing_at(chain)
        # Workers first: many data sets open their file at the first fetch, and must not do so before they fork.
        if rank == 0:
            facts["in_workers"] = in_workers(loader)
        facts["drawn"] = drawn(dataset)
        base, facts["subset"] = below(dataset)
        facts["base_length"] = length(base)
        facts["probes"], facts["raised"] = probes(base)
        facts["uncollated"] = "" if facts["raised"] else uncollated(loader, facts["plain"][0])
    else:
        if feeds is not inner and not iterable:
            if rank == 0:
                facts["in_workers"] = in_workers(feeds)
            facts["drawn"] = drawn(dataset)
        facts["contents"] = stream(loader, plain=plain)
    if not iterable:
        facts["seeded_by"] = _seeded_by(feeds)
        facts["generators"] = told([(path, each) for path, _, each in held(dataset)])
    return RankLoader(
        rank=rank,
        kind=type(loader).__name__,
        dataset=type(dataset).__name__,
        iterable=iterable,
        rows=isinstance(loader, (list, tuple, Dataset)) and not isinstance(loader, IterableDataset),
        length=length(dataset),
        batches=None if iterable else length(loader),
        batch_size=integer(get(inner, "batch_size")),
        drop_last=get(inner, "drop_last") is True,
        workers=integer(get(inner, "num_workers")) or 0,
        persistent=get(feeds, "persistent_workers") is True,
        sampler=None if iterable else described(chain),
        **facts,
    ), files


def within(loader: Any) -> Any:
    """Return the only DataLoader of torch's that a wrapper holds; None where there is none, or several."""
    from torch.utils.data import DataLoader

    held_ones = [each for each in (getattr(loader, "__dict__", None) or {}).values() if isinstance(each, DataLoader)]
    return held_ones[0] if len(held_ones) == 1 and not isinstance(loader, DataLoader) else None


def _seeded_by(loader: Any) -> tuple[str, str, int, str] | None:
    found = seeds_by_number(loader) if hasattr(loader, "worker_init_fn") else None
    if found is None:
        return None
    code, numbers = found
    return code.co_name, os.path.realpath(code.co_filename), code.co_firstlineno, numbers


def build_loader(target: Target, rank: int, world_size: int) -> Any:
    """Call the user's factory; of a tuple take the only loader in it.

    Raises:
        NotALoaderError: it gave none, or several.
    """
    from torch.utils.data import DataLoader

    value = build(target, rank, world_size)
    if isinstance(value, (tuple, list, dict)):
        items = list(value.values() if isinstance(value, dict) else value)
        loaders = [item for item in items if isinstance(item, DataLoader)]
        if len(loaders) == 1:
            return loaders[0]
        if loaders:
            kinds = ", ".join(type(item).__name__ for item in items)
            raise NotALoaderError(f"it gave {len(loaders)} loaders ({kinds}): name a function that gives one")
    if not isinstance(value, Iterable) and not hasattr(value, "__getitem__"):
        raise NotALoaderError(f"it gave {_named(value)}, which cannot be iterated over")
    return value


def _named(value: Any) -> str:
    kind = type(value)
    return "None" if value is None else f"a {kind.__module__}.{kind.__qualname__}".replace("a builtins.", "a ")


def sampler_rank(target: Target) -> int | None:
    """Return the rank of the sampler as it is when each rank is the only one of its node."""
    rank, world = prepare()
    os.environ |= {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "GROUP_RANK": str(rank), "GROUP_WORLD_SIZE": str(world)}
    sampler = described(samplers(build_loader(target, rank, world)))
    return None if sampler is None else sampler.rank
