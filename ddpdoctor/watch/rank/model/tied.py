"""Weights that two modules share, and that FSDP is given once with each: it makes two weights of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddpdoctor.watch.events import TiedApart
from ddpdoctor.watch.rank.model.shards import is_dtensor

if TYPE_CHECKING:
    from ddpdoctor.watch.rank.model.shards import Shards
    from ddpdoctor.watch.rank.process import Process


def look(recorder: Process, shards: Shards, module: Any, api: str) -> None:
    """Record the first weight of a module that FSDP has taken up before with another one, and not passed over there."""
    left = {id(each) for root in shards.alive() for each in root.parameters() if not shards.is_flat(each)}
    for name, parameter in _own(module, ""):
        known = shards.of(parameter)
        if known is not None and id(parameter) not in left and not is_dtensor(parameter):
            kind = type(module).__name__
            recorder.emit(TiedApart, api=api, kind=kind, name=name, before=known.name, first=known.site)
            return


def _own(module: Any, prefix: str) -> list[tuple[str, Any]]:
    """List the parameters that no module within, which FSDP was given before, has taken up."""
    found = [(prefix + name, each) for name, each in module._parameters.items() if each is not None]  # noqa: SLF001
    for name, each in module.named_children():
        if not _is_taken(each):
            found += _own(each, f"{prefix}{name}.")
    return found


def _is_taken(module: Any) -> bool:
    return hasattr(module, "_get_fsdp_state") or type(module).__name__ == "FullyShardedDataParallel"
