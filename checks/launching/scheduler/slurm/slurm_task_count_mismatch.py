"""Slurm started another number of tasks than the training asks for.

## What happens

Lightning takes each Slurm task as one rank. If the numbers differ it says so: "You set `devices=4` in Lightning, but
the number of tasks per node configured in SLURM `--ntasks-per-node=1` does not match", and in early versions "You
requested 2 GPUs but launched 1 slurm tasks". Where nothing says so, the ranks that never came are waited for.

## How to be sure

The two counts in the message; `echo $SLURM_NTASKS_PER_NODE $SLURM_NNODES` in the job.

In a batch script (`ddpdoctor lint`): its header asks for several tasks, it starts one process and no srun, and the
script that it starts takes its rank and the number of all from Slurm: rank 0 waits for ranks that nobody starts.

## How to mend it

One task for each GPU, `--ntasks-per-node` equal to devices and `--nodes` equal to num_nodes, and start
with srun; `--ntasks` is not what Lightning reads.

Without Slurm's numbers each node starts its own processes and takes itself for the first: every `GLOBAL_RANK` is
printed once by each node, the higher ones by none, and nothing comes afterwards. Without Slurm, give each node its
`NODE_RANK`.

## Versions and sources

Source: Lightning, SLURMEnvironment and the Trainer's connector; "Run on a SLURM managed cluster". Holds for Lightning
0.7 to 2.5 with torch 2.2 to 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    PYTHONS,
    Ailment,
    Ambiguity,
    Evidence,
    Finding,
    Fix,
    Log,
    Record,
    Severity,
    lint,
    log_pattern,
)

from ._started_tasks import ends_with, is_of_two_nodes, of_nodes_that_all_are_the_first

if TYPE_CHECKING:
    from ddpdoctor.check import Around, LaunchScript, Word

AILMENT = Ailment("DDP412", Severity.ERROR)
TASKS = (
    r"You set `(?:devices|num_nodes)=(\d+)` in Lightning, but the number of (?:tasks per node|nodes) configured "
    r"in SLURM `--(n\w+(?:-per-node)?)=(\d+)`"
)


@log_pattern(TASKS)
def in_lightning(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Compare the two counts that the message gives."""
    yield Finding(
        f"the Trainer is set to {match[1]}, and Slurm's --{match[2]} to {match[3]}",
        (record.proof(match, f"--{match[2]}={match[1]}"),),
        Fix("let Slurm start what the Trainer asks for", command=f"#SBATCH --{match[2]}={match[1]}"),
        record.place,
    )


@log_pattern(r"You set `--ntasks=(\d+)` in your SLURM bash script, but this variable is not supported")
def total(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Yield the name of the option that Lightning does not take."""
    yield Finding(
        f"--ntasks={match[1]} is set, and Lightning takes the number of tasks a node",
        (record.proof(match, "--ntasks-per-node, or SLURM_NTASKS not set"),),
        Fix(
            "set the number for each node: one for each GPU. In an interactive shell of Slurm, without srun, take the "
            "variable away",
            command=f"#SBATCH --ntasks-per-node={match[1] if int(match[1]) <= MOST_GPUS else 'GPUS_OF_A_NODE'}\n"
            "unset SLURM_NTASKS   # interactive, one process: then Lightning starts the others itself",
        ),
        record.place,
    )


MOST_GPUS = 16  # of a node


@log_pattern(r"You requested (\d+)s? GPUs but launched ([1-9]\d*)s? slurm tasks")
def in_early_lightning(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Compare the two counts of a warning of early versions, which then start what is missing; 0 is no Slurm job."""
    yield Finding(
        f"{match[1]} GPUs are requested, and Slurm started {match[2]} tasks",
        (record.proof(match, f"{match[1]} tasks"),),
        Fix("start one task for each GPU", command=f"#SBATCH --ntasks-per-node={match[1]}"),
        record.place,
        severity=Severity.WARNING,
    )


MEMBER = r"[Ii]nitializing (?:ddp|distributed): GLOBAL_RANK: (?P<rank>\d+), MEMBER: \d+/(?P<world>\d+)"
STARTED = r"All distributed processes registered"
ENDED = r"CANCELLED AT|KeyboardInterrupt|[Tt]imed out|SIGTERM|ocket [Tt]imeout"
KEPT = 40  # lines of one kind that a log keeps: beyond them nothing can be said of who is missing


@log_pattern(MEMBER, context=(STARTED, ENDED), supersedes=("killed-by-scheduler",))
def by_those_who_came(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Count Lightning's ranks where rank 0 waited for the others until somebody ended the job."""
    said = [(int(found["rank"]), int(found["world"])) for _, found in log.find(MEMBER)]
    came, world = {rank for rank, _ in said}, int(match["world"])
    first = log.first(MEMBER)
    is_told = first is not None and first[0] is record and {each for _, each in said} == {world}
    missing = sorted(set(range(world)) - came)
    if not is_told or 0 not in came or not missing or len(said) >= KEPT or log.first(STARTED):
        return
    twice = sorted(rank for rank in came if sum(rank == each for each, _ in said) > 1)
    if is_of_two_nodes([rank for rank, _ in said], world) and ends_with(list(log.find(MEMBER))[-1][0], log):
        yield of_nodes_that_all_are_the_first(record, match, len(came), world)
        return
    if not log.first(ENDED):
        return
    many = len(came) == 1 and world > MOST_GPUS
    yield Finding(
        f"{len(came)} of {world} ranks of Lightning came, and waited for the others: "
        f"{'ranks' if len(missing) > 1 else 'rank'} {', '.join(map(str, missing[:8]))} "
        f"{'are' if len(missing) > 1 else 'is'} missing"
        + (
            f", and {'ranks' if len(twice) > 1 else 'rank'} {', '.join(map(str, twice[:8]))} came twice"
            if twice
            else ""
        ),
        (record.proof(match, f"MEMBER: {world}/{world}, and {STARTED}"),),
        Fix(
            "let srun start one task for each GPU" + ("; its processors are --cpus-per-task" if many else ""),
            command="#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8   # devices of the Trainer\n"
            + ("#SBATCH --cpus-per-task=16\n" if many else "")
            + "srun python train.py",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                *(
                    (f"Slurm counts {world} tasks, one for a processor perhaps: more than there are GPUs",)
                    if many
                    else ()
                ),
                "each node started its ranks by itself: Slurm started one task a node (--ntasks-per-node is missing)"
                if twice
                else "Slurm started fewer tasks than ranks: python without srun, or --ntasks-per-node is too small",
                "the other nodes' ranks failed before, and their output is in another file",
            ),
            "echo $SLURM_NTASKS_PER_NODE $SLURM_NNODES; squeue --steps   # in the job",
        ),
    )


STARTS_MORE = re.compile(r"\b(?:srun|mpirun|mpiexec|parallel|pdsh|ssh|for|while)\b|&\s*$", re.MULTILINE)
SIZE_OF_SLURM = re.compile(r"[\"']SLURM_(?:NPROCS|NTASKS)[\"']")
SIZE_OF_OTHERS = re.compile(r"[\"'](?:WORLD_SIZE|RANK|LOCAL_RANK)[\"']|spawn\(|SLURM_STEP|submitit|hostlist")


@lint
def of_one_process(launch: LaunchScript, project: Around) -> Iterator[Finding]:
    """Look for one process that a batch script of several tasks starts, which takes the number of tasks for ranks."""
    tasks = max(launch.count("ntasks") or 1, (launch.count("ntasks-per-node") or 1) * (launch.count("nodes") or 1))
    if tasks < 2 or STARTS_MORE.search("\n".join(_code(launch))):  # noqa: PLR2004 - several
        return
    for line, begin, script in _started(launch):
        text = project.beside(script.text) or ""
        size = SIZE_OF_SLURM.search(text)
        if (
            size is None
            or SIZE_OF_OTHERS.search(text)
            or not re.search(r"init_process_group\([\s\S]{0,200}?\bworld_size=", text)
        ):
            continue
        at = text.count("\n", 0, size.start()) + 1
        yield Finding(
            f"one process is started, and takes its number of ranks from Slurm, which counts {tasks} tasks: it waits "
            "for ranks that nobody starts",
            (
                launch.seen(line, f"srun python {script.text}, which starts {tasks}"),
                Evidence(text.splitlines()[at - 1].strip(), "", f"{script.text}:{at}"),
            ),
            Fix("let srun start a process for each task", command=f"srun python {script.text}"),
            launch.place(line, begin),
        )


def _code(launch: LaunchScript) -> list[str]:
    return [each for each in launch.lines if not each.lstrip().startswith("#")]


def _started(launch: LaunchScript) -> Iterator[tuple[int, int, Word]]:
    """Yield the scripts that one process alone runs: by python, or by torchrun without a number of processes."""
    for each in launch.launches:
        of_one = each.tool == "torchrun" and not {"nproc-per-node", "nnodes"} & set(each.options)
        if of_one and each.script is not None and not each.outer:
            yield each.line, each.command.words[0].begin, each.script
    for command in launch.shell.commands:
        match [*command.words]:
            case [first, script, *_] if PYTHONS.match(first.text) and script.text.endswith(".py"):
                yield command.line, first.begin, script
