"""Finds what matters in the value that a pickle describes: state dicts and whole modules, at any depth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ddpdoctor.checkpoint.contents import Entry, Item, Location, Optimizer, PickledModule, StateDict
from ddpdoctor.checkpoint.tensors import tensor_of
from ddpdoctor.checkpoint.values import Name, Object, Reference, UnreadableError, attributes_of, pairs_of

DEEPEST = 100
MOST_PLACES = 2_000_000
OPTIMIZER = {"state", "param_groups"}
NAMING = ("params", "param_names")  # of a group; the latter when it was made of named_parameters(), since torch 2.6
FLAT_OPTIMIZER = tuple(f"{name}." for name in sorted(OPTIMIZER))  # of torch.distributed.checkpoint.state_dict
MODULE = {"_parameters", "_modules", "_buffers"}
EXTRA_STATE = "_extra_state"


@dataclass(slots=True)
class Survey:
    """What was found."""

    state_dicts: list[StateDict] = field(default_factory=list)
    modules: list[PickledModule] = field(default_factory=list)
    optimizers: list[Optimizer] = field(default_factory=list)


def survey(root: Any) -> Survey:
    """Walk the value, each part of it once, whatever refers to itself."""
    found = Survey()
    seen: set[int] = set()
    waiting: list[tuple[Location, Any]] = [((), root)]
    while waiting and len(seen) < MOST_PLACES:
        location, value = waiting.pop()
        if id(value) in seen or len(location) > DEEPEST:
            continue
        seen.add(id(value))
        if isinstance(value, Object) and attributes_of(value).keys() >= MODULE:
            found.modules.append(PickledModule(location, value.kind))
            continue
        pairs = pairs_of(value)
        if pairs is not None and (state_dict := _state_dict(location, value, pairs)):
            found.state_dicts.append(state_dict)
            others = set(state_dict.others)
            pairs = [pair for pair in pairs if pair[0] in others]
        elif pairs is not None and (names := _optimized(dict(_named(pairs)))):
            found.optimizers.append(Optimizer(location, names))
        waiting += [((*location, step), part) for step, part in _parts(value, pairs)][::-1]
    return found


def items_of(root: Any) -> tuple[Item, ...]:
    """List the outermost mapping; empty when the root is none."""
    return tuple(Item(str(key), kind_of(value)) for key, value in pairs_of(root) or () if isinstance(key, (str, int)))


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


def _parts(value: Any, pairs: list[tuple[Any, Any]] | None) -> Iterator[tuple[str | int, Any]]:
    """Yield what may hold a state dict further down; optimizers hold none."""
    if pairs is not None:
        if not dict(_named(pairs)).keys() >= OPTIMIZER:
            yield from ((key, part) for key, part in pairs if isinstance(key, (str, int)) and _is_container(part))
    elif isinstance(value, (list, tuple)):
        yield from ((index, part) for index, part in enumerate(value) if _is_container(part))


def _named(pairs: list[tuple[Any, Any]]) -> Iterator[tuple[str, Any]]:
    return ((key, part) for key, part in pairs if isinstance(key, str))


def _optimized(items: dict[str, Any]) -> tuple[str, ...]:
    """Return the names of parameters in the state of an optimizer, in both forms that torch.distributed writes."""
    if not items.keys() >= OPTIMIZER:
        flat = tuple(items) if items and all(key.startswith(FLAT_OPTIMIZER) for key in items) else ()
        return flat if len({key.partition(".")[0] for key in flat}) > 1 else ()
    names = [key for key, _ in _named(pairs_of(items["state"]) or [])]
    groups = items["param_groups"] if isinstance(items["param_groups"], list) else []
    for group in groups:
        items = dict(_named(pairs_of(group) or []))
        listed = [items[name] for name in NAMING if isinstance(items.get(name), list)]
        names += [each for parameters in listed for each in parameters if isinstance(each, str)]
    return tuple(names)


def _is_container(value: Any) -> bool:
    return isinstance(value, (list, tuple)) or (not tensor_of(value) and not isinstance(value, (Name, Reference, str)))


def _state_dict(location: Location, value: Any, pairs: list[tuple[Any, Any]]) -> StateDict | None:
    """Recognise a state dict: names, and tensors for most of them."""
    if not pairs or not all(isinstance(key, str) for key, _ in pairs):
        return None
    last = dict(pairs)
    if len(last) < len(pairs):
        raise UnreadableError(f"its pickle sets {_first_doubled(pairs)!r} twice in one dict")
    entries = tuple(Entry(key, *tensor) for key, part in pairs if (tensor := tensor_of(part)))
    others = tuple(key for key, part in pairs if not tensor_of(part)) if len(entries) < len(pairs) else ()
    if not entries or sum(not key.endswith(EXTRA_STATE) for key in others) >= len(entries):
        return None
    metadata = pairs_of(attributes_of(value).get("_metadata"))
    names = None if metadata is None else tuple(key for key, _ in metadata if isinstance(key, str))
    return StateDict(location, entries, others, names)


def _first_doubled(pairs: list[tuple[Any, Any]]) -> str:
    return str(next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1))
