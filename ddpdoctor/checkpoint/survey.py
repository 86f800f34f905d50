"""Finds what matters in the value that a pickle describes: state dicts and whole modules, at any depth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import eq
from typing import Any

from ddpdoctor.checkpoint.columns import Columns
from ddpdoctor.checkpoint.contents import Entry, Item, Location, Optimizer, PickledModule, StateDict
from ddpdoctor.checkpoint.pickles.tensors import tensor_of
from ddpdoctor.checkpoint.pickles.values import (
    Name,
    Object,
    Pairs,
    Reference,
    Tensor,
    UnreadableError,
    attributes_of,
    pairs_of,
)
from ddpdoctor.checkpoint.recognise import EXTRA_STATE, of_models

DEEPEST = 100
MOST_PLACES = 2_000_000
OPTIMIZER = {"state", "param_groups"}
NAMING = ("params", "param_names")  # of a group; the latter when it was made of named_parameters(), since torch 2.6
FLAT_OPTIMIZER = tuple(f"{name}." for name in sorted(OPTIMIZER))  # of torch.distributed.checkpoint.state_dict
MODULE = {"_parameters", "_modules", "_buffers"}
PLAIN = (bool, int, float, complex, str, bytes, type(None))


@dataclass(frozen=True, slots=True)
class Survey:
    """What was found."""

    state_dicts: tuple[StateDict, ...]
    modules: tuple[PickledModule, ...]
    optimizers: tuple[Optimizer, ...]


def survey(root: Any, places: Collection[Location] | None = None) -> Survey:
    """Walk the value, each part of it once, whatever refers to itself.

    ``places`` are where the state dicts stand, when that is known; nothing is guessed then.
    """
    dicts: list[StateDict] = []
    modules: list[PickledModule] = []
    optimizers: list[Optimizer] = []
    seen: set[int] = set()
    waiting: list[tuple[Location, Any]] = [((), root)]
    while waiting and len(seen) < MOST_PLACES:
        location, value = waiting.pop()
        if id(value) in seen or len(location) > DEEPEST:
            continue
        seen.add(id(value))
        if isinstance(value, Object) and attributes_of(value).keys() >= MODULE:
            modules.append(PickledModule(location, value.kind))
            continue
        pairs: Sequence[tuple[Any, Any]] | None = (mapping := pairs_of(value))
        if pairs and (names := _optimized(pairs)):
            optimizers.append(Optimizer(location, names))
        elif mapping and (state_dict := _dict_of_tensors(location, value, mapping)):
            dicts.append(state_dict)
            others = set(state_dict.others)
            pairs = [pair for pair in mapping if pair[0] in others and not pair[0].endswith(EXTRA_STATE)]
        waiting += [((*location, step), part) for step, part in _parts(value, pairs)][::-1]
    return Survey(of_models(dicts, places), tuple(modules), tuple(optimizers))


def items_of(root: Any) -> Sequence[Item]:
    """List the outermost mapping; empty when the root is none."""
    pairs = pairs_of(root) or ()
    return Columns(
        Item,
        [str(key) for key, _ in pairs if isinstance(key, (str, int))],
        ["tensor" if type(value) is Tensor else kind_of(value) for key, value in pairs if isinstance(key, (str, int))],
    )


def kind_of(value: Any) -> str:
    """Return what a value is, as people call it."""
    pairs = pairs_of(value)
    match value:
        case _ if tensor_of(value):
            kind = "tensor"
        case _ if pairs is not None:
            kind = f"dict of {len(pairs)}"
        case list() | tuple():
            kind = f"{type(value).__name__} of {len(value)}"
        case Object():
            kind = value.kind or "object"
        case Name():
            kind = value.full
        case Reference():
            kind = "storage"
        case _:
            kind = type(value).__name__
    return kind


def _parts(value: Any, pairs: Sequence[tuple[Any, Any]] | None) -> Iterator[tuple[str | int, Any]]:
    """Yield what may hold a state dict further down; optimizers hold none."""
    if pairs is not None:
        if not _is_optimizer(pairs):
            yield from ((key, part) for key, part in pairs if isinstance(key, (str, int)) and _is_container(part))
    elif isinstance(value, (list, tuple)):
        yield from ((index, part) for index, part in enumerate(value) if _is_container(part))


def _named(pairs: Sequence[tuple[Any, Any]]) -> Iterator[tuple[str, Any]]:
    return ((key, part) for key, part in pairs if isinstance(key, str))


def _is_optimizer(pairs: Sequence[tuple[Any, Any]]) -> bool:
    return {key for key, _ in pairs if isinstance(key, str) and key in OPTIMIZER} == OPTIMIZER


def _optimized(pairs: Sequence[tuple[Any, Any]]) -> tuple[str, ...]:
    """Return the names of parameters in the state of an optimizer, in both forms that torch.distributed writes."""
    if not _is_optimizer(pairs):
        flat = _flat(pairs)
        return flat if len({key.partition(".")[0] for key in flat}) > 1 else ()
    items = dict(_named(pairs))
    names = [key for key, _ in _named(pairs_of(items["state"]) or [])]
    groups = items["param_groups"] if isinstance(items["param_groups"], list) else []
    for group in groups:
        items = dict(_named(pairs_of(group) or []))
        listed = [items[name] for name in NAMING if isinstance(items.get(name), list)]
        names += [each for parameters in listed for each in parameters if isinstance(each, str)]
    return tuple(names)


def _flat(pairs: Sequence[tuple[Any, Any]]) -> tuple[str, ...]:
    """Return the names where all of them are of the flat form; most dicts have another one in front."""
    if not all(key.startswith(FLAT_OPTIMIZER) for key, _ in _named(pairs)):
        return ()
    return tuple(dict.fromkeys(key for key, _ in _named(pairs)))


def _is_container(value: Any) -> bool:
    return isinstance(value, (list, tuple)) or (not tensor_of(value) and not isinstance(value, (Name, Reference, str)))


def _dict_of_tensors(location: Location, value: Any, pairs: Pairs) -> StateDict | None:
    """Describe a dict as a state dict, if it has names and some tensor."""
    keys = pairs.keys
    if not all(issubclass(kind, str) for kind in set(map(type, keys))):
        return None
    if _repeats(keys):
        raise UnreadableError(f"its pickle sets {_first_doubled(pairs)!r} twice in one dict")
    tensors = [part if type(part) is Tensor else tensor_of(part) for part in pairs.values]
    if not any(tensors):
        return None
    named = tuple(key for key, tensor in zip(keys, tensors, strict=True) if tensor is not None)
    columns = (tuple(tensor[at] for tensor in tensors if tensor is not None) for at in range(len(Tensor._fields)))
    entries = Columns(Entry, named, *columns)
    rest = [pair for pair, tensor in zip(pairs, tensors, strict=True) if tensor is None]
    metadata = pairs_of(attributes_of(value).get("_metadata"))
    names = None if metadata is None else tuple(key for key, _ in metadata if isinstance(key, str))
    plain = tuple(key for key, part in rest if isinstance(part, PLAIN))
    return StateDict(location, entries, tuple(key for key, _ in rest), names, plain)


def _repeats(names: Sequence[str]) -> bool:
    """Whether two are the same: in their order that takes a fifth of the memory of a set."""
    ordered = sorted(names)
    return any(map(eq, ordered, islice(ordered, 1, None)))


def _first_doubled(pairs: Sequence[tuple[Any, Any]]) -> str:
    return str(next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1))
