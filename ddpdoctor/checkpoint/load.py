"""Loads a checkpoint into a model, whatever wrappers the one or the other has."""

from __future__ import annotations

import logging
import os
import pickle
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union

from ddpdoctor.facets import BadTarget

if TYPE_CHECKING:
    from torch import nn

    from ddpdoctor.checkpoint import CheckpointFile

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
        """Return it in one line."""
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
    from ddpdoctor.checkpoint.keys import counter_in
    from ddpdoctor.checkpoint.rename.fit import fitted, in_the_way
    from ddpdoctor.checkpoint.rename.plan import described, names_of

    named = "state_dict" if isinstance(source, Mapping) else os.fspath(source)
    value = source if isinstance(source, Mapping) else _read(named)
    wanted = described(model.state_dict().items())
    reasons = []
    for location, values in _state_dicts(value):
        counter = counter_in(tuple(values))
        extra = "" if counter in wanted.keys else counter
        state_dict = described(((key, each) for key, each in values.items() if key != extra), location)
        new = fitted(state_dict, wanted)
        if isinstance(new, list):
            names = dict(zip(names_of(state_dict), new, strict=True))
            model.load_state_dict(_under(names, values), strict=True)
            pairs = tuple((old, name) for old, name in names.items() if old != name)
            loaded = Loaded(named, location, len(names), pairs, (extra,) if extra else ())
            if pairs or extra:
                LOG.warning("%s", loaded)
            return loaded
        reasons.append(in_the_way(state_dict, wanted, new))
    reason = f"no renaming makes the keys equal: {reasons[0]}" if reasons else "it holds no state dict"
    raise NoMatch(f"{named}: {reason}")


def _under(names: Mapping[str, str], values: Mapping[str, Any]) -> OrderedDict[str, Any]:
    """Return the values other names; the versions of the layers, which stand beside them, too."""
    from ddpdoctor.checkpoint.rename.plan import modules, moved

    new = OrderedDict((name, values[old]) for old, name in names.items())
    if metadata := getattr(values, "_metadata", None):
        paths = modules(names)
        setattr(new, "_metadata", {moved(path, paths): each for path, each in metadata.items()})  # noqa: B010 - torch's
    return new


def _state_dicts(
    value: Any, location: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], Mapping[str, Any]]]:
    """Yield all mappings from names to tensors in the value, each without what is no part of a state dict."""
    if len(location) > DEEPEST or not isinstance(value, (Mapping, list, tuple)):
        return
    items = list(value.items() if isinstance(value, Mapping) else enumerate(value))
    if isinstance(value, Mapping):
        own = _own(value)
        if own:
            yield location, value if len(own) == len(items) else {key: value[key] for key in own}
    for key, part in items:
        yield from _state_dicts(part, (*location, key))


def _own(value: Mapping[Any, Any]) -> tuple[str, ...]:
    """Return the keys that name something of a model; none when there is no tensor."""
    import torch

    from ddpdoctor.checkpoint.rename.plan import described, names_of
    from ddpdoctor.checkpoint.survey import PLAIN

    named = {key: part for key, part in value.items() if isinstance(key, str)}
    # A tuple stands for the shape of a tensor there, and an array for a tensor; here they are something else.
    found = described(
        (key, part if isinstance(part, (torch.Tensor, *PLAIN)) else [part]) for key, part in named.items()
    )
    return names_of(found) if any(isinstance(part, torch.Tensor) for part in named.values()) else ()


def _read(path: str) -> Any:
    """Read a checkpoint's file; its tensors stay on the disk until they are copied, where torch can do that."""
    import torch

    from ddpdoctor.checkpoint import Format, inspect
    from ddpdoctor.checkpoint.pickles.allowed import is_allowed

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
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=file.format is Format.TORCH)
    except pickle.UnpicklingError:
        refused = ", ".join(name for name in file.globals if not is_allowed(name)) or "something"
        raise BadTarget(
            f"{path}: torch.load refuses {refused} with weights_only=True; load the file as you trust it, pass the dict"
        ) from None


def _parts(file: CheckpointFile) -> tuple[str, ...]:
    from ddpdoctor.checkpoint.reader import Shards, opened

    inside = opened(file.path).inside
    return tuple(str(part.main) for part in inside.parts) if isinstance(inside, Shards) else ()
