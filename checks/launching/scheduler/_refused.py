"""What a scheduler says that it cannot give: memory, nodes, slots."""

from __future__ import annotations

import re

from ddpdoctor.check import Ambiguity, Evidence, Finding, Fix, Record


def of_a_cluster(record: Record, match: re.Match[str]) -> Finding:
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


def of_memory(record: Record, match: re.Match[str], said: Evidence) -> Finding:
    return Finding(
        "Slurm refuses the job: it asks for more memory than a node of the partition has, or may give",
        (said, record.proof(match)),
        Fix(
            "ask for at most what a node has, or for all of it",
            command="sinfo -N -o '%N %P %m' | sort -u | head   # MB of each node\n#SBATCH --mem=0   # all of a node's",
        ),
        record.place,
    )


def of_no_node(record: Record, match: re.Match[str], said: Evidence, needs: str) -> Finding:
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


def refused(record: Record, match: re.Match[str]) -> Finding:
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
    "layout": (
        "Slurm cannot place the tasks of the step on the processors that the job has on that node",
        (
            "scontrol show job $SLURM_JOB_ID | grep -E 'NumCPUs|CPUs/Task|TRES'; env | grep -E 'SLURM_CPU|SRUN_CPUS'\n"
            "srun --ntasks-per-node=1 --cpus-per-task=$SLURM_CPUS_PER_TASK --cpu-bind=none python train.py"
        ),
    ),
    "allocation": ("", "sinfo -o '%P %l %D %G'; sacctmgr show assoc user=$USER format=account,partition,qos,maxwall"),
    "slots": (
        "Open MPI has fewer slots than the {asked} ranks that are asked for",
        "",
    ),
}
