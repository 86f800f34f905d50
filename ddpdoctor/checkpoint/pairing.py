"""Puts the state dicts of two checkpoints beside each other, key by key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddpdoctor.checkpoint.compare import badness, difference, shifted

if TYPE_CHECKING:
    from ddpdoctor.checkpoint.contents import CheckpointFile, Entry, StateDict


@dataclass(frozen=True, slots=True)
class Pairing:
    """Two state dicts beside each other: rows of what is so, the key in the one, and the key in the other.

    What is so: ``same``, ``renamed`` (by a prefix), ``missing``, ``unexpected``, ``shape`` or ``dtype`` (which differ).
    """

    location: tuple[str | int, ...]
    other: tuple[str | int, ...]
    rows: tuple[tuple[str, str, str], ...]

    @property
    def equal(self) -> bool:
        """Whether nothing differs."""
        return all(row[0] == "same" for row in self.rows)


def pairing(state_dict: StateDict, other: StateDict) -> Pairing:
    """Put the keys of two state dicts beside each other, wrappers' prefixes left aside."""
    found = difference(state_dict, other.entries)
    front, back = ("", "") if found.complete else shifted(found)
    theirs = {found.model_strip(entry.key): entry for entry in other.entries}
    rows: list[tuple[str, str, str]] = []
    for entry in state_dict.entries:
        bare = back + found.file_strip(entry.key).removeprefix(front)
        twin = theirs.pop(bare, None)
        rows.append(("unexpected", entry.key, "") if twin is None else _row(entry, twin))
    rows += [("missing", "", entry.key) for entry in theirs.values()]
    return Pairing(state_dict.location, other.location, tuple(rows))


def _row(entry: Entry, twin: Entry) -> tuple[str, str, str]:
    if entry.shape != twin.shape and not (entry.sharded or twin.sharded):
        return "shape", f"{entry.key} {list(entry.shape)}", f"{twin.key} {list(twin.shape)}"
    if entry.dtype != twin.dtype and entry.dtype and twin.dtype:
        return "dtype", f"{entry.key} {entry.dtype}", f"{twin.key} {twin.dtype}"
    return ("same" if entry.key == twin.key else "renamed"), entry.key, twin.key


def pairings(file: CheckpointFile, other: CheckpointFile) -> tuple[Pairing, ...]:
    """Put each state dict of a file beside that of the other file which fits it best; the same place counts first."""
    found = []
    for state_dict in file.state_dicts:
        places = sorted(other.state_dicts, key=lambda each: each.location != state_dict.location)
        best = min(places, key=lambda each: badness(difference(state_dict, each.entries))[:2], default=None)
        if best is not None:
            found.append(pairing(state_dict, best))
    return tuple(found)
