"""Which variables of a script hold tensors of earlier steps: themselves, in a list or a dict, or in an object."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from types import FrameType, ModuleType
from typing import Any

from ddpdoctor.watch.user_frames import variables_of

ELEMENTS = 400  # of a container, the latest ones
DEEP = 3  # containers in each other
TENSORS = 400  # of a variable that are looked at
MODULES = 400  # of a model
VARIABLES = 400  # of a frame
CONTAINERS = (list, tuple, set, deque)


def held_by(frame: FrameType, marks: Callable[[Any], set[int]], least: int) -> Iterator[tuple[str, str, int]]:
    """Yield the variables of a frame that hold graphs with so many marks: name, class, how many tensors of theirs."""
    import torch

    seen: set[int] = set()
    for name, value in list(variables_of(frame).items())[:VARIABLES]:
        for called, each in ((name, value), *_attributes(name, value)):
            if id(each) in seen or isinstance(each, (ModuleType, type)):
                continue
            seen.add(id(each))
            found: set[int] = set()
            tensors = [one for one in _tensors(each, torch.Tensor) if one.grad_fn is not None][-TENSORS:]
            for one in reversed(tensors):
                found |= marks(one)
                if len(found) >= least:
                    yield called, type(each).__name__, len(tensors)
                    break


def _attributes(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what an object of the user's has."""
    from torch.nn import Module

    module = str(getattr(type(value), "__module__", ""))
    if isinstance(value, (ModuleType, type)) or module.partition(".")[0] in {"builtins", "torch", "numpy"}:
        return
    parts = list(islice(value.named_modules(), MODULES)) if isinstance(value, Module) else [("", value)]
    for path, part in parts:
        for key, each in list(getattr(part, "__dict__", {}).items()):
            if key not in {"_parameters", "_buffers", "_modules"}:
                yield ".".join(filter(None, (name, path, key))), each


def _tensors(value: Any, kind: type, depth: int = DEEP) -> Iterator[Any]:
    if isinstance(value, kind):
        yield value
    elif depth and isinstance(value, dict):
        for each in list(value.values())[-ELEMENTS:]:
            yield from _tensors(each, kind, depth - 1)
    elif depth and isinstance(value, CONTAINERS):
        for each in list(value)[-ELEMENTS:]:
            yield from _tensors(each, kind, depth - 1)
