"""Loads a checkpoint into a model, whatever wrappers the one or the other has."""

from __future__ import annotations

import logging
import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union

from ddpdoctor.check import BadTarget

if TYPE_CHECKING:
    from torch import nn

    from ddpdoctor.checkpoint import CheckpointFile, StateDict

LOG = logging.getLogger("ddpdoctor")
DEEPEST = 20
Path = Union[str, "os.PathLike[str]"]


@dataclass(frozen=True, slots=True)
class Loaded:
    """What was loaded: the way to the state dict in ``source``, the keys that were renamed, and what was left out."""

    source: str
    location: tuple[str | int, ...]
    total: int
    renamed: tuple[tuple[str, str], ...]
    left_out: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Say it in one line."""
        from ddpdoctor.checkpoint import subscript

        said = f"loaded {self.total} keys of {subscript(self.source, self.location)}"
        if self.renamed:
            old, new = self.renamed[0]
            said += f", {len(self.renamed)} of them under another name, such as {old} as {new}"
        return said + (f", without {', '.join(self.left_out)}" if self.left_out else "")


def load_state_dict(model: nn.Module, source: Path | Mapping[str, Any]) -> Loaded:
    """Load weights into a model, strictly, after taking wrappers' prefixes off the keys or putting them on.

    ``source`` is a checkpoint's path, or what was loaded from one; of several state dicts in it, that which fits. The
    file is read with ``weights_only=True``. What was renamed is returned and logged as a warning.

    Raises:
        BadTarget: the file cannot be used, or holds no state dict.
        NoMatch: its keys and shapes are not the model's, whatever the prefixes.
    """
    from ddpdoctor.checkpoint import NoMatch
    from ddpdoctor.checkpoint.keys import COUNTER, is_averaged
    from ddpdoctor.checkpoint.mend.fit import fitted, in_the_way
    from ddpdoctor.checkpoint.mend.plan import modules, moved

    named = "state_dict" if isinstance(source, Mapping) else os.fspath(source)
    value = source if isinstance(source, Mapping) else _read(named)
    wanted = [_Parameter(key, tuple(getattr(each, "shape", ()))) for key, each in model.state_dict().items()]
    reasons = []
    for state_dict, tensors in _state_dicts(value):
        keys = list(tensors)
        extra = COUNTER if is_averaged(keys) and all(each.key != COUNTER for each in wanted) else ""
        keys = [key for key in keys if key != extra]
        kept = state_dict if not extra else _without(state_dict, extra)
        new = fitted(kept, keys, wanted)
        if not isinstance(new, list):
            reasons.append(in_the_way(state_dict, new))
            continue
        names = dict(zip(keys, new, strict=True))
        renamed = OrderedDict((names[key], tensors[key]) for key in keys)
        if metadata := getattr(tensors, "_metadata", None):
            paths = modules(names)
            setattr(renamed, "_metadata", {moved(path, paths): each for path, each in metadata.items()})  # noqa: B010 - torch's
        model.load_state_dict(renamed, strict=True)
        pairs = tuple((old, name) for old, name in names.items() if old != name)
        loaded = Loaded(named, state_dict.location, len(keys), pairs, (extra,) if extra else ())
        if pairs or extra:
            LOG.warning("%s", loaded)
        return loaded
    reason = f"no renaming makes the keys equal: {reasons[0]}" if reasons else "it holds no state dict"
    raise NoMatch(f"{named}: {reason}")


@dataclass(frozen=True, slots=True)
class _Parameter:
    key: str
    shape: tuple[int, ...]


def _without(state_dict: StateDict, extra: str) -> StateDict:
    from dataclasses import replace

    return replace(state_dict, entries=tuple(entry for entry in state_dict.entries if entry.key != extra))


def _state_dicts(value: Any, location: tuple[str | int, ...] = ()) -> Iterator[tuple[StateDict, Mapping[str, Any]]]:
    """Give all mappings from names to tensors in the value, as the checkpoint's reader describes them."""
    import torch

    from ddpdoctor.checkpoint import Entry, StateDict
    from ddpdoctor.checkpoint.survey import EXTRA_STATE

    if len(location) > DEEPEST or not isinstance(value, (Mapping, list, tuple)):
        return
    items = list(value.items() if isinstance(value, Mapping) else enumerate(value))
    tensors = [(key, part) for key, part in items if isinstance(key, str) and isinstance(part, torch.Tensor)]
    if tensors and isinstance(value, Mapping):
        entries = tuple(Entry(key, tuple(part.shape), str(part.dtype)[6:]) for key, part in tensors)
        whole = all(isinstance(part, torch.Tensor) or str(key).endswith(EXTRA_STATE) for key, part in items)
        others = () if whole else tuple(str(key) for key, part in items if not isinstance(part, torch.Tensor))
        kept: Mapping[str, Any] = value if whole else dict(tensors)
        yield StateDict(location, entries, others), kept
    for key, part in items:
        yield from _state_dicts(part, (*location, key))


def _read(path: str) -> Any:
    """Read a checkpoint's file; its tensors stay on the disk until they are copied, where torch can do that."""
    import torch

    from ddpdoctor.checkpoint import Format, inspect

    file = inspect(path)
    if file.damage:
        raise BadTarget(f"{path} is broken: {file.damage}")
    if file.format is Format.SHARDED:
        return {key: part for name in _parts(file) for key, part in _read(name).items()}
    if file.format is Format.SAFETENSORS:
        from safetensors.torch import load_file

        return load_file(path)
    if file.format not in {Format.TORCH, Format.LEGACY}:
        how = ": load it by torch.distributed.checkpoint.load" if file.format is Format.DCP else ""
        raise BadTarget(f"{path} is a {file.format.value}{how}")
    return torch.load(path, map_location="cpu", weights_only=True, mmap=file.format is Format.TORCH)


def _parts(file: CheckpointFile) -> tuple[str, ...]:
    from ddpdoctor.checkpoint.reader import Shards, opened

    inside = opened(file.path).inside
    return tuple(str(part.main) for part in inside.parts) if isinstance(inside, Shards) else ()
