"""The ranks of the user's own launcher: all hosts, measured pair by pair, one rank of each."""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from typing import TYPE_CHECKING

from ddpdoctor.bench.pairs import MOST, as_pairs, measure_pairs
from ddpdoctor.examine.tensors import gather_plain
from ddpdoctor.facets import NotRun
from ddpdoctor.host.variables import TO_JOIN

if TYPE_CHECKING:
    from ddpdoctor.bench.pairs import Pairs

WAIT = 60.0  # seconds for all ranks to come, and for each exchange
NODE = ("GROUP_RANK", "SLURM_NODEID", "NODE_RANK")


def measure_launched(backend: str) -> tuple[Pairs | None, str]:
    """Join the other ranks, measure with them; return all links and the backend on rank 0, None on the others.

    Raises:
        NotRun: no launcher has started this, or the ranks do not come together.
    """
    if missing := [name for name in TO_JOIN if not os.environ.get(name)]:
        raise NotRun(
            f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set: a launcher starts it on each host, "
            "as torchrun --nnodes=N ... --no-python ddpdoctor bench --launched"
        )
    import torch
    import torch.distributed as dist

    if backend == "auto":
        backend = "nccl" if torch.cuda.is_available() else "gloo"
    if backend == "nccl":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    try:
        dist.init_process_group(backend, timeout=timedelta(seconds=WAIT))
        try:
            return (_measured() if dist.get_world_size() > 1 else None), backend
        finally:
            dist.destroy_process_group()
    except (RuntimeError, ValueError) as exc:
        raise NotRun(str(exc).strip().partition("\n")[0]) from exc


def _measured() -> Pairs | None:
    import torch.distributed as dist

    node = next((os.environ[name] for name in NODE if os.environ.get(name)), "")
    told = [(host, there) for host, there in gather_plain([socket.gethostname(), node])]
    first = {host: rank for rank, host in reversed(list(enumerate(told)))}
    hosts = len(first) > 1
    members = sorted(first.values()) if hosts else list(range(len(told)))
    if len(members) > MOST:
        raise NotRun(f"the pairs of {len(members)} {'hosts' if hosts else 'ranks'} take too long: at most {MOST}")
    names = [told[rank][0] for rank in members]
    if not hosts:
        names = [f"rank {rank}" for rank in members]
    elif len(set(names)) < len(names):
        names = [f"{name} ({told[rank][1]})" for name, rank in zip(names, members, strict=True)]
    found = measure_pairs(members)
    return as_pairs(names, members, found, hosts=hosts) if dist.get_rank() == 0 else None
