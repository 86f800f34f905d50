"""More launchers are started than wait for each other, or fewer.

## What happens

torchrun is one agent for each node: it starts the ranks of its node, and waits until `--nnodes` agents are there. Where
srun starts one for each task (`--ntasks-per-node=8`), eight agents on each node want to start eight ranks each. Some
find the port taken, some wait for a rendezvous that is complete without them until it times out, and where `--nnodes`
is 1, each trains a model of its own on the same GPUs, and all write the same files.

## How to be sure

Compare the tasks that srun starts with `--nnodes`:

    scontrol show job $SLURM_JOB_ID | grep -E "NumNodes|NumTasks"

In a file (`ddpdoctor lint`): the number of tasks stands in its header, that of nodes in the command of torchrun. A job
of SkyPilot or dstack (`num_nodes`, `nodes`) starts its command on each node, one of AzureML once for each process
(`process_count_per_instance`). A
batch script runs on the first node of its job: torchrun without srun is one agent, which waits for those of the others.

## How to mend it

One task for each node, `#SBATCH --ntasks-per-node=1`, and torchrun starts the ranks; or no torchrun, and one task for
each GPU, where the script takes its rank from `SLURM_PROCID`.

## Versions and sources

Sources: torchrun documentation, "Multi-node"; Slurm, srun(1) and sbatch(1). Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Severity, lint, tasks_of

from .._launchers import NODES, nodes

if TYPE_CHECKING:
    from ddpdoctor.check import Launch, LaunchScript

AILMENT = Ailment("DDP465", Severity.ERROR)
AGENTS = {"torchrun", "torch.distributed.launch", "accelerate launch"}
OF_A_TASK = ("SLURM_", "OMPI_", "PMI_", "SKYPILOT_", "DSTACK_", "AZ")
KUBERNETES = "Kubernetes"
OF_A_NODE = {
    "SkyPilot": "torchrun --nnodes=$SKYPILOT_NUM_NODES --node_rank=$SKYPILOT_NODE_RANK --nproc_per_node="
    '$SKYPILOT_NUM_GPUS_PER_NODE --master_addr=$(echo "$SKYPILOT_NODE_IPS" | head -n1) --master_port=8008 ...',
    "dstack": "torchrun --nnodes=$DSTACK_NODES_NUM --node_rank=$DSTACK_NODE_RANK --nproc_per_node="
    "$DSTACK_GPUS_PER_NODE --master_addr=$DSTACK_MASTER_NODE_IP --master_port=8008 ...",
}
"""Platforms that start a job's command once on each node, and how torchrun is told so."""


@lint
def in_launch_script(launch: LaunchScript) -> Iterator[Finding]:
    """Compare how often srun or mpirun start an agent with the agents that wait for each other."""
    for each in launch.launches:
        tasks = tasks_of(launch, each) if each.tool in AGENTS and not each.is_open else None
        wanted = nodes(launch, each)
        if each.tool == "accelerate launch" and "num-machines" not in each.options:
            continue  # its configuration can say another number
        if tasks is None or _is_told_apart(each) or (wanted is None and not _is_for_all_nodes(launch, each)):
            continue
        if tasks.by == KUBERNETES:
            continue  # each pod of an indexed job can be one of a sweep
        if wanted is None and (tasks.each or 1) > 1:
            said, right = f"{tasks.each} {each.tool}s on each node", "one task for each node"
        elif wanted is not None and tasks.total not in {None, wanted}:
            many = "s" * (wanted > 1)
            said = f"{tasks.total} {each.tool}s for a training of {wanted} node{many}: one for each task"
            right = f"{wanted} task{many}, one for each node"
        elif wanted is not None and tasks.total is None and (tasks.each or 1) > wanted:
            said, right = f"{tasks.each} {each.tool}s on each node", "one task for each node"
        else:
            continue
        yield Finding(
            f"{tasks.by or each.scheduler} starts {said}",
            (launch.seen(each.line, right), *((launch.seen(tasks.header.line),) if tasks.header else ())),
            _mend(each, tasks.by),
            launch.place(each.line),
        )


def _is_for_all_nodes(launch: LaunchScript, each: Launch) -> bool:
    """Whether an agent waits for as many as the job has nodes, whatever their number."""
    word = each.options.get("num-machines" if each.tool == "accelerate launch" else "nnodes")
    return word is not None and launch.held(word).text in NODES


def _mend(each: Launch, by: str) -> Fix:
    if by in OF_A_NODE:
        return Fix("let the agents of all nodes wait for each other, at the first one", command=OF_A_NODE[by])
    if by:
        return Fix(
            f"let {by} start the ranks alone, or one {each.tool} on each node",
            diff="-command: torchrun --nproc_per_node=4 train.py\n+command: python train.py",
        )
    if each.scheduler == "mpirun":
        return Fix(
            f"one process for each node, and {each.tool} starts the ranks; or mpirun alone, with the rank from MPI",
            diff=f"+mpirun -np $NODES --map-by ppr:1:node {each.tool} ...",
        )
    if each.tool == "accelerate launch":
        return Fix(
            "one task for each node: accelerate starts the ranks; and as many machines as the job has nodes",
            diff="+#SBATCH --ntasks-per-node=1\n+srun bash -c 'accelerate launch --num_machines $SLURM_NNODES "
            "--machine_rank $SLURM_NODEID ...'",
        )
    return Fix(
        "one task for each node: torchrun starts the ranks; and as many nodes as the job has",
        diff="+#SBATCH --ntasks-per-node=1\n+srun torchrun --nnodes=$SLURM_NNODES ...",
    )


@lint
def on_the_first_node_alone(launch: LaunchScript) -> Iterator[Finding]:
    """Look for an agent of several nodes in a batch script that starts nothing on the others."""
    header = launch.header("nodes")
    others = HELPERS.sub("", launch.text)
    if header is None or (launch.count("nodes") or 1) < 2 or STARTS_ELSEWHERE.search(others):  # noqa: PLR2004
        return
    for each in launch.launches:
        wanted = nodes(launch, each)
        given = [word for word in each.options.values() if word is not None]
        is_numbered = "node-rank" in each.options or any(TOLD.match(name) for word in given for name in word.reads)
        if each.tool not in AGENTS or each.is_open or each.outer or is_numbered or _is_told_apart(each):
            continue
        command = each.command
        if wanted is None or wanted < 2 or not command.is_certain or command.in_background or command.in_loop:  # noqa: PLR2004
            continue
        yield Finding(
            f"the agent of a training of {wanted} nodes is started on the first node alone: it waits for the others "
            "until it times out",
            (launch.seen(each.line, f"srun {each.tool}, one for each node"), launch.seen(header.line)),
            Fix(
                "let srun start one on each node: a batch script itself runs on the first",
                diff="+#SBATCH --ntasks-per-node=1\n+srun torchrun --nnodes=$SLURM_NNODES ...",
            ),
            launch.place(each.line),
        )


STARTS_ELSEWHERE = re.compile(r"^[^#\n]*\b(?:srun|mpirun|mpiexec|ssh|pdsh|clush|parallel|aprun|jsrun)\b", re.MULTILINE)
"""Commands that start something on other nodes."""
HELPERS = re.compile(r"\bsrun\b(?:[ \t]+-[\w=:,./$\"-]+(?:[ \t]+\d+)?)*[ \t]+(?:hostname|nvidia-smi|date|uname)\b")
"""What srun starts to ask a node something: no training."""
TOLD = re.compile(r"SLURM_(?:NODEID|PROCID)|.*RANK|\d")
"""Variables by which one file plays several nodes, started by another one."""


def _is_told_apart(each: Launch) -> bool:
    """Whether the tasks do not all do the same: a sweep, or agents that are numbered by hand."""
    return any(name.startswith(OF_A_TASK) for word in each.arguments for name in word.reads)


@lint
def behind_srun(launch: LaunchScript) -> Iterator[Finding]:
    """Look for a launcher behind ``srun conda activate NAME &&``: srun starts what stands before the ``&&`` alone."""
    for step in launch.shell.commands:
        words = [each.text for each in step.words]
        program = next((at for at, word in enumerate(words[1:], 1) if word in ACTIVATES), None)
        if words[:1] != ["srun"] or program is None or words[program + 1 : program + 2] != [ACTIVATES[words[program]]]:
            continue
        end = step.words[-1].end
        each = next((each for each in launch.launches if _is_behind(launch, end, each)), None)
        if each is not None and not each.scheduler:
            said = " ".join(words[program:])
            yield Finding(
                f"srun starts {said} alone, in tasks that end at once: {each.tool} behind && is none of them",
                (launch.seen(each.line, f"srun bash -c '{said} && {each.tool} ...'"),),
                Fix(
                    "hand both to a shell that srun starts",
                    command=f"srun bash -lc '{said} && {each.tool} ...'",
                ),
                launch.place(each.line),
            )


ACTIVATES = {"conda": "activate", "mamba": "activate", "micromamba": "activate", "module": "load"}
"""Functions of the shell that change it, and no programs that srun could start for others."""


def _is_behind(launch: LaunchScript, end: int, each: Launch) -> bool:
    """Whether a launcher stands behind ``&&`` after a place of the file."""
    begin = each.command.words[0].begin
    return begin > end and launch.text[end:begin].strip(" \\\n") == "&&"
