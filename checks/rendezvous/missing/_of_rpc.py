"""Ranks of torch.distributed.rpc that wait for more workers than were started."""

from __future__ import annotations

from ddpdoctor.check import INIT_RPC, Evidence, Finding, Fix, Joining, Position, Stalled, place

from ...collectives.hangs._told import short


def more_workers_than_started(event: Stalled, waiting: Position, told: Joining) -> Finding:
    """Name the two numbers; of a parameter server it is often the server that was not counted, or counted twice."""
    spawns = told.launched is None
    started, by = (told.spawned, "mp.spawn") if spawns else (told.launched, "torchrun")
    return Finding(
        f"{INIT_RPC} is told {event.world_size} workers at {short(waiting.site)}, and {by} has started {started}: "
        "it waits for those that never come",
        (
            Evidence(f"world_size={event.world_size}", f"{started}", f"rank {waiting.rank}, the call"),
            Evidence(
                f"nprocs={started}" if spawns else f"WORLD_SIZE={started}",
                f"{event.world_size}",
                by if spawns else "the environment that torchrun has set",
            ),
        ),
        Fix(
            "count all that call it, a server as well as its workers, and start as many",
            diff=f"-rpc.init_rpc(name, rank=rank, world_size={event.world_size})\n"
            + (
                f"+rpc.init_rpc(name, rank=rank, world_size={started})"
                if spawns
                else '+rpc.init_rpc(name, rank=rank, world_size=int(os.environ["WORLD_SIZE"]))'
            ),
            command=f"mp.spawn(run, nprocs={event.world_size})   # or as many as the call says"
            if spawns
            else f"torchrun --nproc_per_node={event.world_size} train.py   # or as many as the call says",
        ),
        place(waiting.site, rank=waiting.rank),
    )
