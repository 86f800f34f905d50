"""The scheduler cannot give what the job asks for.

## What happens

The ranks are never started, or the launcher gives up waiting for them: Kubernetes leaves a pod Pending ("0/6 nodes are
available: 2 Insufficient nvidia.com/gpu"), Ray's placement group or worker group is not made in time, Slurm refuses a
step ("Invalid generic resource (gres) specification", "More processors requested than permitted", "Unable to layout
tasks on given cpus"), Open MPI says that
"there are not enough slots available", verl counts fewer GPUs in Ray than it is to use ("Total available GPUs 8 is less
than total desired GPUs 16"). Where other pods of the same job run, they wait for this one.

## How to be sure

Compare what is asked for with what is free: `kubectl describe nodes`, `ray status`, `scontrol show job`, and the slots
of the hostfile. In a file (`ddpdoctor lint`): mpirun of an MPIJob starts more ranks than its workers have slots
(`slotsPerWorker`, 1 where it is left out).

## How to mend it

Ask for what one host has, or have more of it; `--map-by :OVERSUBSCRIBE` and its like start ranks that share what there
is.

## Versions and sources

Holds whatever the torch. Source: Kubernetes (kube-scheduler's FailedScheduling events), Ray 2.x (ray.train), Slurm 20
to 25 (src/common/slurm_errno.c), Open MPI 3 to 5 (help-rmaps-base.txt).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Log, Record, Severity, lint, log_pattern

from ._mpi_job import short_of_slots
from ._refused import OF_RAY, WHO, of_a_cluster, of_memory, of_no_node, refused

if TYPE_CHECKING:
    from ddpdoctor.check import LaunchScript

AILMENT = Ailment("DDP419", Severity.ERROR)
STARTER = r"\b(horovodrun|torchpack dist-run)\b"
IN_SLURM = r"SLURM_JOB_ID|slurmstepd: |srun: |#SBATCH "
MEMORY = r"(?:sbatch|srun|salloc): error: Memory specification can not be satisfied"
STEP_MEMORY = (
    "Slurm cannot start the step: it asks for more memory than the job has left beside its other steps",
    "scontrol show job $SLURM_JOB_ID | grep -E 'TRES|MinMemory'\nsrun --mem=0 --overlap python train.py   # shares it",
)
NO_NODE = r"No available node types can fulfill resource request (?P<needs>\{[^}\n]{1,200}\})"
"""Ray's autoscaler, of what no node of the cluster has, however long a training waits."""
ASSIGNED = r"Successfully assigned (?P<pod>\S{1,200}) to "


@log_pattern(
    r"(?P<pod>\b0/\d+ nodes are available: [^\n]{0,200}?Insufficient (?P<what>[\w./-]+))"
    r"|(?P<group>The worker group startup timed out after [\d.]+ seconds waiting for \d+ workers)"
    r"|(?P<placement>TimeoutError: Placement group creation timed out)"
    r"|(?P<step>srun: error: Unable to create step for job \d+: (?:Invalid generic resource|More processors requested"
    r"|Memory required by task is not available)[^\n]{0,80})"
    r"|(?:srun|sbatch|salloc): error: (?:Unable to allocate resources|Batch job submission failed): "
    r"(?P<allocation>[^\n]{1,160})"
    r"|(?:srun|sbatch|salloc): (?:error|fatal): (?P<refused>Failed to validate job spec[^\n]{1,200}"
    r"|--gpus-per-task or [^\n]{1,99} is not allowed)"
    r"|(?P<layout>srun: error: Task launch for [\w=.+]{1,40} failed on node \S{1,80}: Unable to "
    r"(?:layout tasks on given cpus|satisfy cpu bind request))"
    r"|(?P<desired>Total available GPUs (?P<there>\d+(?:\.0)?) is less than total desired GPUs (?P<wished>\d+)"
    r"|AssertionError: No GPU found in Ray cluster)"
    r"|(?P<slots>There are not enough slots available in the system to satisfy the (?P<asked>\d+))",
    context=(ASSIGNED, STARTER, IN_SLURM, MEMORY, NO_NODE),
)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Say who cannot give what, and how it is looked at; a pod that found its node later only waited."""
    if match["pod"] and _is_placed(record, log):
        return
    if match["refused"]:
        yield refused(record, match)
        return
    if match["desired"]:
        yield of_a_cluster(record, match)
        return
    if match["group"] and (found := log.first(NO_NODE)):
        yield of_no_node(record, match, found[0].proof(found[1], "what one node of the cluster has"), found[1]["needs"])
        return
    kind = next(each for each in (*WHO, "pod") if match[each])
    said, command = WHO[kind]
    if match["slots"]:
        command = _slots(match["asked"], log)
    if match["step"] and "Memory" in match["step"]:
        said, command = STEP_MEMORY
    if match["allocation"] and (memory := log.first(MEMORY)):
        yield of_memory(record, match, memory[0].proof(memory[1], "memory that a node of the partition has"))
        return
    if match["allocation"]:
        said = f"Slurm refuses the job: {match['allocation'].strip()}"
    yield Finding(
        said.format(what=match["what"], asked=match["asked"]) if kind != "allocation" else said,
        (record.proof(match, "as much as is asked for"),),
        Fix("ask for what there is, or wait for it: compare both", command=command),
        record.place,
        ambiguity=OF_RAY if kind in {"group", "placement"} else None,
    )


def _is_placed(record: Record, log: Log) -> bool:
    """Whether the pod that had no node was given one; any, where the line names no pod."""
    named = re.search(r"\bpods?/([\w.-]+)", record.text)
    placed = {found["pod"].rpartition("/")[2] for _, found in log.find(ASSIGNED)}
    return named[1] in placed if named else bool(placed)


def _slots(asked: str, log: Log) -> str:
    """Return how as many slots as ranks are had: of hosts, in the words of who called mpirun; or of Slurm."""
    starter = log.first(STARTER)
    tool = starter[1][1] if starter else "mpirun"
    hosts = "--host" if tool == "mpirun" else "-H"
    slurm = f"#SBATCH --ntasks={asked}\n" if log.first(IN_SLURM) else ""
    other = "" if slurm else f"; in a job of Slurm: --ntasks={asked}"
    return f"{slurm}{tool} -np {asked} {hosts} localhost:{asked} python train.py   # slots=N in a hostfile{other}"


@lint
def in_mpi_job(launch: LaunchScript) -> Iterator[Finding]:
    """Compare the ranks that mpirun of an MPIJob starts with the slots of its workers."""
    found = short_of_slots(launch)
    if found is None:
        return
    wanted = -(-found.asked // found.workers)
    yield Finding(
        f"mpirun is to start {found.asked} ranks, and {found.workers} workers have {found.slots} "
        f"slot{'s' * (found.slots > 1)} each: it refuses to start",
        (
            launch.seen(found.command.line, f"at most {found.workers * found.slots}"),
            *((launch.seen(found.given.line, f"slotsPerWorker: {wanted}"),) if found.given else ()),
        ),
        Fix("as many slots as a worker has GPUs", diff=f"+  slotsPerWorker: {wanted}"),
        launch.place(found.command.line),
    )
