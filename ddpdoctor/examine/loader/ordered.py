"""What decides a rank's order: the share that its sampler says it takes, and the generators that it draws from."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ddpdoctor.source.vocabulary import RANK_NAME

WORLD = re.compile(r"_*(\w+_)?world(_size)?|_*(num_|n_|n)(replicas|shards|ranks|procs|processes|gpus)")


def share(chain: tuple[Any, ...], rank: int, world: int) -> bool:
    """Whether a sampler holds this rank and the number of ranks, each by such a name."""
    for each in chain:
        held = getattr(each, "__dict__", None) or {}
        numbers = [(name, value) for name, value in held.items() if type(name) is str and type(value) is int]
        ranks = {value for name, value in numbers if RANK_NAME.fullmatch(name)}
        worlds = {value for name, value in numbers if WORLD.fullmatch(name)}
        if (ranks, worlds) == ({rank}, {world}):
            return True
    return False


def drawing_at(chain: tuple[Any, ...]) -> tuple[str, str, int]:
    """Return the class, file and last line of the outermost sampler whose ``__iter__`` is written in Python."""
    for each in chain:
        code = getattr(getattr(type(each), "__iter__", None), "__code__", None)
        if code is not None and not type(each).__module__.startswith("torch."):
            last = max((line for *_, line in code.co_lines() if line), default=code.co_firstlineno)
            return type(each).__name__, str(code.co_filename), last
    return "", "", 0


@contextmanager
def seeded() -> Iterator[list[str]]:
    """Take note of what seeds a generator of the process meanwhile."""
    import torch

    owners = [(torch, "manual_seed"), (random, "seed")]
    if "numpy" in sys.modules:
        owners.append((sys.modules["numpy"].random, "seed"))
    before = [getattr(owner, name) for owner, name in owners]
    calls: list[str] = []

    def noting(original: Any, name: str) -> Any:
        def seed(*args: Any, **options: Any) -> Any:
            calls.append(name)
            return original(*args, **options)

        return seed

    try:
        for (owner, name), original in zip(owners, before, strict=True):
            setattr(owner, name, noting(original, name))
        yield calls
    finally:
        for (owner, name), original in zip(owners, before, strict=True):
            setattr(owner, name, original)
