"""What Accelerate shares out, though the script has given each rank its share: by a sampler, or in a stream."""

from __future__ import annotations

from typing import Any, NamedTuple

from ddpdoctor.watch.events.frameworks import DISPATCHER, SHARD
from ddpdoctor.watch.rank.data.described import WORLD, speaks_of_ranks
from ddpdoctor.watch.user_frames import frames, variables_of

MODULE = "accelerate.data_loader"


class Twice(NamedTuple):
    """The name of what shares the data out first, of what does so after it, and the number of ranks."""

    sampler: str
    shards: str
    ranks: int


def sampled_twice(loader: Any) -> Twice | None:
    """Return whose sampler draws for one rank beneath Accelerate's; None where none does."""
    shards = loader.batch_sampler
    sampler = getattr(getattr(shards, "batch_sampler", None), "sampler", None)
    ranks = getattr(shards, "num_processes", None)
    splits = type(shards).__module__.startswith("accelerate.")
    if splits and isinstance(ranks, int) and ranks > 1 and getattr(sampler, "num_replicas", None) == ranks:
        return Twice(type(sampler).__name__, type(shards).__name__, ranks)
    return None


def streamed_twice(loader: Any) -> Twice | None:
    """Return which IterableDataset of the script's gives a rank its share, and is shared out by Accelerate."""
    data: Any = getattr(loader, "dataset", None)
    ranks, shards = 0, SHARD
    if type(data).__module__ == MODULE and type(data).__name__ == SHARD:
        ranks, data = data.num_processes, data.dataset
    elif _is_a_stream(data):
        ranks, shards = _dispatched(), DISPATCHER
    if ranks <= 1 or not _is_a_stream(data) or not speaks_of_ranks(type(data)):
        return None
    # One that was told that it is on its own takes no share.
    alone = any(WORLD.fullmatch(name) and value == 1 for name, value in vars(data).items())
    return None if alone else Twice(type(data).__name__, shards, ranks)


def _is_a_stream(data: Any) -> bool:
    from torch.utils.data import IterableDataset

    return isinstance(data, IterableDataset)


def _dispatched() -> int:
    """Return to how many ranks a dispatcher gives what it reads on the first of them right now; 0 without one."""
    for frame in frames():
        if frame.f_globals.get("__name__") == MODULE and frame.f_code.co_name == "__iter__":
            owner: Any = variables_of(frame).get("self")
            if type(owner).__name__ == DISPATCHER:
                return int(owner.state.num_processes)
    return 0
