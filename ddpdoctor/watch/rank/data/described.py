"""What loaders are: their samplers, their data sets, and who made them."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ddpdoctor.examine.loader.worker_seeds import methods
from ddpdoctor.frameworks import ACCELERATE
from ddpdoctor.watch.events import DataSeen, Sampler, Site
from ddpdoctor.watch.events.frameworks import SEEDABLE
from ddpdoctor.watch.rank.data.dataset_digest import contents, reader
from ddpdoctor.watch.rank.data.generators import copied, seeded_by
from ddpdoctor.watch.rank.data.index_digest import Listing, listing, mapping, picks, table_behind
from ddpdoctor.watch.user_frames import file_of, is_users

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType

    from ddpdoctor.watch.rank.process import Process


def describe(recorder: Process, number: int, loader: Any, *, iterable: bool) -> None:
    """Record what a data set holds; an iterable one is known by what it yields."""
    dataset = loader.dataset
    picked = picks(dataset)
    listed = Listing() if iterable or picked.listed else listing(dataset)
    recorder.emit(
        DataSeen,
        loader=number,
        contents="" if iterable else contents(dataset),
        base=_base(dataset) if picked.listed else "",
        picks=picked.listed,
        listed=listed.listed,
        members=picked.members or listed.members,
        first=picked.first or listed.first,
        name=listed.name,
        least=picked.least or listed.least,
        kind=type(dataset).__module__.partition(".")[0],
        reader=reader(dataset, iterable=iterable),
        generators=() if iterable else copied(loader),
        seeded_by=None if iterable else seeded_by(loader),
    )


def _base(dataset: Any) -> str:
    """Digest what a part of a data set is taken from."""
    return contents(dataset.dataset) if mapping(dataset) is None else table_behind(dataset)


def owning_library(loader: Any) -> str:
    """Name the library that made a loader of its own kind; empty for torch's, and for a class of the user's."""
    module = sys.modules.get(type(loader).__module__)
    if type(loader).__module__.startswith("torch.") or is_users(getattr(module, "__file__", None) or "<none>"):
        return ""
    return type(loader).__module__.partition(".")[0]


def subgroups() -> bool:
    """Whether there are process groups of some ranks, within which data may be shared on purpose."""
    import torch.distributed.distributed_c10d as c10d

    return any(1 < size < c10d.get_world_size() for size in _group_sizes())


def has_subgroups() -> bool:
    """Whether there are process groups of some ranks, or of one: models may be exchanged within them on purpose."""
    import torch.distributed.distributed_c10d as c10d

    return any(size < c10d.get_world_size() for size in _group_sizes())


def _group_sizes() -> list[int]:
    import torch.distributed.distributed_c10d as c10d

    if not c10d.is_initialized():
        return []
    members = getattr(c10d._world, "pg_group_ranks", {}).values()  # noqa: SLF001 - torch lists its groups nowhere else
    return [len(ranks) for ranks in members]


def deciding(loader: Any) -> Any:
    """Return the sampler that decides: that of the batches where the user gave one of his own."""
    from torch.utils.data import BatchSampler

    sampler, batches = loader.sampler, loader.batch_sampler
    if batches is not None:  # one that the user gave leaves loader.sampler without a meaning
        within = getattr(batches, "sampler", None)
        sampler = batches if within is None else within
        if type(batches) is not BatchSampler and not hasattr(sampler, "num_replicas"):
            sampler = batches
    return sampler


def draws_at(kind: type) -> Site | None:
    """Return the last line with which a class of the user's draws its order; None where that is torch's."""
    code = getattr(getattr(kind, "__iter__", None), "__code__", None)
    if code is None or not is_users(code.co_filename):
        return None
    last = max((line for *_, line in code.co_lines() if line), default=code.co_firstlineno)
    return Site(file_of(code), last, code.co_name)


def sampler_of(recorder: Process, loader: Any) -> Sampler:
    """Read what the sampler that decides says of itself."""
    from torch.utils.data import BatchSampler

    decides = deciding(loader)
    of_batches = decides is loader.batch_sampler and not isinstance(decides, BatchSampler)
    told = sampler_itself(recorder, decides, shares=_shares(loader.batch_sampler))
    seed = _seed_of_shares(loader.batch_sampler) if told.shares else told.seed
    return replace(told, of_batches=of_batches, held_as=_held_as(loader, decides), seed=seed)


def _seed_of_shares(batches: Any) -> int | None:
    """Return the seed with which Accelerate's own sampler shuffles what its batch sampler shares out."""
    sampler = getattr(batches, "sampler", None) or getattr(getattr(batches, "batch_sampler", None), "sampler", None)
    seed = getattr(sampler, "initial_seed", None)
    return seed if type(sampler).__name__ == SEEDABLE and isinstance(seed, int) else None


def _held_as(loader: Any, sampler: Any) -> str:
    """Return the attribute of a loader that holds its sampler: ``sampler`` is a filler where batches are given."""
    if sampler is loader.sampler:
        return "sampler"
    return "batch_sampler" if sampler is loader.batch_sampler else "batch_sampler.sampler"


def sampler_itself(recorder: Process, sampler: Any, shares: int | None = None) -> Sampler:
    """Read what a sampler says of itself."""
    facts: dict[str, Any] = {
        ours: value if isinstance(value := getattr(sampler, theirs, None), (int, type(None))) else None
        for ours, theirs in (
            ("replicas", "num_replicas"), ("rank", "rank"), ("shuffle", "shuffle"), ("seed", "seed"),
            ("epoch", "epoch"), ("drop_last", "drop_last"), ("replacement", "replacement"),
        )
    }  # fmt: skip
    return Sampler(
        number=recorder.number("sampler", sampler),
        kind=type(sampler).__name__,
        length=length(sampler),
        splits=speaks_of_ranks(type(sampler)),
        draws=_draws(type(sampler)),
        shares=shares,
        **facts,
    )


def _draws(kind: type) -> bool:
    """Whether a sampler can draw from a generator of the process: unless its ``__iter__`` makes another one."""
    code = getattr(getattr(kind, "__iter__", None), "__code__", None)
    if code is None or not is_users(code.co_filename):
        return True
    said = {*code.co_names, *(word for each in code.co_consts if isinstance(each, tuple) for word in each)}
    of_torch = {"Generator", "generator"} <= said and not {"random", "np", "numpy"} & said
    return not (of_torch or {"default_rng", "RandomState", "Random"} & said)


def _shares(batches: Any) -> int | None:
    """Return into how many shares Accelerate's batch sampler cuts the batches; None for other batch samplers."""
    kind = type(batches)
    if kind.__name__ != ACCELERATE.shards or not kind.__module__.startswith("accelerate."):
        return None
    number = getattr(batches, "num_processes", None)
    return number if isinstance(number, int) and number > 1 else None


RANK = re.compile(r"\w*rank|rank_id|get_rank|(\w+_)?replica(_id|_index|_idx)?|(process|proc|shard)_(index|id|idx)")
WORLD = re.compile(
    r"(\w*_)?world(_size)?|\w*replicas|(num_|n_|n)?(shards|ranks|procs|gpus)|num_processes|(dp|data_parallel)_(world_)?size"
)
SOURCE = re.compile("(?i)rank|world|dist|replica|process|shard")
VARIABLE = re.compile("\\w*RANK|WORLD_SIZE|\\w*PROCID|\\w*NTASKS")


def speaks_of_ranks(kind: type) -> bool:
    """Whether a class of the user's speaks of a rank and of the number of ranks: it takes a part for each rank."""
    said = {name for code in methods(kind).values() if is_users(code.co_filename) for name in _said(code)}
    return any(map(RANK.fullmatch, said)) and any(map(WORLD.fullmatch, said))


def _said(code: CodeType) -> Iterator[str]:
    """Yield the names that a method is given and, if one of those or a text can tell of ranks, those of its own."""
    arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    given = (*code.co_names, *code.co_freevars, *arguments)
    texts = (each for each in code.co_consts if isinstance(each, str))
    yield from given
    if any(map(SOURCE.search, given)) or any(map(VARIABLE.fullmatch, texts)):
        yield from code.co_varnames


def length(thing: Any) -> int | None:
    """Return len(); None where there is none."""
    try:
        return len(thing)
    except Exception:  # noqa: BLE001 - streams have none, and what is the user's own raises what it likes
        return None
