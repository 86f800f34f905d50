"""The weights with which a model goes into FSDP: which of them were loaded, and whether other ranks have the same."""

from __future__ import annotations

import hashlib
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch.events import ShardingBegan
from ddpdoctor.watch.user_frames import user_site

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ddpdoctor.watch.events import Site
    from ddpdoctor.watch.rank.process import Process

ENDS = 8  # numbers at both ends of a parameter
MOST = 100_000  # parameters that are known
SYNC_MODULE_STATES = 10  # its place among the arguments of FullyShardedDataParallel


@dataclass(slots=True)
class Beginnings:
    """What was loaded into which parameters, and the first and last numbers of those that were sharded since.

    It is told with the first step: what is loaded into the shards before that counts for all ranks.
    """

    loaded: dict[int, weakref.ref[Any]] = field(default_factory=dict)
    taken: dict[int, weakref.ref[Any]] = field(default_factory=dict)
    names: Any = field(default_factory=hashlib.blake2b)
    weights: Any = field(default_factory=hashlib.blake2b)
    number: int = 0
    counted: int = 0
    api: str = ""
    site: Site | None = None
    is_over: bool = False

    def loads(self, module: Any) -> None:
        """Take note of a module that a state dict was loaded into."""
        if self.is_over:
            return
        if self.api:
            self.is_over = True
            return
        if len(self.loaded) < MOST:
            self.loaded.update((id(each), weakref.ref(each)) for each in module.parameters())

    def take(self, api: str, named: Iterable[tuple[str, Any]]) -> None:
        """Read a few numbers of each parameter that is about to be sharded, none of them twice."""
        if self.is_over:
            return
        new = [(name, each) for name, each in named if not _knows(self.taken, each)]
        if not new:
            return
        if any(each.is_meta or hasattr(each, "_local_tensor") or hasattr(each, "quant_state") for _, each in new):
            self.is_over = True  # they get their values later, or are parts already
            return
        self.api, self.site = self.api or api, self.site or user_site()
        for name, each in new:
            self.number += 1
            self.counted += _knows(self.loaded, each)
            self.taken[id(each)] = weakref.ref(each)
            flat = each.detach().flatten()
            self.names.update(f"{name} {tuple(each.shape)} ".encode())
            self.weights.update(repr((flat[:ENDS].tolist(), flat[-ENDS:].tolist())).encode())

    def tell(self, recorder: Process) -> None:
        """Tell it once."""
        if self.is_over or not self.api:
            return
        self.is_over = True
        recorder.emit(
            ShardingBegan,
            api=self.api,
            parameters=self.number,
            loaded=self.counted,
            names=self.names.hexdigest(),
            weights=self.weights.hexdigest(),
            site=self.site,
        )


def _knows(known: dict[int, weakref.ref[Any]], parameter: Any) -> bool:
    ref = known.get(id(parameter))
    return ref is not None and ref() is parameter


def are_synchronised(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether FullyShardedDataParallel is told to give all ranks the weights of rank 0."""
    given = args[SYNC_MODULE_STATES] if len(args) > SYNC_MODULE_STATES else kwargs.get("sync_module_states")
    return bool(given)
