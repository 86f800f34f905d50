"""Parts of the model are on devices of different types.

## What happens

DDP requires that all parameters of a module are on one type of device and raises otherwise:
"DistributedDataParallel's input module must be on the same type of devices, but input module parameters locate in
{...}". It broadcasts buffers at every forward: buffers that stayed on the CPU stop the NCCL backend, which has no
support for CPU tensors.

Usual causes: a part built under `torch.device("meta")` or `init_empty_weights()` that never got its memory; a part
attached after `model.to(device)`; `device_map="auto"`.

## How to be sure

`{p.device.type for p in model.parameters()} | {b.device.type for b in model.buffers()}` has one element in a correct
model. ddpdoctor builds the model on each rank, sorts its parameters and buffers by type of device and names them. It
is an error where the parameters differ or something is on `meta`, and a warning where only buffers differ. Several
GPUs within one rank's model are not reported: DDP allows them.

apex's optimizers and DeepSpeed's FusedAdam compute on the GPU: "expected input to be on cuda" comes where the
parameters that they step lie on the CPU, as with the optimizer offload of ZeRO.

## How to mend it

- Give parts on `meta` memory and values: `module.to_empty(device=...)` and then its `reset_parameters()`, or load the
  checkpoint with `assign=True`.
- Then move the whole model once, `model.to(device)`, after everything is attached and before wrapping.
- Leave `device_map="auto"` out where each rank is to hold the whole model.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU and `meta`. The quoted words are those that DDP's constructor
raises.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Record, Severity, Table, log_pattern, probe

from .._words import listed

if TYPE_CHECKING:
    from ddpdoctor.check import Buffer, ModelExam, Parameter

AILMENT = Ailment("DDP506", Severity.ERROR)


@probe
def as_built(model: ModelExam) -> Iterator[Finding]:
    """Sort parameters and buffers by the type of their device."""
    for rank, built in enumerate(model.ranks):
        homes: dict[str, list[str]] = {}
        tensors: tuple[Parameter | Buffer, ...] = (*built.parameters, *built.buffers)
        for item in tensors:
            homes.setdefault(item.device.partition(":")[0], []).append(item.name)
        if len(homes) < 2:  # noqa: PLR2004 - two are mixed
            continue
        of_parameters = {parameter.device.partition(":")[0] for parameter in built.parameters}
        yield Finding(
            f"{built.kind} is on {' and '.join(sorted(homes))} at once",
            tuple(
                Evidence(f"{kind}: {listed(names)}", "one type of device", f"rank {rank}")
                for kind, names in homes.items()
            ),
            Fix(
                "give parts on meta memory and values, and move the whole model once, before wrapping",
                diff="+model.head.to_empty(device=device)\n+model.head.reset_parameters()\n"
                "+model.to(device)\n model = DDP(model)",
            ),
            severity=Severity.ERROR if len(of_parameters) > 1 or "meta" in homes else Severity.WARNING,
            table=Table(("device", "tensors"), tuple((kind, len(names)) for kind, names in homes.items())),
        )
        return


@log_pattern(
    r"input module must be on the same type of devices, but input module parameters locate in (\{[^}\n]*\}"
    r"|\S[^\n]*)"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Yield the name of the types of devices that DDP found."""
    yield Finding(
        f"parts of the model are on devices of different types: {match[1].rstrip('.')}",
        (record.proof(match, "one type of device"),),
        Fix("move the whole model once, after everything is attached", diff="+model.to(device)\n model = DDP(model)"),
        record.place,
    )


@log_pattern(r"RuntimeError: expected input to be on cuda")
def of_a_fused_optimizer(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """The optimizers of apex, and FusedAdam, take parameters on a GPU alone."""
    if "multi_tensor_apply" not in record.text:
        return
    offloads = "deepspeed" in record.text
    yield Finding(
        "the fused optimizer computes on the GPU, and its parameters are on the CPU"
        + (": ZeRO offloads the optimizer" if offloads else ""),
        (record.proof(match, "parameters on a GPU"),),
        Fix(
            "take DeepSpeed's optimizer for the CPU, or leave the offload out",
            diff="-optimizer = FusedAdam(model.parameters())\n+optimizer = DeepSpeedCPUAdam(model.parameters())   # of "
            "deepspeed.ops.adam",
        )
        if offloads
        else Fix(
            "move the model to its GPU, then make the optimizer", diff="+model.to(device)\n optimizer = FusedAdam(...)"
        ),
        record.place,
    )
