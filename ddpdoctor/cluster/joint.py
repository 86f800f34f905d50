"""The job that runs on all hosts together: one rank on each, over the network that the training will use."""

from __future__ import annotations

import datetime as dt
import socket

DEADLINE = 30.0  # seconds of the job
TIMEOUT = 20.0  # seconds of one operation in it
NUMBERS = 1 << 18  # float32: 1 MB, more than fits in a packet


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("", 0)) as sock:
        port: int = sock.getsockname()[1]
        return port


def add_up(master: str, port: int, rank: int, world_size: int) -> str:
    """Add a megabyte over all hosts, in a rank; say what is wrong with the sum, nothing where it is right."""
    import torch
    import torch.distributed as dist

    timeout = dt.timedelta(seconds=TIMEOUT)
    store = dist.TCPStore(master, port, world_size, rank == 0, timeout, wait_for_workers=False)  # type: ignore[attr-defined]  # torch exports it, but not to type checkers
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=timeout)
    numbers = torch.full((NUMBERS,), float(rank + 1))
    dist.all_reduce(numbers)
    expected = world_size * (world_size + 1) / 2
    wrong = int((numbers != expected).sum())
    dist.barrier()
    return f"{wrong} of {NUMBERS} sums are wrong" if wrong else ""
