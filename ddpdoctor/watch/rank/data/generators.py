"""Random generators that a data set holds, of which each worker of a loader gets a copy that draws the same."""

from __future__ import annotations

import dis
import random
import sys
from types import CodeType
from typing import Any

# A method that says one of these may give each worker, or each sample, a state of its own.
RESEEDS = {
    "seed", "manual_seed", "set_state", "setstate", "bit_generator", "spawn", "jumped", "getpid", "get_worker_info",
    "default_rng", "RandomState", "Random", "Generator", "SeedSequence",
}  # fmt: skip


def copied(loader: Any) -> tuple[str, ...]:
    """Return the name of the generators that ``__getitem__`` draws from, and that nothing seeds anew in the workers."""
    own = methods(type(loader.dataset))
    draws = own.get("__getitem__")
    if loader.num_workers <= 1 or loader.worker_init_fn is not None or draws is None:
        return ()
    if any(RESEEDS & set(code.co_names) for name, code in own.items() if name != "__init__"):
        return ()
    made = {
        each.argval
        for name, code in own.items()
        for each in dis.get_instructions(code)
        if name != "__init__" and each.opname == "STORE_ATTR"
    }
    return tuple(
        name
        for name, value in sorted(getattr(loader.dataset, "__dict__", {}).items())
        if isinstance(value, kinds()) and name in draws.co_names and name not in made
    )


def methods(kind: type) -> dict[str, CodeType]:
    """Return the code of a class's methods, those of its bases included, the nearest of a name."""
    return {
        name: value.__code__
        for each in reversed(kind.__mro__)
        for name, value in vars(each).items()
        if hasattr(value, "__code__")
    }


def kinds() -> tuple[type, ...]:
    """Return the classes of random generators, of the libraries that are imported."""
    modules = (("torch", ("Generator",)), ("numpy.random", ("Generator", "RandomState")))
    there = ((sys.modules[module], names) for module, names in modules if module in sys.modules)
    return (random.Random, *(getattr(module, name) for module, names in there for name in names))
