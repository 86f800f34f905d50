"""What makes a rank of ours to the user's code what a rank of torchrun is: variables, seeds, device."""

from __future__ import annotations

import os
import random
import sys
from typing import Any


def _compile_nothing(model: Any = None, **_: Any) -> Any:
    return (lambda function: function) if model is None else model


def prepare(*, same_numbers: bool = False, one_a_host: bool = False) -> tuple[int, int]:
    """Make this rank what a torchrun rank is to the user's code; return rank and world size.

    Ranks that nobody seeds draw different numbers, unless ``same_numbers`` are asked for. ``one_a_host``: the other
    ranks are those of other hosts.
    """
    import torch
    import torch.distributed as dist

    rank, world = dist.get_rank(), dist.get_world_size()
    local, local_world = (0, 1) if one_a_host else (rank, world)
    for name, value in (
        ("RANK", rank),
        ("LOCAL_RANK", local),
        ("WORLD_SIZE", world),
        ("LOCAL_WORLD_SIZE", local_world),
    ):
        os.environ[name] = str(value)
    seed(0 if same_numbers else rank)
    torch.compile = _compile_nothing  # compiling takes a minute and changes no result
    if torch.cuda.device_count() > 1:
        torch.cuda.set_device(local % torch.cuda.device_count())
    return rank, world


def drawn() -> tuple[bytes, ...]:
    """Return the state of the generators that ``seed`` seeds."""
    import torch

    states = [bytes(torch.get_rng_state().tolist()), repr(random.getstate()).encode()]
    if "numpy" in sys.modules:
        states.append(repr(sys.modules["numpy"].random.get_state(legacy=False)).encode())
    return tuple(states)


def seed(number: int) -> None:
    """Seed the generators that models use."""
    import torch

    torch.manual_seed(number)
    random.seed(number)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(number)
