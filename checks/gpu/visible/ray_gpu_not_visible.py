"""A Ray worker does not see the GPU that its code asks for.

## What happens

Ray sets CUDA_VISIBLE_DEVICES for each task and actor to the GPUs that it was promised: none without `num_gpus`, one
with `num_gpus=1`, and that one is cuda:0 inside. Code that takes `cuda:{local_rank}`, or runs in a task that asked
for no GPU, fails there though the machine has GPUs: "No CUDA GPUs are available", "CUDA error: invalid device
ordinal", "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False".

With AMD's GPUs two variables hide them one after the other: ROCR_VISIBLE_DEVICES, after which those that are left count
from 0, and HIP_VISIBLE_DEVICES (or CUDA_VISIBLE_DEVICES), which counts among these. Ray sets one of them, and a site,
an image or a script the other: "No HIP GPUs are available", "HIP error: invalid device ordinal". Newer versions of Ray
refuse the first at once: "... use HIP_VISIBLE_DEVICES instead of ROCR_VISIBLE_DEVICES".

## How to be sure

The traceback is that of a Ray worker (`ray::`, RayTaskError); `ray.get_gpu_ids()` printed in the
worker shows what it was given. For AMD, `env | grep VISIBLE` in the worker: one variable, with numbers that exist.

## How to mend it

Ask for the GPU, `@ray.remote(num_gpus=1)` or `ScalingConfig(use_gpu=True)`, and use cuda:0 in each
worker; or keep Ray from setting the variable and choose the device yourself.

## Versions and sources

Holds for Ray 1 and 2 with torch 2.2 to 2.13. Source: Ray documentation, "Accelerator support"; ray-project/ray#53737,
vllm-project/vllm#12572, verl-project/verl#1575.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Evidence, Finding, Fix, Log, Record, Severity, log_pattern

AILMENT = Ailment("DDP221", Severity.ERROR)
RAY = (
    r"\bray::\w|RayTaskError|RayActorError|\bray[/\\](?:_private|actor|worker)"
    r"|\bverl[/\\]workers?[/\\]|RayWorkerWrapper"
)
OF_AMD = r"No HIP GPUs are available|HIP error: invalid device ordinal"
TWICE = (
    r"\bROCR_VISIBLE_DEVICES=[\d,]+[^\n]{1,80}\b(?:HIP|CUDA)_VISIBLE_DEVICES=[\d,]+"
    r"|\b(?:HIP|CUDA)_VISIBLE_DEVICES=[\d,]+[^\n]{1,80}\bROCR_VISIBLE_DEVICES=[\d,]+"
)
KEEP_OUT = "export RAY_EXPERIMENTAL_NOSET_HIP_VISIBLE_DEVICES=1 RAY_EXPERIMENTAL_NOSET_ROCR_VISIBLE_DEVICES=1"


@log_pattern(
    r"No CUDA GPUs are available|CUDA error: invalid device ordinal"
    r"|Attempting to deserialize object on a CUDA device but torch\.cuda\.is_available\(\) is False",
    context=(RAY,),
)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Recognise a Ray worker by its frames."""
    shown = _worker(record, log)
    if not shown:
        return
    ordinal = "ordinal" in match[0]
    yield Finding(
        "a Ray worker asks for a GPU by an index that it does not see: its own is cuda:0"
        if ordinal
        else "a Ray worker was given no GPU, and its code uses one",
        (record.proof(match, "cuda:0 inside of the worker" if ordinal else "num_gpus=1 for the worker"), shown),
        Fix(
            "use cuda:0 in each worker" if ordinal else "ask Ray for a GPU",
            diff='-device = f"cuda:{local_rank}"\n+device = "cuda:0"'
            if ordinal
            else "-@ray.remote\n+@ray.remote(num_gpus=1)\nor\n-ScalingConfig(num_workers=n)\n"
            "+ScalingConfig(num_workers=n, use_gpu=True)",
        ),
        record.place,
    )


def _worker(record: Record, log: Log) -> Evidence | None:
    if found := re.search(RAY, record.text):
        return record.proof(found)
    other = log.first(RAY)
    return other[0].proof(other[1]) if other else None


@log_pattern(OF_AMD, context=(RAY, TWICE), supersedes=("more-ranks-than-gpus", "gpus-not-visible"))
def of_two_variables(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """AMD's GPUs are hidden by two variables, one after the other; Ray sets one of them."""
    shown, set_too = _worker(record, log), log.first(TWICE)
    if not shown and not set_too:
        return
    none = match[0].startswith("No HIP")
    yield Finding(
        f"a {'Ray worker' if shown else 'rank'} "
        + ("sees none of AMD's GPUs" if none else "asks for a GPU of AMD's that it does not see"),
        (
            record.proof(match, "one variable of both, with numbers of GPUs that are there"),
            *((shown,) if shown else ()),
            *((set_too[0].proof(set_too[1]),) if set_too else ()),
        ),
        Fix(
            "let one variable alone choose the GPUs; before ray start, on each host",
            command=f"unset ROCR_VISIBLE_DEVICES\n{KEEP_OUT}   # else Ray sets them for each worker",
            diff="-@ray.remote\n+@ray.remote(num_gpus=1)" if none else "",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "ROCR_VISIBLE_DEVICES, and HIP_VISIBLE_DEVICES or CUDA_VISIBLE_DEVICES, are set both, and hide twice",
                "Ray leaves the worker one GPU, as number 0, and the code takes the local rank's"
                if not none
                else "the worker asked Ray for no GPU (num_gpus)",
            ),
            "env | grep VISIBLE_DEVICES; rocm-smi   # in the worker",
        ),
    )


@log_pattern(r"RuntimeError: Please use HIP_VISIBLE_DEVICES instead of ROCR_VISIBLE_DEVICES")
def of_rays_refusal(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Ray ends where the variable is set that it does not work with."""
    yield Finding(
        "Ray refuses to start: ROCR_VISIBLE_DEVICES is set, and Ray chooses AMD's GPUs by HIP_VISIBLE_DEVICES",
        (record.proof(match, "ROCR_VISIBLE_DEVICES that is not set"),),
        Fix(
            "move the choice to the other variable, in the shell, the image or the job script, on each host",
            command="export HIP_VISIBLE_DEVICES=${HIP_VISIBLE_DEVICES:-$ROCR_VISIBLE_DEVICES}\n"
            "unset ROCR_VISIBLE_DEVICES",
        ),
        record.place,
    )
