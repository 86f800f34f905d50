"""Reads the metadata of a checkpoint that torch.distributed.checkpoint (DCP) wrote: one pickle for all ranks' files.

Source: torch.distributed.checkpoint.metadata, and _flatten_state_dict: the name of an item is the keys on the way to it
in the nested dict, joined by dots; ``planner_data`` has the way itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ddpdoctor.checkpoint.columns import by_columns
from ddpdoctor.checkpoint.contents import CheckpointFile, Entry, Format, Item, Note, StateDict, as_numbers, subscript
from ddpdoctor.checkpoint.formats.torchfile import Pickled
from ddpdoctor.checkpoint.pickles.opcodes import interpret
from ddpdoctor.checkpoint.pickles.tensors import dtype_of, shape_of
from ddpdoctor.checkpoint.pickles.values import DamagedError, Object, UnreadableError, attributes_of, pairs_of
from ddpdoctor.checkpoint.recognise import EXTRA_STATE, of_models
from ddpdoctor.checkpoint.survey import OPTIMIZER

METADATA = ".metadata"
MOST_METADATA = 1 << 29
LIGHTNING = "meta.pt"  # what its strategies save beside the shards
KIND = "torch.distributed.checkpoint.metadata.Metadata"
TENSOR = "TensorStorageMetadata"
Way = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Metadata:
    """The metadata: its pickle, the way to each item by the item's name, and all the places that name an item."""

    pickled: Pickled
    ways: dict[str, Way]
    names: tuple[str, ...]


def whole_of(folder: Path) -> Note:
    """Return the command that makes one file of it: Lightning's own, where that has left a file beside the shards."""
    if (folder / LIGHTNING).is_file():
        module = "lightning.fabric.utilities.consolidate_checkpoint"
        return Note("one file", command=("python", "-m", module, str(folder), "--output_file", f"{folder}.whole"))
    module = "torch.distributed.checkpoint.format_utils"
    return Note("one file", command=("python", "-m", module, "dcp_to_torch", str(folder), f"{folder}.pt"))


def unfinished(folder: Path) -> str:
    """Say that a folder has the files of ranks and no ``.metadata``; empty where it has none of those either."""
    shards = sorted(each.name for each in folder.glob("*.distcp"))
    if not shards:
        return ""
    names = ", ".join(shards[:3]) + (", ..." if len(shards) > 3 else "")  # noqa: PLR2004
    return (
        f"{folder} has the files of ranks ({names}) and no {METADATA}, which one rank writes at the end: either the "
        "save was cut off, and the checkpoint before it is the last whole one, or that rank's host has its own disk"
    )


def read_distributed(
    folder: Path, blank: CheckpointFile, places: Collection[Way] | None = None
) -> tuple[CheckpointFile, Metadata | None]:
    """Read ``.metadata``; ``blank`` is what is known already, ``places`` where the state dicts are, if that is."""
    blank = replace(blank, format=Format.DCP)
    try:
        root, pickled = _root(folder / METADATA)
        known, metadata = _described(blank, root, pickled, places)
        damage = _damage(folder, root)
    except DamagedError as exc:
        return replace(blank, damage=f"{METADATA}: {exc}"), None
    except UnreadableError as exc:
        return replace(blank, opaque=f"{METADATA}: {exc}", globals=exc.names), None
    if damage:
        return replace(known, damage=damage), None
    return replace(known, globals=tuple(pickled.machine.names)), metadata


def _root(path: Path) -> tuple[Object, Pickled]:
    if path.stat().st_size > MOST_METADATA:
        raise UnreadableError(f"it takes more than {MOST_METADATA} bytes")
    data = path.read_bytes()
    root, machine = interpret(data)
    if not isinstance(root, Object) or root.kind != KIND:
        raise UnreadableError(f"it is no pickled {KIND}")
    return root, Pickled(data, 0, machine)


def _described(
    blank: CheckpointFile, root: Object, pickled: Pickled, places: Collection[Way] | None
) -> tuple[CheckpointFile, Metadata]:
    attributes = attributes_of(root)
    items = _strings(attributes.get("state_dict_metadata"))
    planned = _strings(attributes.get("planner_data"))
    ways = {name: _way(planned.get(name, (name,))) for name in items}
    indices = (attributes_of(index) for index, _ in pairs_of(attributes.get("storage_data")) or [])
    stored = [name for index in indices if isinstance(name := index.get("fqn"), str)]
    state_dicts = _state_dicts(items, ways, places)
    top = dict.fromkeys(str(way[0]) for way in ways.values() if way)
    known = replace(
        blank,
        root=f"dict of {len(top)}",
        items=tuple(Item(name, "item" if name in items else "dict") for name in top),
        state_dicts=state_dicts,
        notes=(*blank.notes, *_numbered(tuple(ways.values()))),
    )
    return known, Metadata(pickled, ways, (*items, *planned, *stored))


def _numbered(ways: Collection[Way]) -> Iterator[Note]:
    """Yield what to say of an optimizer that is kept by numbers, which are text in the one file."""
    groups = {way[:index] for way in ways for index, part in enumerate(way) if part == "param_groups"}
    for each in sorted(groups, key=str):
        size = len(each)
        numbers = [way[size + 1] for way in ways if len(way) > size + 1 and way[: size + 1] == (*each, "state")]
        if numbers and all(str(number).isdecimal() for number in numbers):
            where = subscript("ckpt", each)
            yield Note("optimizer", f"{where} is kept by numbers, which are text in the one file: {as_numbers(each)}")


def _strings(value: Any) -> dict[Any, Any]:
    return {key: part for key, part in pairs_of(value) or [] if isinstance(key, str)}


def _way(value: Any) -> Way:
    if not isinstance(value, tuple) or not value or not all(isinstance(part, (str, int)) for part in value):
        raise UnreadableError("the way to an item is not understood")
    return value


def _state_dicts(items: dict[Any, Any], ways: dict[str, Way], places: Collection[Way] | None) -> tuple[StateDict, ...]:
    groups: dict[Way, list[tuple[str, str]]] = defaultdict(list)
    for name, way in ways.items():
        if isinstance(way[-1], str):
            groups[way[:-1]].append((way[-1], name))
    optimizers = {group[:index] for group in groups for index, part in enumerate(group) if part == "param_groups"}
    dicts = [
        _described_at(location, keys, items)
        for location, keys in groups.items()
        if not any(location[: len(each) + 1] == (*each, part) for each in optimizers for part in OPTIMIZER)
    ]
    return of_models(dicts, places)


def _described_at(location: Way, keys: list[tuple[str, str]], items: dict[Any, Any]) -> StateDict:
    rows = tuple(
        Entry(key, shape_of(about.get("size")) or (), _dtype(about))
        for key, name in keys
        if isinstance(items[name], Object) and items[name].kind.endswith(TENSOR)
        for about in (attributes_of(items[name]),)
    )
    entries = by_columns(Entry, rows)
    tensors = set(entries.columns[0])
    others = tuple(key for key, _ in keys if key not in tensors)
    return StateDict(location, entries, others, plain=tuple(key for key in others if not key.endswith(EXTRA_STATE)))


def _dtype(about: dict[str, Any]) -> str:
    """Read the properties of a tensor, which pickle as a tuple that begins with the dtype."""
    properties = about.get("properties")
    state = properties.state if isinstance(properties, Object) else None
    return (
        dtype_of(state[0]) if isinstance(state, tuple) and state else dtype_of(attributes_of(properties).get("dtype"))
    )


def _damage(folder: Path, root: Object) -> str:
    """Return which files of the ranks are missing, or end before what is said to be in them; empty where none is."""
    ends: dict[str, int] = {}
    for _, info in pairs_of(attributes_of(root).get("storage_data")) or ():
        match attributes_of(info):
            case {"relative_path": str(name), "offset": int(offset), "length": int(length)}:
                ends[name] = max(ends.get(name, 0), offset + length)
            case {"relative_path": str(name)}:
                ends.setdefault(name, 0)
    if lost := [name for name in ends if not (folder / name).is_file()]:
        return f"{len(lost)} of its files are not there, the first is {lost[0]}"
    sizes = {name: (folder / name).stat().st_size for name in ends}
    if cut := [name for name, end in ends.items() if sizes[name] < end]:
        return f"its tensors in {cut[0]} end at byte {ends[cut[0]]}, the file at byte {sizes[cut[0]]}"
    return ""
