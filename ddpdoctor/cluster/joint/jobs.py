"""The jobs that run on all hosts together: one rank on each, over the network that the training will use.

Only tensors go between the hosts, which nobody unpickles. A job returns the step that failed and what is wrong with it,
both empty where all is right.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import socket

from ddpdoctor.cluster.cluster import DDP_STEP, SMALL_STEP

DEADLINE = 30.0  # seconds of the job
TIMEOUT = 20.0  # seconds of one operation in it
FEW = 1 << 13  # float32: 32 kB, what a connection was tried with before
NUMBERS = 1 << 18  # float32: 1 MB, more than fits in a packet
ROWS, WIDTH = 4, 8  # of a rank's batch, for the small model
NEGLIGIBLE = 1e-9  # of a gradient in double precision

Said = tuple[str, str]


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("", 0)) as sock:
        port: int = sock.getsockname()[1]
        return port


def nothing() -> Said:
    """Do nothing, in a rank: whoever can start one can start the others."""
    return "", ""


def small_jobs(master: str, port: int, rank: int, world_size: int) -> Said:
    """Run the collectives that trainings use, in a rank, then a step under DDP; tell the first that goes wrong."""
    import torch.distributed as dist

    step = SMALL_STEP
    try:
        join(master, port, rank, world_size, TIMEOUT)
        for step, job in _STEPS.items():
            if problem := job(rank, world_size):
                return step, problem
        dist.barrier()
    except RuntimeError as exc:
        return "" if step == DDP_STEP else step, f"{type(exc).__name__}: {exc}"
    return "", ""


def join(master: str, port: int, rank: int, world_size: int, seconds: float) -> None:
    """Make the process group of all hosts, in a rank."""
    import torch.distributed as dist

    timeout = dt.timedelta(seconds=seconds)
    store = dist.TCPStore(master, port, world_size, rank == 0, timeout, wait_for_workers=False)  # type: ignore[attr-defined]  # torch exports it, but not to type checkers
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=timeout)


def _add_up(rank: int, world_size: int, count: int = NUMBERS) -> str:
    import torch
    import torch.distributed as dist

    numbers = torch.full((count,), float(rank + 1))
    dist.all_reduce(numbers)
    wrong = int((numbers != world_size * (world_size + 1) / 2).sum())
    return f"{wrong} of {count} sums are wrong" if wrong else ""


def _add_up_few(rank: int, world_size: int) -> str:
    return _add_up(rank, world_size, FEW)


def _broadcast(rank: int, world_size: int) -> str:
    import torch
    import torch.distributed as dist

    for source in {0, world_size - 1}:
        numbers = torch.full((NUMBERS,), float(rank + 1))
        dist.broadcast(numbers, src=source)
        if wrong := int((numbers != source + 1).sum()):
            return f"{wrong} of {NUMBERS} numbers are not those of rank {source}"
    return ""


def _all_gather(rank: int, world_size: int) -> str:
    import torch
    import torch.distributed as dist

    parts = [torch.zeros(WIDTH) for _ in range(world_size)]
    dist.all_gather(parts, torch.full((WIDTH,), float(rank)))
    wrong = [source for source, part in enumerate(parts) if bool((part != source).any())]
    return f"the parts of ranks {', '.join(map(str, wrong[:8]))} are wrong" if wrong else ""


def _ddp(rank: int, world_size: int) -> str:
    """Compare DDP's gradients with those of one process that has the batches of all hosts: each can make them."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    def gradients(module: torch.nn.Module, rows: torch.Tensor) -> None:
        module(rows).square().mean().backward()

    torch.manual_seed(0)
    whole = torch.randn(world_size * ROWS, WIDTH, dtype=torch.float64)
    alone, shared = (
        torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh(), torch.nn.Linear(WIDTH, 1)).double()
        for _ in range(2)
    )
    shared.load_state_dict(alone.state_dict())
    gradients(alone, whole)
    gradients(DistributedDataParallel(shared), whole[rank * ROWS : (rank + 1) * ROWS])
    for (name, seen), expected in zip(shared.named_parameters(), alone.parameters(), strict=True):
        assert seen.grad is not None  # noqa: S101 - for the type checker
        assert expected.grad is not None  # noqa: S101 - as above
        if float((seen.grad - expected.grad).norm()) > NEGLIGIBLE * (1 + float(expected.grad.norm())):
            return (
                f"{name} has a gradient of norm {seen.grad.norm():.4g}, and {expected.grad.norm():.4g} in one process"
            )
    return ""


_STEPS = {
    SMALL_STEP: _add_up_few,
    "all_reduce": _add_up,
    "broadcast": _broadcast,
    "all_gather": _all_gather,
    DDP_STEP: _ddp,
}


def count(fact: bool) -> int:  # noqa: FBT001 - it is the one thing that is asked
    """Return on how many ranks it holds."""
    import torch
    import torch.distributed as dist

    flag = torch.tensor(int(fact))
    dist.all_reduce(flag)
    return int(flag)


def same(text: str) -> bool:
    """Whether all ranks have this text."""
    import torch
    import torch.distributed as dist

    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")
    ends = torch.tensor([number, -number])
    dist.all_reduce(ends, op=dist.ReduceOp.MAX)
    return int(ends[0]) == -int(ends[1])
