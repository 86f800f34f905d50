"""A worker_init_fn that seeds each worker by its number alone, as its code says."""

from __future__ import annotations

from types import CodeType
from typing import Any

# What a function that seeds may say, beside numbers, without giving each rank and each epoch other ones.
SEEDS = {"seed", "manual_seed"}
LIBRARIES = {"np", "numpy", "random", "torch", "cuda", "int"}
DRAWS = {"rand", "randn", "random", "randint", "uniform", "normal", "choice", "randperm", "sample", "transform"}


def seeds_by_number(loader: Any) -> tuple[CodeType, str] | None:
    """Return the code of the worker_init_fn that seeds by the worker's number alone, and the numbers that it holds.

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
    return code, repr(sorted(held.items()))


def methods(kind: type) -> dict[str, CodeType]:
    """Return the code of a class's methods, those of its bases included, the nearest of a name."""
    return {
        name: value.__code__
        for each in reversed(kind.__mro__)
        for name, value in vars(each).items()
        if hasattr(value, "__code__")
    }
