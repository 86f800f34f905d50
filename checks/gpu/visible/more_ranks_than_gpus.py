"""More ranks are planned on this host than it has GPUs, or two ranks share one.

## What happens

With NCCL each rank needs a GPU of its own. The surplus ranks fail with "invalid device ordinal" in set_device. Where
the script takes the rank modulo the number of GPUs, two ranks share a GPU, and NCCL refuses with "Duplicate GPU
detected". With gloo on the CPU alone a surplus does no harm.

## How to be sure

ddpdoctor compares LOCAL_WORLD_SIZE, or LOCAL_RANK, with the number of GPUs that CUDA_VISIBLE_DEVICES leaves visible. It
judges only where the environment has one of the two variables. To verify it by hand, compare the GPUs with
`--nproc_per_node`:

    nvidia-smi -L; echo "$CUDA_VISIBLE_DEVICES" "$LOCAL_RANK" "$SLURM_GPUS_PER_TASK"

In a file that starts trainings (`ddpdoctor lint`): a launcher is told a number of ranks, and CUDA_VISIBLE_DEVICES of
the same command, or the header of the job, a smaller number of GPUs.

In a log that names no rank, two other causes remain: the script names a GPU by a fixed number that is not visible, or
Slurm shows each task one GPU, as number 0.

## How to mend it

Start one rank for each visible GPU; `gpu` stands for as many as there are:

    torchrun --standalone --nproc_per_node=gpu train.py

In the script call `torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))`, and name no GPU by a fixed number.

A GPU that is cut into MIG slices shows a process one slice, as number 0: ranks with a number above that have none.

## Versions and sources

Holds for torch 2.2 and later. Sources: torch.distributed documentation, "Which backend to use"; NCCL documentation,
"Creating a Communicator".
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
    Gpus,
    Log,
    NotRun,
    Place,
    Record,
    Severity,
    lint,
    log_pattern,
    probe,
    visible_gpus,
)

from ...launching._launchers import nodes, ranks
from ._by_global_rank import by_global_rank, counted_over_hosts
from ._shown import gpus_shown
from ._slices import MIG, of_slices
from ._slurm import ORDINAL, SLURM, each_sees_one

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Facts, LaunchScript

AILMENT = Ailment("DDP212", Severity.ERROR)


@probe
def counted(facts: Facts, gpus: Gpus) -> Iterator[Finding]:
    """Compare the declared local ranks with the GPUs that they would see."""
    seen = len(visible_gpus(facts.environ.get("CUDA_VISIBLE_DEVICES"), gpus))
    for variable, surplus in (("LOCAL_WORLD_SIZE", 0), ("LOCAL_RANK", 1)):
        value = facts.environ.get(variable, "")
        # One visible GPU is how Slurm and Ray bind each rank to a GPU of its own.
        if value.isascii() and value.isdigit() and seen > 1 and int(value) + surplus > seen:
            yield Finding(
                f"{variable}={value}, and a rank sees {seen} GPUs",
                (Evidence(f"{variable}={value}", f"at most {seen - surplus} with {seen} GPUs", "environment"),),
                Fix("start one rank for each GPU", command=f"torchrun --standalone --nproc_per_node={seen} train.py"),
                Place(variable=variable),
            )
            return
    if not any(facts.environ.get(name) for name in ("LOCAL_WORLD_SIZE", "LOCAL_RANK")):
        raise NotRun("the environment does not say how many ranks there are here")


@log_pattern(ORDINAL, context=(SLURM, MIG))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """See which ranks have no GPU of their number; all but rank 0 of a Slurm job are another check's."""
    failed = sorted(log.ranks(ORDINAL))
    if log.first(SLURM) and each_sees_one(log.ranks(ORDINAL)):
        return
    many = f"rank {', '.join(map(str, failed[:8]))}" if failed else "a rank"
    if sliced := log.first(MIG):
        yield of_slices(record, match, many, sliced[0].proof(sliced[1], "whole GPUs"))
        return
    if failed and by_global_rank(record, failed[0]):
        yield counted_over_hosts(record, match, many)
        return
    yield Finding(
        f"{many} has no GPU of its number: there are more ranks on this host than visible GPUs",
        (record.proof(match, f"at most {failed[0]} ranks a host" if failed and failed[0] else "a GPU for each rank"),),
        Fix(
            "start one rank for each visible GPU",
            command="torchrun --standalone --nproc_per_node=gpu train.py   # gpu: as many as there are",
        ),
        record.place,
        ambiguity=None
        if failed
        else Ambiguity(
            (
                "more processes were started than there are visible GPUs",
                "the script names a GPU by a fixed number that this host, or CUDA_VISIBLE_DEVICES, does not have",
                "Slurm shows each task one GPU, as number 0",
            ),
            'nvidia-smi -L; echo "$CUDA_VISIBLE_DEVICES" "$LOCAL_RANK" "$SLURM_GPUS_PER_TASK"',
        ),
    )


@log_pattern(
    r"in _get_stream\n[^\n]*_streams\[device(?:\.index)?\] is None:?\n(?:[^\n]*\n){0,2}?[^\n]*"
    r"IndexError: list index out of range"
)
def of_a_stream(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read torch's list of streams, one for each GPU that the process sees: the device's number is not in it."""
    yield Finding(
        "the model is on a GPU whose number is beyond those that this rank sees",
        (record.proof(match, "a number below torch.cuda.device_count()"),),
        Fix(
            "choose the GPU by the local rank: the global one counts over all nodes",
            diff="-model = DDP(model.to(device), device_ids=[rank])\n"
            '+local_rank = int(os.environ["LOCAL_RANK"])\n'
            "+model = DDP(model.to(local_rank), device_ids=[local_rank])",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "device_ids names the GPU by the global rank, on a node that is not the first",
                "more ranks are started on this host than it has visible GPUs",
            ),
            'nvidia-smi -L; echo "$CUDA_VISIBLE_DEVICES" "$RANK" "$LOCAL_RANK"',
        ),
    )


@log_pattern(
    r"self\.parallel_devices\[self\.local_rank\][^\n]{0,200}\n(?:[^\n]{0,200}\n){0,2}?[^\n]{0,40}"
    r"IndexError: list index out of range",
    context=(SLURM,),
)
def of_lightning(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Lightning looks for its local rank in the list of devices that it was given."""
    slurm = log.first(SLURM)
    yield Finding(
        "Lightning runs more processes on this host than the Trainer has devices there",
        (record.proof(match, "a device for each local rank"), *((slurm[0].proof(slurm[1]),) if slurm else ())),
        Fix(
            "ask for as many devices as processes are started on each host",
            command="#SBATCH --ntasks-per-node=4\n#SBATCH --gpus-per-node=4" if slurm else "",
            diff="+Trainer(accelerator='gpu', devices=4, num_nodes=2, strategy='ddp')",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "more processes are started on the host than `devices` says",
                "the host shows fewer GPUs than `devices` says, and 'auto' counts what is there",
            ),
            'nvidia-smi -L; echo "$CUDA_VISIBLE_DEVICES" "$SLURM_NTASKS_PER_NODE" "$LOCAL_WORLD_SIZE"   # on each host',
        ),
    )


@log_pattern(r"AssertionError: insufficient CUDA devices for DDP command")
def of_yolo(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read YOLOv5's own comparison of the local rank with the GPUs that it sees."""
    yield Finding(
        "YOLOv5 is started with more ranks on this host than it sees GPUs",
        (record.proof(match, "--nproc_per_node is at most what nvidia-smi -L lists"),),
        Fix(
            "start one rank for each visible GPU",
            command="python -m torch.distributed.run --nproc_per_node=$(nvidia-smi -L | wc -l) train.py ...",
        ),
        record.place,
    )


@log_pattern(r"assert num_gpus_per_machine <= torch\.cuda\.device_count\(\)")
def of_detectron(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read detectron2's own comparison, in the process that it has started."""
    yield Finding(
        "detectron2's launch is told more GPUs for each machine than this process sees",
        (record.proof(match, "--num-gpus is at most what nvidia-smi -L lists"),),
        Fix("say as many as there are", command="python train_net.py --num-gpus $(nvidia-smi -L | wc -l) ..."),
        record.place,
    )


@lint
def in_launch_script(launch: LaunchScript) -> Iterator[Finding]:
    """Compare the ranks of each launcher with the GPUs that it is shown, or that Slurm is asked for."""
    for each in launch.launches:
        started, counted = ranks(launch, each), gpus_shown(launch, each)
        several = each.tool == "accelerate launch" and nodes(launch, each) != 1
        on_cpu = "cpu" in each.options or any("gloo" in word.text or "cpu" in word.text for word in each.arguments)
        if started is None or counted is None or started <= counted[0] or several or on_cpu:
            continue
        gpus, line = counted
        yield Finding(
            f"{started} ranks are started, and they see {gpus} GPU{'s' * (gpus > 1)}",
            (launch.seen(each.line, f"{gpus} rank{'s' * (gpus > 1)}, one for each GPU"), launch.seen(line)),
            Fix("start one rank for each GPU", command="torchrun --standalone --nproc_per_node=gpu train.py"),
            launch.place(each.line),
        )


@lint
def by_tasks(launch: LaunchScript, project: Around) -> Iterator[Finding]:
    """Compare the tasks of a node, each of which is a rank, with the GPUs that the batch script asks for."""
    asked, header, tasks = launch.gpus(), launch.header("ntasks-per-node"), launch.count("ntasks-per-node")
    if asked is None or header is None or tasks is None or tasks <= asked[0]:
        return
    for command in launch.shell.commands:
        words = [each.text for each in command.words]
        script = next((each for each in words if each.endswith(".py")), "")
        text = project.beside(script) if words[:1] == ["srun"] and len(words) > 1 and script else None
        is_plain = not any(re.match(r"-[Nnw]|--(?:nodes|ntasks|gpus|gres|overlap)", each) for each in words)
        if text and is_plain and command.is_certain and NCCL.search(text) and "SLURM_LOCALID" in text:
            yield Finding(
                f"{tasks} tasks are started on each node, each a rank, and a node has {asked[0]} "
                f"GPU{'s' * (asked[0] > 1)}",
                (launch.seen(header.line, f"--ntasks-per-node={asked[0]}"), launch.seen(asked[1].line)),
                Fix("start one task for each GPU", diff=f"+#SBATCH --ntasks-per-node={asked[0]}"),
                launch.place(header.line),
            )
            return


NCCL = re.compile(r"init_process_group\(\s*(?:backend\s*=\s*)?[\"']nccl[\"']")
