"""Has the state of an optimizer that is kept by the names of parameters follow the model whose names these are."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ddpdoctor.checkpoint.contents import CheckpointFile, Location, Optimizer, subscript
from ddpdoctor.checkpoint.keys import WRAPPER_NAMES, Strip, front_of, is_averaged, wrappers_in
from ddpdoctor.checkpoint.pickles.values import UnreadableError
from ddpdoctor.checkpoint.survey import FLAT_OPTIMIZER

if TYPE_CHECKING:
    from ddpdoctor.checkpoint.rename.plan import Renamed


def followed(file: CheckpointFile, plan: Sequence[Renamed]) -> Iterator[tuple[str, str]]:
    """Yield old and new names in states of optimizers, each of which follows the model that has all of its names.

    Raises:
        UnreadableError: two models have them, and get different ones.
    """
    models = {each.location: dict(each.renamed) for each in plan}
    if not any(models.values()):
        return
    keys = {each.location: frozenset(each.keys) for each in file.state_dicts if not is_averaged(each.keys)}
    for optimizer in file.optimizers:
        found = [location for location in keys if _has_all(optimizer, keys[location])]
        near = [location for location in found if location[:-1] == optimizer.location[:-1]] or found
        pairs = [_renamed(optimizer, keys[location], models[location]) for location in near]
        if any(each != pairs[0] for each in pairs):
            raise UnreadableError(_doubt(optimizer, near))
        yield from pairs[0] if pairs else ()


def left_behind(file: CheckpointFile, each: Renamed) -> Iterator[str]:
    """Yield what to say of optimizers that have some of a model's old names, and others, so that they keep them."""
    old = {name for name, _ in each.renamed}
    models = [frozenset(state_dict.keys) for state_dict in file.state_dicts]
    keys = frozenset(key for model in models for key in model)
    for optimizer in file.optimizers if old else ():
        named = {_around(name, keys)[1] for name in optimizer.names}
        if old & named and not any(_has_all(optimizer, model) for model in models):
            where = subscript("ckpt", optimizer.location)
            yield f"{where} keeps the old names: it has {min(named - keys, default='names of both')} as well"


def _has_all(optimizer: Optimizer, keys: Collection[str]) -> bool:
    return all(_around(name, keys)[1] in keys for name in optimizer.names)


def _renamed(optimizer: Optimizer, keys: Collection[str], new: Mapping[str, str]) -> list[tuple[str, str]]:
    parts = [(name, *_around(name, keys)) for name in optimizer.names]
    return [
        (name, head + _without_wrappers(parameter, new[parameter]) + tail)
        for name, head, parameter, tail in parts
        if parameter in new
    ]


def _without_wrappers(old: str, new: str) -> str:
    """Return the new name of a parameter to an optimizer.

    torch.distributed.checkpoint.state_dict takes wrappers out of the model's names before it looks for them here
    (``_get_fqns``), so that a name without any stays one.
    """
    added = not wrappers_in(old) and Strip(front_of(new), WRAPPER_NAMES)(new) == old
    return old if added else new


def _around(name: str, keys: Collection[str]) -> tuple[str, str, str]:
    """Find the parameter in a name: alone, or as ``state.<parameter>.exp_avg``, of which the state can be nested."""
    if name in keys or not name.startswith(FLAT_OPTIMIZER):
        return "", name, ""
    head, dot, rest = name.partition(".")
    end = len(rest)
    while (end := rest.rfind(".", 0, end)) > 0:
        if rest[:end] in keys:
            return head + dot, rest[:end], rest[end:]
    return "", name, ""


def _doubt(optimizer: Optimizer, models: Sequence[Location]) -> str:
    both = " and ".join(subscript("ckpt", location) for location in models[:2])
    return f"{subscript('ckpt', optimizer.location)} is kept by names that {both} have: give both the same new names"
