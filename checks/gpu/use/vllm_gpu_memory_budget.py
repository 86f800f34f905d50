"""vLLM wants more of a GPU's memory than the training beside it leaves.

## What happens

vLLM takes a share of the whole GPU (`gpu_memory_utilization`, 0.9 by default) for weights and cache. On a GPU where a
training, or another process, holds memory already, it refuses to start: "Free memory on device cuda:1 (19.77/22.05 GiB)
on startup is less than desired GPU memory utilization (0.9, 19.84 GiB)"; where the share is smaller than weights and
activations: "No available memory for the cache blocks"; and where others take memory while it starts: "CUDA out of
memory" below `_allocate_kv_cache`. An engine that slept while its GPU was trained on takes its memory back (`wake_up`):
"CUDA Error: out of memory at .../cumem_allocator.cpp:62". The ranks that train wait for their generator until the
time-out. "Engine core initialization failed. See root cause above" only follows.

## How to be sure

`nvidia-smi` lists the processes on that GPU; the message has both numbers.

## How to mend it

Give vLLM a share that is free: below the free part of the GPU. With trl, `vllm_gpu_memory_utilization=0.3` and
`vllm_enable_sleep_mode=True`; before `wake_up` the trainer moves its parameters, gradients and optimizer to the CPU and
gives back what torch has kept (`torch.cuda.empty_cache()`); or a GPU of its own for generation. For "No available
memory" raise the share, or lower `max_model_len`.

## Versions and sources

Holds for vLLM 0.6 to 0.15 with torch 2.4 to 2.13. Source: vLLM, v1/worker/utils.py and v1/core/kv_cache_utils.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Role, Severity, log_pattern

AILMENT = Ailment("DDP242", Severity.ERROR)
FULL = r"CUDA out of memory\. Tried to allocate"
TAKES = re.compile(
    r"vllm[/\\][\s\S]{0,1500}in (?:_?allocate_kv_cache|_?initialize_kv_caches?|determine_\w*available\w*)\b"
)


@log_pattern(
    r"Free memory on device (?P<device>\w+:\d+ )?\((?P<free>[\d.]+)/(?P<all>[\d.]+) GiB\) on startup is less than "
    r"desired GPU memory utilization \((?P<share>[\d.]+), (?P<wanted>[\d.]+) GiB\)"
)
def at_its_start(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Compute the share that is free."""
    free, every = float(match["free"]), float(match["all"])
    share = int(max(free / every - 0.05, 0.0) * 20) / 20 if every else 0.0
    yield Finding(
        f"vLLM wants {match['wanted']} GiB of a GPU on which {match['free']} of {match['all']} GiB are free",
        (record.proof(match, f"gpu_memory_utilization below {free / every if every else 0:.2f}"),),
        Fix(
            "give vLLM a share that is free, or a GPU of its own",
            command="nvidia-smi --query-compute-apps=pid,used_memory,gpu_uuid --format=csv",
            diff=f"-gpu_memory_utilization={match['share']}\n+gpu_memory_utilization={share}" if share else "",
        ),
        record.place,
    )


@log_pattern(r"No available memory for the cache blocks\. Try increasing")
def for_its_cache(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Its weights and activations fill the share."""
    yield Finding(
        "vLLM's share of the GPU holds its weights and nothing else: no memory is left for its cache",
        (record.proof(match, "a share with room for weights, activations and some cache"),),
        Fix(
            "raise the share as far as the training beside it allows, or make the sequences shorter",
            diff="-LLM(model, gpu_memory_utilization=0.3)\n"
            "+LLM(model, gpu_memory_utilization=0.5, max_model_len=4096, enforce_eager=True)",
        ),
        record.place,
    )


@log_pattern(rf"{FULL}", supersedes=("cuda-oom",))
def of_its_own_memory(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Where vLLM itself takes the memory, its share is too large beside what the GPU holds already."""
    if not record.frames or not TAKES.search(record.text):
        return
    yield Finding(
        "vLLM takes a share of the GPU, and the GPU is full before it has it",
        (record.proof(match, "a share that is free, with room for what the GPU holds already"),),
        Fix(
            "give vLLM a smaller share, or a GPU that no rank trains on",
            diff="-LLM(model)   # gpu_memory_utilization=0.9; trl: vllm_gpu_memory_utilization\n"
            "+LLM(model, gpu_memory_utilization=0.5, max_model_len=4096)",
            command="nvidia-smi --query-compute-apps=pid,used_memory,gpu_uuid --format=csv",
        ),
        record.place,
    )


@log_pattern(r"Engine core initialization failed\. See root cause above", role=Role.CONSEQUENCE)
def of_its_parent(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """The error of the engine's own process stands above."""
    yield Finding(
        "vLLM's engine did not start: its own process says why, above",
        (record.proof(match, "the error of EngineCore"),),
        Fix("read the first error of EngineCore", command="grep -n 'EngineCore.*Error' LOG | head -5"),
        record.place,
    )


@log_pattern(r"CUDA Error: out of memory at \S{0,200}cumem_allocator\.cpp", supersedes=("cuda-oom",))
def when_it_wakes_up(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Memory that vLLM gave up while it slept is to be mapped once more, and the trainer has it."""
    yield Finding(
        "vLLM takes its memory (back), and the training on the same GPU, or another process, holds it",
        (record.proof(match, "room for gpu_memory_utilization of the whole GPU"),),
        Fix(
            "let the trainer give its memory up first, and vLLM take a smaller share",
            diff="+model.cpu(); torch.cuda.empty_cache()   # and the optimizer's state\n llm.wake_up()\n"
            "-LLM(model, gpu_memory_utilization=0.6, enable_sleep_mode=True)\n"
            "+LLM(model, gpu_memory_utilization=0.4, enable_sleep_mode=True)",
            command="... actor_rollout_ref.actor.fsdp_config.param_offload=True actor_rollout_ref.actor.fsdp_config."
            "optimizer_offload=True actor_rollout_ref.rollout.gpu_memory_utilization=0.4   # verl",
        ),
        record.place,
    )
