"""Random generators that a data set holds, itself or in its transforms: each worker gets a copy of them."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from typing import Any

from ddpdoctor.examine.entries import entries

DEEPEST = 4  # objects within objects
OBJECTS = 200
MAKERS = {"Generator": "numpy.random.default_rng(seed)", "RandomState": "numpy.random.RandomState(seed)",
          "Random": "random.Random(seed)"}  # fmt: skip
OF_TORCH = "torch.Generator().manual_seed(seed)"


def kinds() -> tuple[type, ...]:
    """Return the classes of random generators, of the libraries that are imported."""
    modules = (("torch", ("Generator",)), ("numpy.random", ("Generator", "RandomState")))
    there = ((sys.modules[module], names) for module, names in modules if module in sys.modules)
    return (random.Random, *(getattr(module, name) for module, names in there for name in names))


def held(root: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield generators by where they are in an object, each with the object that has it and the generator."""
    waiting: list[tuple[str, Any, int]] = [("", root, 0)]
    looked: set[int] = set()
    while waiting and len(looked) < OBJECTS:
        path, owner, depth = waiting.pop(0)
        if id(owner) in looked:
            continue
        looked.add(id(owner))
        for name, value in list((getattr(owner, "__dict__", None) or {}).items()):
            for where, each in entries(f"{path}.{name}".lstrip("."), value):
                if isinstance(each, kinds()):
                    yield where, owner, each
                elif depth < DEEPEST and hasattr(each, "__dict__") and not isinstance(each, type):
                    waiting.append((where, each, depth + 1))


def told(found: list[tuple[str, Any]]) -> tuple[tuple[str, str], ...]:
    """Return where generators are, those that are one joined by `` = ``, each with what makes another one."""
    paths: dict[int, list[str]] = {}
    for path, each in found:
        paths.setdefault(id(each), []).append(path)
    makers = {id(each): _maker(type(each)) for _, each in found}
    return tuple((" = ".join(names), makers[number]) for number, names in paths.items())


def _maker(kind: type) -> str:
    return OF_TORCH if kind.__module__.partition(".")[0] == "torch" else MAKERS.get(kind.__name__, MAKERS["Random"])
