"""The ranks that were set by hand do not count from 0.

## What happens

RANK goes from 0 to WORLD_SIZE - 1, over all hosts. A process with RANK=1 in a world of 1 is no rank 0: nobody opens
the store, and the client waits for MASTER_ADDR until its time-out ("The client socket has timed out"). Typical: RANK
counted from 1, or the number of the node given as RANK where each node has several processes.

## How to be sure

In the command that started it, RANK is not below WORLD_SIZE.

In a source (`ddpdoctor lint`): `world_size` is that of the whole training, and `rank` comes from LOCAL_RANK, or is a
number, the same for all processes. In a batch script of several nodes, each task of srun is given
`RANK=$SLURM_LOCALID`, which counts anew on each node, or `WORLD_SIZE=$SLURM_NNODES` with several tasks on each.

## How to mend it

Count from 0; or let torchrun set them: `--node_rank` is the number of the node, `--nnodes` how many
there are.

## Versions and sources

Source: torch.distributed documentation, "Environment variable initialization" and "TCP initialization". Holds for
torch 2.2 to 2.13.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import INIT, Ailment, Fact, Finding, Fix, Place, Record, Severity, keyword, lint, log_pattern

from ..._scripts.doubts import one_node
from ...launching._launchers import SCRIPT

if TYPE_CHECKING:
    from ddpdoctor.check import Around, LaunchScript, Script

AILMENT = Ailment("DDP364", Severity.ERROR)
BY_HAND = (
    r"(?<![\w-])RANK=(\d+)\b(?=[^\n]{0,200}?\bWORLD_SIZE=(\d+))|\bWORLD_SIZE=(\d+)\b[^\n]{0,200}?(?<![\w-])RANK=(\d+)\b"
)
OF_ENVIRONMENT = 'int(os.environ["RANK"])'
"""The global rank, as torchrun tells it."""


@log_pattern(BY_HAND)
def in_the_command(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Compare the two numbers of a command line."""
    rank, world = int(match[1] or match[4]), int(match[2] or match[3])
    if rank < world:
        return
    yield Finding(
        f"RANK={rank} in a world of {world}: ranks count from 0, so nobody is rank 0 and opens the store",
        (record.proof(match, f"RANK from 0 to {world - 1}"),),
        Fix("count from 0, or let torchrun set them", command="torchrun --standalone --nproc_per_node=1 train.py"),
        Place(variable="RANK", rank=record.rank),
    )


SPAWN = Fix(
    "start as many processes as world_size says: nprocs of mp.spawn is the world size on one host",
    diff="-mp.spawn(train, args=(world_size,), nprocs=3)\n+mp.spawn(train, args=(world_size,), nprocs=world_size)",
)
BY_NUMBER = Fix(
    "give each process a rank of its own from 0 on, and all of them the number of all processes on all hosts; or let "
    "torchrun set both",
    command="RANK=0 WORLD_SIZE=3 ...   # RANK=1, RANK=2: the first host; the ranks of the next one go on from there\n"
    "torchrun --nnodes=2 --nproc_per_node=2 --rdzv_backend=c10d --rdzv_endpoint=HOST:29500 train.py",
)


@log_pattern(
    r"rank < size\. (?P<rank>\d+) vs (?P<size>\d+)|NCCL WARN Invalid rank requested : (?P<asked>\d+)/(?P<ranks>\d+)"
)
def in_the_group(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read gloo's own comparison, or NCCL's, when the group is made."""
    rank, size = match["rank"] or match["asked"], match["size"] or match["ranks"]
    yield Finding(
        f"rank {rank} joins a group of world size {size}: ranks count from 0 to {int(size) - 1}",
        (record.proof(match, f"a rank below {size}"),),
        SPAWN if "/multiprocessing/spawn.py" in record.text else BY_NUMBER,
        record.place,
    )


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for the local rank where the process group wants the global one."""
    for call in script.calls(INIT):
        rank, size = keyword(call, "rank"), keyword(call, "world_size")
        if rank is None or size is None or script.fact(rank) is not Fact.LOCAL_RANK:
            continue
        if script.fact(size) is Fact.WORLD_SIZE:
            yield Finding(
                f"the process group is given {script.code(rank)}, the local rank, as the rank: on two nodes, two "
                "processes claim each rank, and init_process_group waits for the others until it times out",
                (script.seen(rank, 'rank=int(os.environ["RANK"])'), script.seen(size)),
                Fix(
                    "leave out rank and world_size: the process group takes them from the environment",
                    edits=(script.replaced(rank, OF_ENVIRONMENT),) if script.has_module("os") else (),
                ),
                script.place(call),
                ambiguity=one_node(script, project),
            )


@lint
def the_same_for_all(script: Script) -> Iterator[Finding]:
    """Look for a rank that is a number, where the world size comes from a launcher."""
    for call in script.calls(INIT):
        rank, size = keyword(call, "rank"), keyword(call, "world_size")
        match rank, size:
            case ast.Constant(value=int(number)), ast.expr() if script.fact(size) is Fact.WORLD_SIZE:
                if not script.all_ranks_reach(call):
                    continue  # the rank of this number alone can come here
                yield Finding(
                    f"every process claims rank {number}: the others are waited for until the time-out",
                    (script.seen(rank, 'rank=int(os.environ["RANK"])'), script.seen(size)),
                    Fix("leave out rank and world_size: the process group takes them from the environment"),
                    script.place(call),
                )


TASKS = {"SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"}


@lint
def tasks_as_world_size(script: Script) -> Iterator[Finding]:
    """Look for tasks of Slurm that each spawn several ranks, and count only the tasks as the world size."""
    if not script.calls("torch.multiprocessing.spawn"):
        return
    for call in script.calls(INIT):
        rank, size = keyword(call, "rank"), keyword(call, "world_size")
        held = script.value(size) if size is not None else None
        made = script.value(rank) if rank is not None else None
        match made:
            case ast.BinOp(op=ast.Add(), left=ast.BinOp(op=ast.Mult())):
                name = _variable(held)
            case _:
                name = None
        if rank is None or size is None or made is None or name is None:
            continue
        yield Finding(
            f"each task of Slurm spawns ranks, and the world size is the number of tasks, {name}: ranks are beyond it",
            (script.seen(size, "world_size=number of tasks * ranks that each spawns"), script.seen(made)),
            Fix(
                "multiply it by the ranks of a task",
                diff=f"-world_size={script.code(size)}\n+world_size={script.code(size)} * ngpus_per_node",
            ),
            script.place(call),
        )


def _variable(node: ast.expr | None) -> str | None:
    """Return the variable of Slurm that a number is, unchanged: ``int(os.environ["SLURM_NTASKS"])``."""
    match node:
        case ast.Call(func=ast.Name(id="int"), args=[ast.Subscript(slice=ast.Constant(value=str(name)))]):
            return name if name in TASKS else None
        case ast.Call(func=ast.Name(id="int"), args=[ast.Call(args=[ast.Constant(value=str(name)), *_])]):
            return name if name in TASKS else None
    return None


OF_NODES = {"$SLURM_NNODES", "${SLURM_NNODES}", "$SLURM_JOB_NUM_NODES", "${SLURM_JOB_NUM_NODES}"}
MULTIPLIED = re.compile(
    r"spawn|world_size\W[^\n]*\*|\*\s*\w*world_size|\*=|nnodes|num_nodes|n_?tasks|WORLD_SIZE[\"']\]\s*=(?!=)",
    re.IGNORECASE,
)
"""What a script has that makes of the number of nodes that of the ranks."""


@lint
def nodes_as_world_size(launch: LaunchScript, project: Around) -> Iterator[Finding]:
    """Look for tasks of srun, several on each node, that are told the number of nodes as the world size."""
    tasks, header = launch.count("ntasks-per-node"), launch.header("ntasks-per-node")
    set_to = [each for each in launch.settings if each.name == "WORLD_SIZE"]
    if header is None or (tasks or 1) < 2 or len(set_to) != 1 or launch.launches:  # noqa: PLR2004 - several
        return
    value, command = set_to[0].value, set_to[0].command
    if value is None or command is None or not command.is_certain or value.text not in OF_NODES:
        return
    for step in launch.shell.commands:
        words = [launch.value(each) or "" for each in step.words]
        named = [name for each in words for name in SCRIPT.findall(each)]
        text = next((found for each in named if (found := project.beside(each))), "")
        is_step = words[:1] == ["srun"] and not any(each.startswith(("-n", "--ntasks")) for each in words)
        if not is_step or "init_process_group" not in text or MULTIPLIED.search(text):
            continue
        yield Finding(
            f"WORLD_SIZE is the number of nodes, and srun starts {tasks} ranks on each: most are told a rank beyond it",
            (launch.seen(set_to[0].line, "WORLD_SIZE=$SLURM_NTASKS"), launch.seen(header.line)),
            Fix(
                "count the tasks",
                diff=f"-{launch.lines[set_to[0].line - 1].strip()}\n+export WORLD_SIZE=$SLURM_NTASKS",
            ),
            launch.place(set_to[0].line, set_to[0].begin),
        )


FROM_LOCAL = re.compile(r"(?<!\w)RANK=[\"']?\$\{?SLURM_LOCALID\b")


@lint
def in_launch_script(launch: LaunchScript) -> Iterator[Finding]:
    """Look for tasks of several nodes whose rank is the number that they have on their node."""
    header = launch.header("nodes")
    if header is None or (launch.count("nodes") or 1) < 2 or launch.count("ntasks-per-node") == 1:  # noqa: PLR2004
        return
    for command in launch.shell.commands:
        word = next((each for each in command.words if FROM_LOCAL.search(each.text)), None)
        if word is None or command.words[0].text != "srun" or "SLURM_LOCALID" in word.reads:
            continue
        yield Finding(
            f"{header.value} nodes, and each task takes SLURM_LOCALID for its RANK: it counts from 0 on each node",
            (launch.seen(word.line, "RANK=$SLURM_PROCID, which counts over all nodes"), launch.seen(header.line)),
            Fix(
                "take the number among all tasks",
                command="srun bash -c 'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID python train.py'",
            ),
            launch.place(word.line),
        )
