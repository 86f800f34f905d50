"""Finds the names under which a model, or another checkpoint, has the tensors of a state dict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ddpdoctor.check import BadTarget
from ddpdoctor.checkpoint.compare import Difference, Parameter, difference, shifted
from ddpdoctor.checkpoint.contents import Entry, StateDict, subscript
from ddpdoctor.checkpoint.keys import COUNTER

FEW = 3


class NoMatch(BadTarget):
    """No renaming makes the keys those that are wanted; the text says what is in the way."""


def fitted(state_dict: StateDict, names: Sequence[str], wanted: Sequence[Parameter]) -> list[str] | Difference:
    """Give the names that make the keys those that are wanted; else how they differ."""
    found = difference(state_dict, wanted)
    own = {found.model_strip(parameter.key): parameter.key for parameter in wanted}
    front, missing = "", ""
    if not found.complete:
        front, missing = shifted(found)
        if not front and not missing:
            return found
    new = [_renamed(found.file_strip(name), front, missing, own) or name for name in names]
    shapes = {entry.key: name for name, entry in zip(new, state_dict.entries, strict=False)}
    result = difference(replace(state_dict, entries=_under(state_dict, shapes)), wanted)
    if result.complete and {*new[: len(state_dict.entries)]} == {parameter.key for parameter in wanted}:
        return new
    return found


def _renamed(bare: str, front: str, missing: str, own: dict[str, str]) -> str | None:
    if missing:
        return own.get(missing + bare)
    return own.get(bare.removeprefix(front)) if bare.startswith(front) else None


def _under(state_dict: StateDict, names: dict[str, str]) -> tuple[Entry, ...]:
    return tuple(entry._replace(key=names[entry.key]) for entry in state_dict.entries)


def in_the_way(state_dict: StateDict, found: Difference) -> str:
    """Say what no renaming can change."""
    said = [
        f"{len(names)} {word}: {', '.join(names[:FEW])}{', ...' if len(names) > FEW else ''}"
        for names, word in ((found.missing, "missing"), (found.unexpected, "unexpected"))
        if names
    ]
    if found.reshaped:
        key, file, model = found.reshaped[0]
        said.append(f"{len(found.reshaped)} of another shape: {key} {list(file)} instead of {list(model)}")
    if found.collisions:
        said.append(f"{len(found.collisions)} that two tensors would get: {found.collisions[0]}")
    if not said:
        said = [f"1 unexpected: {COUNTER}, the counter of an AveragedModel (ddpdoctor.load_state_dict leaves it out)"]
    return f"{subscript('ckpt', state_dict.location)}: {'; '.join(said)}"
