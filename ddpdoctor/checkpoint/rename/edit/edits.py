"""Turns the new names of a checkpoint into changes of its files, each format in its own way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from ddpdoctor.checkpoint.contents import Format
from ddpdoctor.checkpoint.formats.distributed import Metadata
from ddpdoctor.checkpoint.formats.safetensors import PREFIX, Header
from ddpdoctor.checkpoint.formats.torchfile import Pickled
from ddpdoctor.checkpoint.pickles.values import Text, UnreadableError
from ddpdoctor.checkpoint.reader import Opened, Shards
from ddpdoctor.checkpoint.rename.edit import pickles, zips
from ddpdoctor.checkpoint.rename.edit.headers import annotated, packed
from ddpdoctor.checkpoint.rename.plan import Renamed
from ddpdoctor.checkpoint.rename.splice import Growth, Splice

Plan = tuple[Renamed, ...]


def changes(opened: Opened, plan: Plan, *, in_place: bool) -> tuple[Splice | Growth, ...]:
    """Return the changes of the files, the one that decides last; those of a copy, or those in place.

    Raises:
        UnreadableError: the names cannot be changed as they are written.
    """
    return tuple(each for each in _changes(opened, plan, in_place=in_place) if isinstance(each, Growth) or each.changes)


def _changes(opened: Opened, plan: Plan, *, in_place: bool) -> Iterator[Splice | Growth]:
    path, size = str(opened.main), opened.stamp[1]
    match opened.inside:
        case Pickled() as pickled if opened.file.format is Format.TORCH:
            yield _archive(opened, pickled, plan, in_place=in_place)
        case Pickled() as pickled:
            stop = pickled.machine.at
            strings = pickles.wanted(opened.file, plan)
            data = pickles.rewritten(pickled.data, pickled.start, stop, pickled.machine, strings)
            yield Splice(path, size, pickled.start, stop, data) if strings else _nothing(path, size)
        case Header() as header:
            names = dict(plan[0].renamed) if plan else {}
            stop = PREFIX + header.length
            yield Splice(path, size, 0, stop, packed(header, names)) if names else _nothing(path, size)
        case Metadata() as metadata:
            yield _metadata(path, size, metadata, plan)
        case Shards() as shards:
            yield from _shards(path, size, shards, plan, in_place=in_place)


def _nothing(path: str, size: int) -> Splice:
    return Splice(path, size, size, size, b"")


def _archive(opened: Opened, pickled: Pickled, plan: Plan, *, in_place: bool) -> Splice | Growth:
    path, size = str(opened.main), opened.stamp[1]
    strings = pickles.wanted(opened.file, plan)
    if not strings or pickled.directory is None or pickled.record is None:
        return _nothing(path, size)
    data = pickles.rewritten(pickled.data, 0, len(pickled.data), pickled.machine, strings)
    pickled.machine.forget()
    make = zips.grown if in_place else zips.rebuilt
    return make(path, size, pickled.directory, pickled.record, data)


def _metadata(path: str, size: int, metadata: Metadata, plan: Plan) -> Splice:
    new: dict[str, str] = {}
    places: list[tuple[str, str]] = []
    keys = {each.location: dict(each.renamed) for each in plan if each.renamed}
    for name, way in metadata.ways.items():
        last = way[-1]
        if isinstance(last, str) and (key := keys.get(way[:-1], {}).get(last)):
            if name != ".".join(map(str, way)):
                raise UnreadableError(f"the item {name} is not called by the way to it")
            new[name] = ".".join(map(str, (*way[:-1], key)))
            places.append((last, key))
    kept = metadata.ways.keys() - new.keys()
    if doubled := sorted(kept.intersection(new.values())):
        raise UnreadableError(f"it has an item {doubled[0]} already")
    places += [(name, new[name]) for name in metadata.names if name in new]
    strings: dict[int, str] = {}
    for old, name in places:
        if not isinstance(old, Text) or strings.setdefault(old.at, name) != name:
            raise UnreadableError(f"its pickle makes the name {old} by code, or for two items")
    data = metadata.pickled.data
    if not strings:
        return _nothing(path, size)
    machine = metadata.pickled.machine
    return Splice(path, size, 0, size, pickles.rewritten(data, 0, len(data), machine, strings))


def _shards(path: str, size: int, shards: Shards, plan: Plan, *, in_place: bool) -> Iterator[Splice | Growth]:
    names = dict(plan[0].renamed)
    for part in shards.parts:
        here = part.file.state_dicts[0]
        own = tuple((key, names[key]) for key in (*here.keys, *here.others) if key in names)
        yield from _changes(part, (Renamed((), own, len(own)),), in_place=in_place)
    if names:
        weight_map = {names.get(key, key): name for key, name in shards.index["weight_map"].items()}
        notes = shards.index.get("metadata")
        index = {**shards.index, "weight_map": weight_map}
        if isinstance(notes, dict):
            index["metadata"] = annotated(notes, names)
        data = json.dumps(index, indent=2, ensure_ascii=False) + "\n"
        yield Splice(path, size, 0, size, data.encode())


def files_of(opened: Opened) -> tuple[Path, ...]:
    """Return the name of the files that a copy of the checkpoint consists of."""
    match opened.inside:
        case Metadata():
            return tuple(sorted(each for each in opened.main.parent.iterdir() if each.is_file()))
        case Shards(parts=parts):
            return (*(part.main for part in parts), *beside(opened.main.parent), opened.main)
        case _:
            return (opened.main,)


NO_WEIGHTS = {".json", ".jinja", ".model", ".txt", ".py", ".md", ".yaml"}
"""Suffixes of what stands beside weights, for who loads the folder: its configuration, its tokens, code of its own."""


def beside(folder: Path) -> tuple[Path, ...]:
    """List what else a folder needs to be loaded, other indexes left out: their weights stay where they are."""
    return tuple(
        each
        for each in sorted(folder.iterdir())
        if each.suffix in NO_WEIGHTS and not each.name.endswith(".index.json") and each.is_file()
    )
