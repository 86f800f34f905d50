"""Finds the names under which a model, or another checkpoint, has the tensors of a state dict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ddpdoctor.checkpoint.columns import Columns
from ddpdoctor.checkpoint.compare import KeyDifference, difference, shifted
from ddpdoctor.checkpoint.contents import Entry, StateDict, subscript
from ddpdoctor.checkpoint.keys import counter_in
from ddpdoctor.checkpoint.rename.plan import modules, moved, names_of
from ddpdoctor.facets import BadTarget

FEW = 3


class NoMatch(BadTarget):
    """No renaming makes the keys those that are wanted; the text says what is in the way."""


def fitted(state_dict: StateDict, wanted: StateDict) -> list[str] | KeyDifference:
    """Return the names, in the order of ``names_of``, that make the keys those of ``wanted``; else how they differ."""
    names, own_names = names_of(state_dict), names_of(wanted)
    found = difference(state_dict, wanted.entries)
    own = {found.model_strip(name): name for name in own_names}
    front, missing = ("", "") if found.complete else shifted(found)
    if not found.complete and not front and not missing:
        return found
    new = [_renamed(found.file_strip(name), front, missing, own) or name for name in names]
    if not found.complete:
        count = len(state_dict.entries)
        entries = Columns(Entry, new[:count], *state_dict.entries.columns[1:])
        if not difference(replace(state_dict, entries=entries), wanted.entries).complete:
            return found
    if len(own_names) > len(wanted.keys):
        return new if sorted(new) == sorted(own_names) else found
    count = len(state_dict.keys)  # nothing is known there of what is no tensor: it goes with its layer
    paths = modules(dict(zip(names[:count], new[:count], strict=True)))
    others = [_with_layer(name, paths) for name in names[count:]]
    return [*new[:count], *others] if sorted(new[:count]) == sorted(own_names) else found


def _with_layer(name: str, paths: Mapping[str, str]) -> str:
    path, _, last = name.rpartition(".")
    return f"{new}.{last}" if (new := moved(path, paths)) else last


def _renamed(bare: str, front: str, missing: str, own: dict[str, str]) -> str | None:
    if missing:
        return own.get(missing + bare)
    return own.get(bare.removeprefix(front)) if bare.startswith(front) else None


def in_the_way(state_dict: StateDict, wanted: StateDict, found: KeyDifference) -> str:
    """Return what no renaming can change."""
    known = len(names_of(wanted)) > len(wanted.keys)
    ours = {found.file_strip(name) for name in (names_of(state_dict) if known else state_dict.keys)}
    theirs = {found.model_strip(name) for name in names_of(wanted)}
    missing, unexpected = sorted(theirs - ours), sorted(ours - theirs)
    said = [
        f"{len(names)} {word}: {', '.join(names[:FEW])}{', ...' if len(names) > FEW else ''}"
        for names, word in ((missing, "missing"), (unexpected, "unexpected"))
        if names
    ]
    if len(unexpected) == 1 and unexpected[0] == counter_in(state_dict.keys):
        said.append("it is the counter of an AveragedModel, which ddpdoctor.load_state_dict leaves out")
    if found.reshaped:
        key, file, model = found.reshaped[0]
        said.append(f"{len(found.reshaped)} of another shape: {key} {list(file)} instead of {list(model)}")
    if found.collisions:
        said.append(f"{len(found.collisions)} that two tensors would get: {found.collisions[0]}")
    return f"{subscript('ckpt', state_dict.location)}: {'; '.join(said)}"
