"""Each collective once, on numbers whose answer is known: what a rank of a job runs."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

LENGTH = 1031  # a prime: no power of two or multiple of a chunk hides a fault at the edges


def exercise(device: str) -> dict[str, str]:
    """Run every collective over the default group.

    ``device`` is ``cpu`` or ``cuda``. Gives a text for each that went wrong, by the collective's name: what came
    and what was expected. One that the backend of this torch does not have is left out.
    """
    wrong: dict[str, str] = {}
    for collective in COLLECTIVES:
        try:
            for seen, expected in collective(_maker(device)):
                if not _same(seen, expected):
                    wrong.setdefault(collective.__name__, f"{_short(seen)}, expected {_short(expected)}")
        except (RuntimeError, ValueError, NotImplementedError) as exc:
            if not _unsupported(exc):
                raise
    return wrong


def _unsupported(exc: Exception) -> bool:
    text = str(exc).lower()
    return any(phrase in text for phrase in ("not support", "unsupported", "not implement", "cannot use"))


def _maker(device: str) -> Callable[[float], Tensor]:
    import torch

    return lambda value: torch.full((LENGTH,), float(value), dtype=torch.float64, device=device)


def _same(seen: Any, expected: Any) -> bool:
    import torch

    return torch.equal(seen, expected) if isinstance(seen, torch.Tensor) else bool(seen == expected)


def _short(value: Any) -> str:
    import torch

    return str(sorted(set(value.tolist()))[:4]) if isinstance(value, torch.Tensor) else repr(value)[:80]


Pairs = list[tuple[Any, Any]]
Make = Callable[[float], "Tensor"]


def _ranks() -> tuple[int, int]:
    import torch.distributed as dist

    return dist.get_rank(), dist.get_world_size()


def broadcast(make: Make) -> Pairs:
    """Every rank holds what the last rank had."""
    import torch.distributed as dist

    rank, world = _ranks()
    tensor = make(rank + 1)
    dist.broadcast(tensor, src=world - 1)
    return [(tensor, make(world))]


def all_reduce(make: Make) -> Pairs:
    """Sum, product, minimum and maximum over ranks that hold 1, 2, 3, ..."""
    import math

    import torch.distributed as dist

    rank, world = _ranks()
    pairs: Pairs = []
    for op, answer in (
        (dist.ReduceOp.SUM, world * (world + 1) / 2),
        (dist.ReduceOp.PRODUCT, math.factorial(world)),
        (dist.ReduceOp.MIN, 1),
        (dist.ReduceOp.MAX, world),
    ):
        tensor = make(rank + 1)
        dist.all_reduce(tensor, op=op)
        pairs.append((tensor, make(answer)))
    return pairs


def reduce(make: Make) -> Pairs:
    """The first rank holds the sum; the others' tensors are undefined afterwards."""
    import torch.distributed as dist

    rank, world = _ranks()
    tensor = make(rank + 1)
    dist.reduce(tensor, dst=0)
    return [(tensor, make(world * (world + 1) / 2))] if rank == 0 else []


def all_gather(make: Make) -> Pairs:
    """Every rank holds every rank's tensor, in rank order."""
    import torch.distributed as dist

    rank, world = _ranks()
    slots = [make(0) for _ in range(world)]
    dist.all_gather(slots, make(rank + 1))
    return [(slot, make(other + 1)) for other, slot in enumerate(slots)]


def gather(make: Make) -> Pairs:
    """The first rank holds every rank's tensor."""
    import torch.distributed as dist

    rank, world = _ranks()
    slots = [make(0) for _ in range(world)] if rank == 0 else None
    dist.gather(make(rank + 1), slots, dst=0)
    return [(slot, make(other + 1)) for other, slot in enumerate(slots or [])]


def scatter(make: Make) -> Pairs:
    """Each rank gets its own of the first rank's tensors."""
    import torch.distributed as dist

    rank, world = _ranks()
    tensor = make(0)
    dist.scatter(tensor, [make(other + 1) for other in range(world)] if rank == 0 else None, src=0)
    return [(tensor, make(rank + 1))]


def reduce_scatter(make: Make) -> Pairs:
    """Each rank gets the sum of one slot of all ranks."""
    import torch.distributed as dist

    rank, world = _ranks()
    tensor = make(0)
    dist.reduce_scatter(tensor, [make((rank + 1) * (other + 1)) for other in range(world)])
    return [(tensor, make((rank + 1) * world * (world + 1) / 2))]


def all_to_all(make: Make) -> Pairs:
    """Each rank gets one slot of each rank."""
    import torch

    rank, world = _ranks()
    sent = torch.cat([make(rank * world + other) for other in range(world)])
    got = torch.empty_like(sent)
    torch.distributed.all_to_all_single(got, sent)
    return [(got, torch.cat([make(other * world + rank) for other in range(world)]))]


def all_gather_object(make: Make) -> Pairs:
    """Every rank holds every rank's Python object."""
    import torch.distributed as dist

    del make
    rank, world = _ranks()
    try:
        importlib.import_module("numpy")
    except ImportError:  # torch needs it for objects; the check numpy-missing tells
        return []
    slots: list[Any] = [None] * world
    dist.all_gather_object(slots, {"rank": rank})
    return [(slots, [{"rank": other} for other in range(world)])]


def send_recv(make: Make) -> Pairs:
    """Each rank's tensor travels to the next rank, in a ring."""
    import torch.distributed as dist

    rank, world = _ranks()
    if world == 1:
        return []
    got = make(0)
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, make(rank + 1), (rank + 1) % world),
            dist.P2POp(dist.irecv, got, (rank - 1) % world),
        ]
    )
    for work in works:
        work.wait()
    return [(got, make((rank - 1) % world + 1))]


def barrier(make: Make) -> Pairs:
    """Nobody goes on before everybody has come; here: it returns."""
    import torch.distributed as dist

    del make
    dist.barrier()
    return []


COLLECTIVES = (
    broadcast,
    all_reduce,
    reduce,
    all_gather,
    gather,
    scatter,
    reduce_scatter,
    all_to_all,
    all_gather_object,
    send_recv,
    barrier,
)
