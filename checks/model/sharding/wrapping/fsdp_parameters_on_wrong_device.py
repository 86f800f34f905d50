"""Parameters of an FSDP module lie on another device than FSDP works on.

## What happens

FSDP1 gathers and reduces on one device for each rank. A module that was wrapped on the CPU without `device_id`, a head
that was added or moved afterwards, or `sync_module_states=True` with a model on the CPU is refused: "An FSDP-managed
module unexpectedly has parameters on cpu", "The module has CPU parameters or buffers when `sync_module_states=True`". A
model that was put on `cuda` before `set_device` lies on GPU 0: "Inconsistent compute device and `device_id` on rank 1:
cuda:0 vs cuda:1". fully_shard (FSDP2) with CPUOffloadPolicy wants the parameters on the CPU: "FSDP parameters should be
materialized on CPU when enabling CPU offloading".

DeepSpeed's ZeRO 3 joins the parameters of a group into one tensor, and fails with a bare AssertionError where they lie
on several devices: "assert len(set(t.device for t in tensors)) == 1", in `defragment`.

## How to be sure

`Counter(p.device for p in model.parameters())` before wrapping; with CPU offload all of them are on the CPU.

## How to mend it

Choose the GPU first, `torch.cuda.set_device(local_rank)`, and pass `device_id=torch.cuda.current_device()`: FSDP then
moves what it wraps. Do not move the model after wrapping; with CPU offload do not call `.cuda()` at all.

## Versions and sources

Holds for FSDP1 in torch 2.2 to 2.13. Source: torch/distributed/fsdp, `_init_utils.py` and `_runtime_utils.py`;
deepspeed/runtime/zero/stage3.py, `defragment`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP587", Severity.ERROR)


@log_pattern(
    r"An FSDP-managed module (?P<offload>with parameter CPU offloading enabled |unexpectedly )has parameters on "
    r"(?P<device>\w[\w:]*)"
    r"|The module has CPU parameters(?: or buffers)? when `?sync_module_states=True"
    r"|To support a module with both CPU and GPU params, please pass in device_id"
    r"|Inconsistent compute device and `device_id` on rank \d+: (?P<other>\S+) vs (?P<own>\S+)"
    r"|(?P<joined>assert len\(set\(t\.device for t in tensors\)\) == 1)"
    r"|FSDP only supports single device modules,? but got params on (?P<several>\{[^}\n]*\})"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Report where the parameters are, and where FSDP wants them."""
    if (match["offload"] or "").startswith("with"):
        yield Finding(
            f"the parameters are offloaded to the CPU by FSDP, and the model was moved to {match['device']}",
            (record.proof(match, "parameters that stay on the CPU"),),
            Fix(
                "leave an offloaded model where FSDP put it",
                diff=" model = FSDP(model, cpu_offload=CPUOffload(offload_params=True))\n-model.cuda()",
            ),
            record.place,
        )
        return
    if match["joined"]:
        yield Finding(
            "ZeRO 3 joins the parameters, and they lie on several devices",
            (record.proof(match, "all parameters on one device"),),
            Fix(
                "bring the whole model to one device before DeepSpeed is given it",
                diff="+model = model.to('cpu')   # device_map and single .cuda() calls left out\n"
                " engine, *_ = deepspeed.initialize(model=model, config=config)",
                command="python -c 'from collections import Counter; print(Counter(p.device for p in "
                "model.parameters()))'   # this line, above it",
            ),
            record.place,
        )
        return
    device = match["device"] or match["several"] or (match["other"] and f"{match['other']}, not {match['own']}")
    yield Finding(
        f"FSDP finds parameters on {device}"
        if device
        else "FSDP finds parameters on the CPU, and is given no GPU for them",
        (record.proof(match, "all parameters on the GPU of this rank"),),
        Fix(
            "choose the GPU of this rank, and let FSDP move the model to it",
            diff="+torch.cuda.set_device(local_rank)\n-model = FSDP(model)\n"
            "+model = FSDP(model, device_id=torch.cuda.current_device())",
        ),
        record.place,
    )


@log_pattern(
    r"FSDP parameters should be materialized on CPU when enabling CPU offloading\.[^\n\[]{0,200}"
    r"(?:\[\('(?P<name>[\w.]{1,200})', device\(type='(?P<device>\w+)')?"
)
def of_offloaded_shards(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """FSDP2 keeps the shards on the CPU, and something gave them memory on the GPU."""
    name, device = match["name"] or "a parameter", match["device"] or "another device"
    yield Finding(
        f"fully_shard offloads the parameters to the CPU, and {name} is on {device}",
        (record.proof(match, "sharded parameters on the CPU; fully_shard brings them to the GPU by itself"),),
        Fix(
            "give the model its memory, and load its weights, on the CPU; do not move it afterwards",
            diff=f"-model.to_empty(device='{device}')\n+model.to_empty(device='cpu')\n"
            "+set_model_state_dict(model, state, options=StateDictOptions(full_state_dict=True, cpu_offload=True))\n"
            f"-model.to('{device}')",
        ),
        record.place,
    )
