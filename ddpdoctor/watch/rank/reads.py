"""Which file a state dict came from: the last ones that torch.load gave."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

DEEPEST = 3  # containers within containers
KEPT = 16  # state dicts


@dataclass(frozen=True, slots=True)
class Read:
    """A state dict that was in a file: its keys, and its first tensor, which is not kept alive."""

    path: str
    keys: int
    tensor: weakref.ref[Any]


@dataclass(slots=True)
class Reads:
    """The last reads, latest first."""

    last: deque[Read] = field(default_factory=lambda: deque(maxlen=KEPT))

    def add(self, path: str, loaded: Any) -> None:
        """Take note of what a file gave."""
        for each, tensor in _state_dicts(loaded):
            self.last.appendleft(Read(path, _keys(each), weakref.ref(tensor)))

    def source(self, state_dict: Any) -> str:
        """Return the file that a state dict was read from with these very keys; empty where none is known."""
        found = next(_state_dicts(state_dict), None)
        if found is None:
            return ""
        keys, tensor = _keys(found[0]), found[1]
        return next((read.path for read in self.last if read.keys == keys and read.tensor() is tensor), "")


def _keys(state_dict: Mapping[Any, Any]) -> int:
    return hash(tuple(state_dict))


def _state_dicts(value: Any, depth: int = 0) -> Iterator[tuple[Mapping[Any, Any], Any]]:
    """Find the mappings that hold tensors, each with its first one."""
    import torch

    if not isinstance(value, Mapping) or depth > DEEPEST:
        return
    tensor = next((each for each in value.values() if isinstance(each, torch.Tensor)), None)
    if tensor is not None:
        yield value, tensor
    for each in value.values():
        if isinstance(each, Mapping):
            yield from _state_dicts(each, depth + 1)
