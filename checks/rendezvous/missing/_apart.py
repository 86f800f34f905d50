"""Ranks that wait at different places, or under one number, and so never meet."""

from __future__ import annotations

from ddpdoctor.check import (
    Evidence,
    Finding,
    Fix,
    Joining,
    Position,
    place,
)

from ...collectives.hangs.reasons._meeting import FILE

ONE_PORT = Fix(
    "choose the port once, before the ranks are started, and hand it to all of them",
    diff='-os.environ["MASTER_PORT"] = str(free_port())   # in each process\n+port = free_port()\n'
    "+torch.multiprocessing.spawn(worker, args=(world_size, port), nprocs=world_size)",
)
ONE_FILE = Fix(
    "choose the path once, before the ranks are started, and hand it to all of them: a new one for each training",
    diff='-init_method=f"file:///tmp/sync_{os.getpid()}"\n+init_method=f"file://{shared_folder}/sync_{job_id}"',
)


def apart(told: Joining, other: Joining) -> Finding:
    """Each rank was given another address, port or file; the rank with the lower number tells it once."""
    first, second = sorted((told, other), key=lambda each: each.rank or 0)
    of_files = first.address.startswith(FILE)
    return Finding(
        f"rank {first.rank} waits at {first.address} and rank {second.rank} at {second.address}: they never meet",
        tuple(
            Evidence(
                f"{each.address}",
                "one path for all ranks" if of_files else "one address and port for all ranks",
                f"rank {each.rank}, {each.site}",
            )
            for each in (first, second)
        ),
        ONE_FILE if of_files else ONE_PORT,
        place(first.site, rank=first.rank),
    )


def two_of_one_rank(waiting: Position, twin: Joining, missing: tuple[int, ...]) -> Finding:
    """Two processes take one rank, so that another rank is nobody's; each of them sees it, and it is told once."""
    (one, at), (other, there) = sorted([(waiting.pid, waiting.site), (twin.pid, twin.site)])
    return Finding(
        f"processes {one} and {other} both join as rank {waiting.rank}, and nobody as {listed(missing)}: "
        "init_process_group waits for ever",
        (
            Evidence(f"rank={waiting.rank}", "", f"pid {one}, {at}"),
            Evidence(f"rank={twin.rank}", "a rank of its own", f"pid {other}, {there}"),
        ),
        Fix(
            "leave the rank to the launcher: RANK is the rank in the job, LOCAL_RANK that on its host",
            diff='-dist.init_process_group("gloo", rank=node_rank, world_size=world_size)\n'
            '+dist.init_process_group("gloo")   # under torchrun',
        ),
        place(waiting.site, rank=waiting.rank),
    )


def listed(ranks: tuple[int, ...]) -> str:
    most = 8
    more = f" and {len(ranks) - most} more" if len(ranks) > most else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks[:most]))}{more}"
