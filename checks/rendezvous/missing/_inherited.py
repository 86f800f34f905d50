"""A process that a rank has started, which has the rank's variables, and joins as the very same rank."""

from __future__ import annotations

from ddpdoctor.check import Evidence, Failed, Finding, Fix, Joining, place

from ...collectives.hangs._told import short

OWN_ENVIRONMENT = Fix(
    "start the process without the variables of the training, or with a group of its own",
    diff='+own = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")\n'
    '+env = {k: v for k, v in os.environ.items() if k not in own and not k.startswith("TORCHELASTIC_")}\n'
    "-subprocess.run(command)\n+subprocess.run(command, env=env)",
)


def descends(one: Joining, other: Joining) -> bool:
    """Whether one of two processes has started the other, by itself or by a shell."""
    return one.pid in other.above or other.pid in one.above


def of_a_rank(one: Joining, other: Joining) -> Finding:
    """Name both: the rank, and the process below it that joins in its place."""
    rank, child = (one, other) if one.pid in other.above else (other, one)
    return Finding(
        f"process {child.pid} joins at {short(child.site)} as rank {child.rank} of {child.world_size}: it has the "
        f"variables of rank {rank.rank}, which has started it, and nobody starts other ranks for it",
        (
            Evidence(
                f"RANK={child.rank} WORLD_SIZE={child.world_size}, they meet at {child.address}",
                "none of these, or a group of its own",
                f"pid {child.pid}, below pid {rank.pid}",
            ),
            Evidence(f"rank {rank.rank} of {rank.world_size}, at {rank.address}", "", f"pid {rank.pid}, {rank.site}"),
        ),
        OWN_ENVIRONMENT,
        place(child.site, rank=child.rank),
    )


def failed_in_its_place(failed: Failed) -> Finding:
    """Name the process whose variables one has that could not join."""
    return Finding(
        f"process {failed.pid} could not join as rank {failed.rank}: it has the variables of process {failed.within}, "
        "which has started it, and is that rank itself",
        (
            Evidence(f"rank {failed.rank}", "none of its variables, or a group of its own", f"pid {failed.pid}"),
            Evidence(f"rank {failed.rank}", "", f"pid {failed.within}, in its group"),
        ),
        OWN_ENVIRONMENT,
        place(failed.site, rank=failed.rank),
    )
