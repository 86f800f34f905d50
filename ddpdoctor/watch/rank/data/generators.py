"""Random generators that a data set holds, of which each worker of a loader gets a copy that draws the same."""

from __future__ import annotations

import dis
import random
import sys
from types import CodeType
from typing import Any

from ddpdoctor.watch.rank.data.index_digest import bytes_of
from ddpdoctor.watch.user_frames import file_of

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


# What a function that seeds may say, beside numbers, without giving each rank and each epoch other ones.
SEEDS = {"seed", "manual_seed"}
LIBRARIES = {"np", "numpy", "random", "torch", "cuda", "int"}
DRAWS = {"rand", "randn", "random", "randint", "uniform", "normal", "choice", "randperm", "sample", "transform"}


def seeded_by(loader: Any) -> tuple[str, str, int, str] | None:
    """Return the worker_init_fn that seeds by the worker's number alone: its name, file, line, and numbers it holds.

    None where it can say anything else, or where the data set does not seem to draw.
    """
    given = loader.worker_init_fn
    code = getattr(given, "__code__", None)
    draws = methods(type(loader.dataset)).get("__getitem__")
    if code is None or not loader.num_workers or draws is None or not DRAWS & set(draws.co_names):
        return None
    names = {name for name in code.co_names if name not in SEEDS | LIBRARIES}
    cells = dict(zip(code.co_freevars, (each.cell_contents for each in given.__closure__ or ()), strict=True))
    held = {name: given.__globals__.get(name) for name in names} | cells
    if (
        not SEEDS & set(code.co_names)
        or len(code.co_varnames) > 1
        or any(type(each) is not int for each in held.values())
    ):
        return None
    return code.co_name, file_of(code), code.co_firstlineno, repr(sorted(held.items()))


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


def state_of(generator: Any) -> Any:
    """Return the state of a random generator of torch's, numpy's or Python's; it is read, and stays as it is."""
    if hasattr(generator, "getstate"):
        return generator.getstate()
    if hasattr(generator, "bit_generator"):
        return generator.bit_generator.state
    state = generator.get_state()
    return bytes_of(state) if hasattr(state, "numpy") else state


def seed_of(generator: Any) -> str:
    """Return what a generator of torch's or numpy's was seeded with; empty where that is not known."""
    if hasattr(generator, "initial_seed"):
        return str(generator.initial_seed())
    bits = getattr(generator, "bit_generator", None)
    entropy = getattr(getattr(bits, "seed_seq", None), "entropy", None)
    return str(entropy) if entropy is not None else ""
