"""Models whose parameters FSDP shards: which those are, what sharding has replaced, and who still holds that."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch.events import Site, StaleParametersHeld
from ddpdoctor.watch.rank.model.beginnings import Beginnings
from ddpdoctor.watch.rank.model.gathers import Courses
from ddpdoctor.watch.rank.model.shards_in import bare
from ddpdoctor.watch.user_frames import user_site

if TYPE_CHECKING:
    from ddpdoctor.watch.rank.process import Process

NAMES = 2000  # that an event carries
SURE = 2  # steps without a gradient


@dataclass(frozen=True, slots=True)
class Replaced:
    """A parameter that a module had before it was sharded."""

    parameter: weakref.ref[Any]
    name: str
    api: str
    site: Site | None
    shape: tuple[int, ...]


@dataclass(slots=True)
class Shards:
    """The sharded models of a process, outermost modules alone, and by identity: what was replaced, what is a shard."""

    roots: list[weakref.ref[Any]] = field(default_factory=list)
    replaced: dict[int, Replaced] = field(default_factory=dict)
    flat: dict[int, weakref.ref[Any]] = field(default_factory=dict)
    steps: weakref.WeakKeyDictionary[Any, int] = field(default_factory=weakref.WeakKeyDictionary)
    told: weakref.WeakSet[Any] = field(default_factory=weakref.WeakSet)
    sites: weakref.WeakKeyDictionary[Any, Site | None] = field(default_factory=weakref.WeakKeyDictionary)
    begun: Beginnings = field(default_factory=Beginnings)
    gathers: Courses = field(default_factory=Courses)

    def take(self, module: Any, api: str, named: Sequence[tuple[str, Any]], shapes: Sequence[tuple[int, ...]]) -> None:
        """Take up a module that is given to FSDP, with the parameters that it had before, and their shapes then."""
        inner = {id(each) for each in module.modules()}
        alive = [each for each in self.roots if (root := each()) is not None and id(root) not in inner]
        self.roots = [*alive, weakref.ref(module)]
        self.sites[module] = site = user_site()
        for (name, parameter), given in zip(named, shapes, strict=True):
            if not is_dtensor(parameter):
                known = self.of(parameter)  # of an inner module: with use_orig_params it is a part already
                shape = known.shape if known is not None else given
                self.replaced[id(parameter)] = Replaced(weakref.ref(parameter), name, api, site, shape)

    def are_flat(self, parameters: Iterable[Any]) -> None:
        """Take note of what holds this rank's part of FullyShardedDataParallel's parameters."""
        self.flat.update((id(each), weakref.ref(each)) for each in parameters)

    def is_flat(self, parameter: Any) -> bool:
        """Whether a parameter holds this rank's part of FullyShardedDataParallel's parameters."""
        known = self.flat.get(id(parameter))
        return known is not None and known() is parameter

    def is_root(self, module: Any) -> bool:
        """Whether a module is an outermost sharded one."""
        return any(each() is module for each in self.roots)

    def alive(self) -> list[Any]:
        """List the outermost sharded modules that are still there."""
        return [root for each in self.roots if (root := each()) is not None]

    def of(self, parameter: Any) -> Replaced | None:
        """Return what a parameter was before sharding, of a module that was sharded with it."""
        known = self.replaced.get(id(parameter))
        return known if known is not None and known.parameter() is parameter else None

    def own_parts(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of this rank's part of each parameter that it has a part of alone, by name."""
        found = {}
        for root in self.alive():
            for name, each in root.named_parameters():
                known = self.of(each)
                if is_dtensor(each):
                    own, whole = tuple(each._local_tensor.shape), tuple(each.shape)  # noqa: SLF001 - as is_dtensor
                elif self.is_flat(each):
                    own, whole = tuple(each.shape), known.shape if known is not None else ()
                else:
                    continue
                if own != whole:
                    found[bare(name)] = own
        return found

    def moments(self) -> set[int]:
        """Return the tensors that optimizers keep of this rank's parts of sharded parameters, by identity."""
        return {
            id(value)
            for optimizer in self.steps
            for parameter, state in optimizer.state.items()
            if (self.is_flat(parameter) or is_dtensor(parameter)) and isinstance(state, dict)
            for value in state.values()
            if getattr(value, "ndim", 0)
        }

    def before_step(self, recorder: Process, optimizer: Any, number: int, built: Site | None) -> None:
        """Record once which parameters an optimizer holds though sharding has replaced them."""
        if not self.replaced:
            return
        self.begun.tell(recorder)
        self.steps[optimizer] = steps = self.steps.get(optimizer, 0) + 1
        if steps != SURE:
            return
        held = [each for group in optimizer.param_groups for each in group["params"]]
        current = {id(each) for root in self.alive() for each in root.parameters()}
        stale = [
            known
            for each in held
            if each.requires_grad and each.grad is None and id(each) not in current and (known := self.of(each))
        ]
        if stale:
            recorder.emit(
                StaleParametersHeld,
                api=stale[0].api,
                optimizer=number,
                kind=type(optimizer).__name__,
                names=tuple(each.name for each in stale)[:NAMES],
                held=len(held),
                sharded=stale[0].site,
                site=built,
            )


def is_dtensor(tensor: Any) -> bool:
    """Whether a tensor is one of torch.distributed.tensor: operations on it can be collectives."""
    return hasattr(tensor, "_local_tensor") and hasattr(tensor, "placements")
