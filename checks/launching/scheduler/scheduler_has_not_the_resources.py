"""The scheduler cannot give what the job asks for.

## What happens

The ranks are never started, or the launcher gives up waiting for them: Kubernetes leaves a pod Pending ("0/6 nodes are
available: 2 Insufficient nvidia.com/gpu"), Ray's placement group or worker group is not made in time, Slurm refuses a
step ("Invalid generic resource (gres) specification", "More processors requested than permitted"), Open MPI says that
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

from ddpdoctor.check import Ailment, Ambiguity, Evidence, Finding, Fix, Log, Record, Severity, lint, log_pattern

from ._mpi_job import short_of_slots

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
        yield _refused(record, match)
        return
    if match["desired"]:
        yield _of_a_cluster(record, match)
        return
    if match["group"] and (found := log.first(NO_NODE)):
        yield _of_no_node(
            record, match, found[0].proof(found[1], "what one node of the cluster has"), found[1]["needs"]
        )
        return
    kind = next(each for each in (*WHO, "pod") if match[each])
    said, command = WHO[kind]
    if match["slots"]:
        command = _slots(match["asked"], log)
    if match["step"] and "Memory" in match["step"]:
        said, command = STEP_MEMORY
    if match["allocation"] and (memory := log.first(MEMORY)):
        yield _of_memory(record, match, memory[0].proof(memory[1], "memory that a node of the partition has"))
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


def _of_a_cluster(record: Record, match: re.Match[str]) -> Finding:
    """Verl adds up the GPUs of its resource pools before it asks Ray for them."""
    there, wished = int(float(match["there"] or 0)), f"{match['wished']} GPUs" if match["wished"] else "GPUs"
    return Finding(
        f"the training wants {wished}, and the Ray cluster has {there or 'none'}",
        (record.proof(match, f"{wished} in the nodes that have joined the cluster"),),
        Fix(
            "let the other hosts join the cluster before the training starts, or ask for what there is",
            command="ray status   # the nodes that have joined, and their GPUs\n"
            "ray start --address=HEAD:6379   # on each other host\n... trainer.nnodes=1 trainer.n_gpus_per_node="
            f"{there or 1}   # verl",
        ),
        record.place,
    )


def _of_memory(record: Record, match: re.Match[str], said: Evidence) -> Finding:
    return Finding(
        "Slurm refuses the job: it asks for more memory than a node of the partition has, or may give",
        (said, record.proof(match)),
        Fix(
            "ask for at most what a node has, or for all of it",
            command="sinfo -N -o '%N %P %m' | sort -u | head   # MB of each node\n#SBATCH --mem=0   # all of a node's",
        ),
        record.place,
    )


def _of_no_node(record: Record, match: re.Match[str], said: Evidence, needs: str) -> Finding:
    return Finding(
        f"no node of the Ray cluster has what one worker of the training asks for: {needs}",
        (said, record.proof(match)),
        Fix(
            "ask for at most what a node has",
            command="ray status   # Total Usage: what the cluster has",
            diff="-ScalingConfig(num_workers=2, resources_per_worker={'CPU': 4})\n"
            "+ScalingConfig(num_workers=2, resources_per_worker={'CPU': 1})",
        ),
        record.place,
    )


def _refused(record: Record, match: re.Match[str]) -> Finding:
    """Return what the header lacks: GPUs for each task say nothing where the tasks are not counted."""
    counted = "--gpus-per-task" in match["refused"]
    return Finding(
        "the batch script asks for GPUs of each task and does not say how many tasks there are: Slurm refuses the job"
        if counted
        else f"Slurm refuses the job: {match['refused'].strip()}",
        (record.proof(match, "a number of tasks, or of all GPUs" if counted else "a header that Slurm takes"),),
        Fix("say how many tasks there are, one for each rank", command="#SBATCH --ntasks=8\n#SBATCH --gpus-per-task=1")
        if counted
        else Fix("change what it names", command="sbatch --test-only job.sh"),
        record.place,
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


OF_RAY = Ambiguity(
    (
        "the cluster has not what the workers ask for (ScalingConfig), or other jobs hold it",
        "new nodes are being started, and take longer (autoscaler)",
        "the workers' environment takes longer: packages of a runtime_env, an image that is pulled",
    ),
    "ray status -v   # Demands that stay: the first; then ray list workers, and runtime_env_setup-*.log of the session",
)
WHO = {
    "pod": (
        "Kubernetes has no node with enough {what} for a pod of the job",
        "kubectl describe nodes | grep -A8 'Allocated resources'; kubectl get pods -o wide",
    ),
    "group": (
        "Ray has not started all workers of the training in time",
        "ray status\nexport RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S=600   # before ray start, where it only takes long",
    ),
    "placement": ("Ray has not found in time what the placement group asks for", "ray status"),
    "step": (
        "Slurm refuses the step: it asks for more than the job was given",
        "scontrol show job $SLURM_JOB_ID | grep -E 'TRES|NumCPUs|Gres'",
    ),
    "allocation": ("", "sinfo -o '%P %l %D %G'; sacctmgr show assoc user=$USER format=account,partition,qos,maxwall"),
    "slots": (
        "Open MPI has fewer slots than the {asked} ranks that are asked for",
        "",
    ),
}


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
