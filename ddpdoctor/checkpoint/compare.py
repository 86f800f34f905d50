"""Explains how the keys of a file and those of a model differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ddpdoctor.checkpoint.keys import COUNTER, Strip, is_averaged, strips, wrappers_in

if TYPE_CHECKING:
    from ddpdoctor.checkpoint.contents import CheckpointFile, Entry, StateDict

MOST_PREFIXES = 5
SKEWED = "num_batches_tracked"  # buffers that old versions of torch do not write, and old models do not have


class Parameter(Protocol):
    """One entry of the model's state dict."""

    @property
    def key(self) -> str:
        """Give its name."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Give its shape."""


@dataclass(frozen=True, slots=True)
class Difference:
    """How the keys of ``state_dict`` differ from the model's, after what wrappers added is taken out of each.

    ``matching`` counts the keys that agree then, ``reshaped`` those of them whose shapes do not:
    (key, shape in the file, shape in the model). ``collisions`` are names that two keys of the file would get.
    """

    state_dict: StateDict
    file_strip: Strip
    model_strip: Strip
    matching: int
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    reshaped: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]
    collisions: tuple[str, ...] = ()

    @property
    def same_network(self) -> bool:
        """Say whether most of the names agree, so that the prefixes are what differs."""
        return self.matching > len(self.missing) + len(self.unexpected)

    @property
    def complete(self) -> bool:
        """Say whether the file fits the model, but for prefixes."""
        return not (self.missing or self.unexpected or self.reshaped or self.collisions)

    @property
    def skewed(self) -> bool:
        """Say whether nothing differs but buffers that versions of torch disagree about."""
        odd = (*self.missing, *self.unexpected)
        return bool(odd) and not self.reshaped and all(key.rpartition(".")[2] == SKEWED for key in odd)


def explain(checkpoint: CheckpointFile, model: Sequence[Parameter]) -> Difference | None:
    """Compare the model with the state dict of the file that fits it best; None when the file has none."""
    differences = [difference(state_dict, model) for state_dict in checkpoint.state_dicts]
    return min(differences, key=_badness, default=None)


def difference(state_dict: StateDict, model: Sequence[Parameter]) -> Difference:
    """Compare one state dict with the model, with the least stripping that makes them agree best."""
    keys = state_dict.keys
    if is_averaged(keys) and all(parameter.key != COUNTER for parameter in model):
        keys = tuple(key for key in keys if key != COUNTER)
    model_strips = list(strips(parameter.key for parameter in model))
    targets = [(each, frozenset(each(parameter.key) for parameter in model)) for each in model_strips]
    best = min(
        (
            (_distance(stripped, target), index + other, strip, model_strip)
            for index, strip in enumerate(strips(keys))
            for stripped in (frozenset(map(strip, keys)),)
            for other, (model_strip, target) in enumerate(targets)
        ),
        key=lambda each: each[:2],
    )
    return _difference(state_dict, keys, model, best[2], best[3])


def wrapped_keys(difference: Difference) -> int:
    """Count the keys of the file that change when it is stripped."""
    return sum(difference.file_strip(key) != key for key in difference.state_dict.keys)


def outermost(strip: Strip, keys: Iterable[str]) -> str:
    """Name the wrapper that comes first in the keys, of those that are taken out; empty when none is."""
    first = next(
        (segment for key in keys if strip(key) != key for segment in wrappers_in(key) if segment in strip.segments), ""
    )
    return strip.front[0] if strip.front else first


def shifted(found: Difference) -> tuple[str, str]:
    """Give the prefix that the file has before the model's keys, and the one that the model has before the file's.

    Both are empty when no name explains the difference: this is how a model looks that is saved as part of another.
    """
    file, model = found.unexpected, found.missing
    for ours, theirs, order in ((file, model, 1), (model, file, -1)):
        longest = max(theirs, key=len, default="")
        ends = [key[: -len(longest)] for key in ours if longest and key.endswith(f".{longest}")]
        own = frozenset(ours)
        for prefix in sorted(ends, key=len)[:MOST_PREFIXES]:
            if sum(prefix + key in own for key in theirs) * 2 > len(theirs):
                return (prefix, "") if order > 0 else ("", prefix)
    return "", ""


def _loads(file: tuple[int, ...], model: tuple[int, ...]) -> bool:
    """Compare shapes as load_state_dict does, which takes a vector for a scalar, as torch 0.3 wrote them."""
    return file == model or (not model and len(file) == 1)


def _distance(file: frozenset[str], model: frozenset[str]) -> int:
    return len(file ^ model)


def _badness(each: Difference) -> tuple[int, int, int]:
    return (len(each.missing) + len(each.reshaped), len(each.unexpected), len(each.state_dict.location))


def _difference(
    state_dict: StateDict, keys: tuple[str, ...], model: Sequence[Parameter], strip: Strip, model_strip: Strip
) -> Difference:
    kept = set(keys)
    shapes = {strip(entry.key): entry for entry in state_dict.entries if entry.key in kept}
    wanted = {model_strip(parameter.key): parameter for parameter in model}
    others = {strip(key) for key in state_dict.others}
    common = [key for key in wanted if key in shapes]
    counted = Counter(map(strip, keys))
    return Difference(
        state_dict,
        strip,
        model_strip,
        len(common),
        tuple(key for key in wanted if key not in shapes and key not in others),
        tuple(key for key in shapes if key not in wanted),
        tuple(
            (key, shapes[key].shape, wanted[key].shape)
            for key in common
            if not shapes[key].sharded and not _loads(shapes[key].shape, tuple(wanted[key].shape))
        ),
        tuple(key for key, count in counted.items() if count > 1),
    )


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
        """Say whether nothing differs."""
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
        best = min(places, key=lambda each: _badness(difference(state_dict, each.entries))[:2], default=None)
        if best is not None:
            found.append(pairing(state_dict, best))
    return tuple(found)
