"""Sharded tensors of different device meshes meet in one operation.

## What happens

Each sharded tensor (DTensor) belongs to a mesh of ranks, and one operation takes tensors of one mesh. Where a model is
sharded in several ways (fully_shard over `dp`, tensor parallel layers over `tp`, experts over a mesh of their own),
some parameters are on one mesh and others on another, and what goes through all of them together fails: clipping by the
common norm, which stacks the norms, or an optimizer's foreach. torch says "All operands in aten.stack.default must have
the same mesh", "Cannot run aten.add.Tensor on inputs with different meshes", or, in older versions, "DTensor does not
support cross-mesh operation yet".

## How to be sure

The message names both meshes. Print `{name: parameter.device_mesh}`: two groups appear, and one of them has been
sharded over only one of the dimensions.

## How to mend it

Give every parameter both shardings: apply the tensor parallel plan to all modules that have parameters (norms as
`SequenceParallel` or replicated), then fully_shard the whole model over `mesh["dp"]` of the same root mesh. Where two
meshes are meant, as for experts, compute the norm for each mesh, take `full_tensor()` of both, and scale all gradients
by the common norm; give the optimizer `foreach=False`, or one group of parameters for each mesh.

## Versions and sources

The wordings are those of torch 2.5 to 2.13: torch/distributed/tensor, `_dispatch.py`, `_sharding_prop.py` and `_ops`.
Seen in pytorch/torchtitan#1325 and meta-pytorch/torchtune#2420.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP1577", Severity.ERROR)
CLIPS = re.compile(r"clip_grad|_get_total_norm|get_total_norm")
BY_MESH = Fix(
    "take the norm for each mesh, and scale all gradients by the common one",
    diff="-torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
    "+norms = [torch.nn.utils.get_total_norm([p.grad for p in group]).full_tensor() for group in groups_by_mesh]\n"
    "+norm = torch.linalg.vector_norm(torch.stack(norms))\n"
    "+for group in groups_by_mesh:\n+    torch.nn.utils.clip_grads_with_norm_(group, 1.0, norm)",
)
ONE = Fix(
    "shard all parameters over one root mesh, or keep those of each mesh apart: one group of the optimizer for each",
    diff="+mesh = init_device_mesh('cuda', (dp, tp), mesh_dim_names=('dp', 'tp'))\n"
    "+parallelize_module(model, mesh['tp'], plan)   # a plan for every module that has parameters\n"
    "+fully_shard(model, mesh=mesh['dp'])",
)


@log_pattern(
    r"All operands in (?P<stacked>[\w.:]{1,80}) must have the same mesh"
    r"|Cannot run (?P<run>[\w.:]{1,80}) on inputs with different meshes"
    r"|DTensor does not support cross-mesh operation on (?P<on>[\w.:]{1,80}?)!"
    r"|(?P<older>\w{1,40}[.:][\w.:]{1,80}): DTensor does not support cross-mesh operation"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name the operator; clipping by the common norm has a way of its own."""
    operator = match["stacked"] or match["run"] or match["on"] or match["older"]
    clips = CLIPS.search(record.text)
    yield Finding(
        f"{operator} is given sharded tensors of different meshes"
        + (": the gradients are clipped together, and some parameters are on another mesh" if clips else ""),
        (record.proof(match, "tensors of one mesh"),),
        BY_MESH if clips else ONE,
        record.place,
    )
