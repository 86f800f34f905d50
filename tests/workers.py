"""Functions that the tests run in ranks: a pool finds them by their module's name."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time


def world() -> tuple[int, int]:
    """Return rank and world size."""
    import torch.distributed as dist

    return dist.get_rank(), dist.get_world_size()


def say(text: str) -> int:
    """Print on both streams."""
    print(text)
    print(text.upper(), file=sys.stderr)
    return len(text)


def raise_on(rank: int) -> None:
    """Raise on one rank while the others wait for it."""
    import torch.distributed as dist

    if dist.get_rank() == rank:
        raise ValueError("no such luck")
    dist.barrier()


def die(number: int) -> None:
    """End by a signal."""
    os.kill(os.getpid(), number)


def leave(code: int) -> None:
    """End by an exit."""
    sys.exit(code)


def wait_in_c() -> None:
    """Block in C with the GIL held."""
    ctypes.PyDLL(None).sleep(60)


def deaf_and_long() -> None:
    """Ignore every polite signal."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    time.sleep(60)


def parent() -> int:
    """Return the process that has forked this rank."""
    return os.getppid()


def orphan() -> int:
    """Start a process in a session of its own, and leave it; give its pid."""
    process = subprocess.Popen(["sleep", "61.5"], start_new_session=True)
    process.returncode = 0  # nobody's child: no warning at the end
    return process.pid


def flood() -> None:
    """Print for ever."""
    while True:
        print("x" * 100_000)


def variables(*names: str) -> dict[str, str | None]:
    """Return environment variables."""
    return {name: os.environ.get(name) for name in names}


def unpicklable() -> object:
    """Return what cannot travel."""
    return lambda: None


def gather_own() -> list[object]:
    """Gather values of different sizes as the tool does."""
    import torch.distributed as dist

    from ddpdoctor.examine.tensors import gather

    return gather({"rank": dist.get_rank() * 11})


def gather_torchs() -> None:
    """Gather values as torch does."""
    import torch.distributed as dist

    dist.all_gather_object([None] * 2, {"rank": dist.get_rank()})


def draw() -> tuple[float, float]:
    """Draw from the global generators that a fresh process seeds from the system."""
    import random

    import numpy as np

    return random.random(), float(np.random.rand())  # noqa: NPY002, S311 - the global ones are what is tested
