"""Explains how the keys of a file and those of a model differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ddpdoctor.checkpoint.keys import Strip, counter_in, possible_strips, wrappers_in

if TYPE_CHECKING:
    from ddpdoctor.checkpoint.contents import CheckpointFile, StateDict

MOST_PREFIXES = 5
SKEWED = "num_batches_tracked"  # buffers that old versions of torch do not write, and old models do not have


class ModelEntry(Protocol):
    """One entry of the model's state dict."""

    @property
    def key(self) -> str:
        """Its name."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""


@dataclass(frozen=True, slots=True)
class KeyDifference:
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
        """Whether most of the names agree, so that the prefixes are what differs."""
        return self.matching > len(self.missing) + len(self.unexpected)

    @property
    def complete(self) -> bool:
        """Whether the file fits the model, but for prefixes."""
        return not (self.missing or self.unexpected or self.reshaped or self.collisions)

    @property
    def skewed(self) -> bool:
        """Whether nothing differs but buffers that versions of torch disagree about."""
        odd = (*self.missing, *self.unexpected)
        return bool(odd) and not self.reshaped and all(key.rpartition(".")[2] == SKEWED for key in odd)


def closest_difference(checkpoint: CheckpointFile, model: Sequence[ModelEntry]) -> KeyDifference | None:
    """Compare the model with the state dict of the file that fits it best; None when the file has none."""
    differences = [difference(state_dict, model) for state_dict in checkpoint.state_dicts]
    return min(differences, key=badness, default=None)


def difference(state_dict: StateDict, model: Sequence[ModelEntry]) -> KeyDifference:
    """Compare one state dict with the model, with the least stripping that makes them agree best."""
    keys = state_dict.keys
    if (counter := counter_in(keys)) and all(parameter.key != counter for parameter in model):
        keys = tuple(key for key in keys if key != counter)
    model_strips = list(possible_strips(parameter.key for parameter in model))
    targets = [(each, frozenset(each(parameter.key) for parameter in model)) for each in model_strips]
    best = min(
        (
            (_distance(stripped, target), index + other, strip, model_strip)
            for index, strip in enumerate(possible_strips(keys))
            for stripped in (frozenset(map(strip, keys)),)
            for other, (model_strip, target) in enumerate(targets)
        ),
        key=lambda each: each[:2],
    )
    return _difference(state_dict, keys, model, best[2], best[3])


def wrapped_keys(difference: KeyDifference) -> int:
    """Count the keys of the file that change when it is stripped."""
    return sum(difference.file_strip(key) != key for key in difference.state_dict.keys)


def outermost(strip: Strip, keys: Iterable[str]) -> str:
    """Return the name of the wrapper that comes first in the keys, of those that are taken out; empty when none is."""
    first = next(
        (segment for key in keys if strip(key) != key for segment in wrappers_in(key) if segment in strip.segments), ""
    )
    return strip.front[0] if strip.front else first


def shifted(found: KeyDifference) -> tuple[str, str]:
    """Return the prefix that the file has before the model's keys, and the one that the model has before the file's.

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


def fitting_parts(found: KeyDifference) -> tuple[str, ...]:
    """Return the prefixes under which the file has all keys that the model wants: each is such a model."""
    longest = max(found.missing, key=len, default="")
    own = frozenset(found.unexpected)
    ends = dict.fromkeys(key[: -len(longest)] for key in found.unexpected if longest and key.endswith(f".{longest}"))
    return tuple(each for each in [*ends][:MOST_PREFIXES] if all(each + key in own for key in found.missing))


def _loads(file: tuple[int, ...], model: tuple[int, ...]) -> bool:
    """Compare shapes as load_state_dict does, which takes a vector for a scalar, as torch 0.3 wrote them."""
    return file == model or (not model and len(file) == 1)


def _distance(file: frozenset[str], model: frozenset[str]) -> int:
    return len(file ^ model)


def badness(each: KeyDifference) -> tuple[int, int, int]:
    """Return how ill a state dict fits; the least fits best."""
    return (len(each.missing) + len(each.reshaped), len(each.unexpected), len(each.state_dict.location))


def _difference(
    state_dict: StateDict, keys: tuple[str, ...], model: Sequence[ModelEntry], strip: Strip, model_strip: Strip
) -> KeyDifference:
    kept = set(keys)
    shapes = {strip(entry.key): entry for entry in state_dict.entries if entry.key in kept}
    wanted = {model_strip(parameter.key): parameter for parameter in model}
    others = {strip(key) for key in state_dict.others}
    common = [key for key in wanted if key in shapes]
    counted = Counter(map(strip, keys))
    return KeyDifference(
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
