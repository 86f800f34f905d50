"""A launcher started the ranks, and each of them starts ranks again.

## What happens

torchrun, srun or mpirun start one process for each GPU; a script that then calls `mp.spawn` starts one for each GPU
in every one of them. With 2 tasks and 2 GPUs 4 processes join a world of 2: "store based barrier ... (world_size=2,
worker_count=4)" until the time-out, or "Address already in use", since each task has a rank 0 of its own.

Lightning starts the other ranks of a node itself where it knows of no launcher, and refuses to do so from a process
whose LOCAL_RANK is not 0: "Lightning attempted to launch new distributed processes with `local_rank > 0`", or a bare
AssertionError in `_call_children_scripts`.

## How to be sure

Mp.spawn stands in the traceback, and the processes in the store are a multiple of the world size.

In a file that starts trainings (`ddpdoctor lint`): a launcher of several ranks starts another launcher, or a script
that calls mp.spawn on every way and reads no rank.

## How to mend it

One of the two only. Either torchrun, and the script reads RANK and LOCAL_RANK; or one task for each
host (`srun --ntasks-per-node=1`, `python train.py`) and mp.spawn.

## Versions and sources

Source: torch.multiprocessing documentation, "Spawning subprocesses"; torch.distributed documentation, "Launch
utility". Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Ambiguity,
    Evidence,
    Finding,
    Fix,
    Joining,
    Log,
    Record,
    Severity,
    Training,
    lint,
    log_pattern,
    place,
    watch,
)

from ..._hosts.barrier import BARRIER, SPAWN, barrier, spawned

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Launch, LaunchScript

AILMENT = Ailment("DDP403", Severity.ERROR)
TAKEN = r"server socket has failed to listen on any local network address[^\n]{0,299}?(?:EADDRINUSE|errno: (?:98|48)\b)"
LAUNCHED = (
    r"ChildFailedError|TORCHELASTIC_\w+|\btorchrun\b|torch\.distributed\.(?:run|launch)\b|\bsrun\b"
    r"|Setting OMP_NUM_THREADS environment variable for each process to be|failed \(exitcode: -?\d+\) local_rank"
)
FIX = Fix(
    "start one task for each host and let mp.spawn do the rest, or drop mp.spawn and use torchrun",
    command="srun --ntasks-per-node=1 python train.py   # or: torchrun --nproc_per_node=2 train.py",
)
COUNTED = {
    "torchrun": "--nproc-per-node=2",
    "deepspeed": "--num_gpus=2",
    "accelerate launch": "--num_processes=2",
}
"""How each launcher is told the number of ranks."""


@log_pattern(BARRIER, context=(SPAWN,), supersedes=("master-port-in-use",))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """See whether ranks that mp.spawn started are too many, or a rank is beyond the world."""
    said, spawn = barrier(record, match), spawned(record, log)
    if said.joined <= said.world or (spawn is None and not said.is_beyond):
        return
    yield Finding(
        f"{said.joined} processes joined a world of {said.world}: "
        + (
            "a launcher started several, and each called mp.spawn"
            if spawn
            else f"rank {said.rank} is one of more processes than WORLD_SIZE tells of"
        ),
        (
            record.proof(match, f"a count of {said.world}, ranks 0 to {said.world - 1}"),
            *((spawn[0].proof(spawn[1], "mp.spawn or a launcher, not both"),) if spawn else ()),
        ),
        FIX,
        record.place,
        ambiguity=None
        if spawn
        else Ambiguity(
            (
                "a launcher started several processes, and each of them starts all ranks again",
                "WORLD_SIZE is set to less than the number of processes",
            ),
            "ps -ww -o pid,ppid,args -C python   # ranks whose parent is a rank: mp.spawn in each",
        ),
    )


@log_pattern(
    r"in _call_children_scripts\n\s+(?P<said>assert self\.(?P<which>local|global)_rank == 0)"
    r"|attempted to launch new distributed processes with `local_rank > 0`"
)
def of_lightning(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Lightning starts the other ranks of a node from its first process, and this one is told that it is another."""
    variables = "NODE_RANK and LOCAL_RANK" if match["which"] == "global" else "LOCAL_RANK"
    yield Finding(
        "Lightning is to start the ranks of this node itself, from a process that is not the first of them",
        (record.proof(match, f"{variables} that say that it is the first"),),
        Fix(
            "let one of both start the ranks: Lightning (python train.py on each node), or torchrun or srun",
            command="unset LOCAL_RANK RANK WORLD_SIZE\nNODE_RANK=1 MASTER_ADDR=HOST MASTER_PORT=29500 python train.py  "
            "# on the second node\npip install --upgrade lightning",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "LOCAL_RANK is left in the environment, or a launcher that Lightning does not know set it",
                *(
                    ("Lightning 1.2.8, which asks for the global rank: no node but the first can start",)
                    if match["which"] == "global"
                    else ()
                ),
            ),
            "env | grep -E 'RANK|WORLD_SIZE'; pip show lightning pytorch-lightning | grep -E 'Name|Version'",
        ),
    )


@log_pattern(TAKEN, context=(LAUNCHED,), supersedes=("master-port-in-use",))
def at_the_port(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """See whether it is a process of mp.spawn, below a launcher, that finds the port taken."""
    spawn, launched = re.search(SPAWN, record.text), log.first(LAUNCHED)
    if spawn is None or launched is None:
        return
    yield Finding(
        "a launcher started several processes, and mp.spawn in each of them a rank 0 that opens the store's port",
        (
            record.proof(match, "one rank 0"),
            record.proof(spawn, "mp.spawn or a launcher, not both"),
            launched[0].proof(launched[1], "python train.py, if mp.spawn is to start the ranks"),
        ),
        FIX,
        record.place,
    )


@watch(Joining)
def while_training(event: Joining, training: Training) -> Iterator[Finding]:
    """Two processes of mp.spawn, below two ranks of one launcher, join as one rank at one place."""
    if event.rank != 0 or event.spawned is None or (event.local_size or 1) < 2:  # noqa: PLR2004 - one rank may start the others
        return
    twins = (
        each
        for each in training.rivals
        if each.spawned is not None and (each.rank, each.address) == (event.rank, event.address)
    )
    if (twin := next((each for each in twins if each.pid != event.pid), None)) is None:
        return
    yield Finding(
        f"the launcher started {event.local_size} ranks on this host, and each called mp.spawn: several processes join "
        f"at {event.address} as rank {event.rank}",
        (
            Evidence(f"rank {event.rank} of {event.world_size}", "one process", f"pid {min(event.pid, twin.pid)}"),
            Evidence(f"rank {event.rank} of {event.world_size}", "", f"pid {max(event.pid, twin.pid)}"),
            Evidence(f"LOCAL_WORLD_SIZE={event.local_size}", "python train.py, if mp.spawn is to start the ranks"),
        ),
        FIX,
        place(event.site),
    )


@lint
def in_launch_script(launch: LaunchScript, project: Around) -> Iterator[Finding]:
    """Look for a launcher behind a launcher, and for a script beside that starts the ranks itself."""
    for each in launch.launches:
        inner = [other for other in launch.launches if other.command is each.command and each.tool in other.outer]
        if not _starts_several(launch, each):
            continue
        if inner:
            started = f"starts {inner[0].tool}, which starts them again"
        elif each.script and project.spawns(each.script.text):
            started = f"starts {each.script.text}, which calls mp.spawn"
        else:
            continue
        yield Finding(
            f"{each.tool} starts several ranks, and each {started}",
            (launch.seen(each.line, "one launcher, or mp.spawn"),),
            _one_of(inner[0].tool, each.tool) if inner else FIX,
            launch.place(each.line),
        )


def _one_of(*tools: str) -> Fix:
    """Return how each of several launchers starts the training alone."""
    alone = [f"{tool} {COUNTED[tool]} train.py" for tool in dict.fromkeys(tools) if tool in COUNTED]
    return Fix("start the training with one launcher", command="   # or: ".join(alone)) if alone else FIX


def _starts_several(launch: LaunchScript, each: Launch) -> bool:
    """Whether a launcher is told to start more than one rank of a node."""
    word = each.options.get("num-processes" if each.tool == "accelerate launch" else "nproc-per-node")
    return word is not None and (word.text in {"gpu", "auto"} or (launch.number(word) or 1) > 1)
