"""Which file a state dict came from: the last ones that torch.load gave; and how far a training was then."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

DEEPEST = 3  # containers within containers
KEPT = 16  # state dicts
FIRST = 200  # keys of one
PROGRESS = {"epoch", "epochs", "last_epoch", "current_epoch", "start_epoch", "epoch_idx", "iter", "iteration",
            "iter_num", "step", "global_step", "steps"}  # fmt: skip
"""Keys of checkpoints that say how far a training is."""


@dataclass(frozen=True, slots=True)
class Read:
    """A state dict that was in a file: its keys, how many, the first, and its first tensor, which is not kept alive."""

    path: str
    keys: int
    tensor: weakref.ref[Any]
    progress: tuple[tuple[str, int], ...] = ()
    number: int = 0
    first: tuple[str, ...] = ()


@dataclass(slots=True)
class Reads:
    """The last reads, latest first."""

    last: deque[Read] = field(default_factory=lambda: deque(maxlen=KEPT))

    def add(self, path: str, loaded: Any) -> None:
        """Take note of what a file gave."""
        far = progress(loaded)
        for each, tensor in _state_dicts(loaded):
            names = tuple(key for key in islice(each, FIRST) if isinstance(key, str))
            self.last.appendleft(Read(path, _keys(each), weakref.ref(tensor), far, len(each), names))

    def source(self, state_dict: Any) -> str:
        """Return the file that a state dict was read from with these very keys; empty where none is known."""
        found = next(_state_dicts(state_dict), None)
        if found is None:
            return ""
        keys, tensor = _keys(found[0]), found[1]
        return next((read.path for read in self.last if read.keys == keys and read.tensor() is tensor), "")

    def progress(self, path: str) -> tuple[tuple[str, int], ...]:
        """Return how far the training was when a file was written; nothing where that is not known."""
        return next((read.progress for read in self.last if path and read.path == path), ())


def progress(thing: Any) -> tuple[tuple[str, int], ...]:
    """Return the whole numbers of a checkpoint that say how far its training is."""
    if not isinstance(thing, Mapping):
        return ()
    return tuple((key, thing[key]) for key in sorted(PROGRESS & set(map(str, thing))) if type(thing.get(key)) is int)


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
