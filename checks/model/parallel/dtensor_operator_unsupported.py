"""An operator has no rule for sharded tensors (DTensor).

## What happens

For each operator torch needs a rule that says what comes out when its inputs are sharded. For some there is none:
"NotImplementedError: Operator aten.select.int does not have a sharding strategy registered." Others have a rule that
does not fit the sizes or the placements at hand: "Sharding propagation failed for Op(op=aten.embedding.default, ...)".
Custom operators of extensions never have one, and within torch.inference_mode composite operators such as matmul are
not taken apart, so they have none either.

Collectives are no operators that can be taken apart: one that is given a DTensor ends in "found no DeviceMesh from
dtensor args for c10d.broadcast_". torch itself does so where `set_model_state_dict(..., broadcast_from_rank0=True)` is
given what `model.state_dict()` returned, which is sharded already.

## How to be sure

The message names the operator. A newer torch may have the rule: each release adds some.

## How to mend it

Do this operation on local shards, where that is right (`local_map`, or `x.to_local()` and `DTensor.from_local`), or
on the whole tensor (`x.full_tensor()`); `torch.no_grad` instead of `torch.inference_mode`; register a rule for an
operator of your own with `torch.distributed.tensor.experimental.register_sharding`.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch.distributed.tensor's _sharding_prop.py and _dispatch.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP546", Severity.ERROR)

WHOLE = Fix(
    "have torch split what was read, on all ranks; or load before fully_shard",
    diff="-model.load_state_dict(state)\n"
    "+options = StateDictOptions(full_state_dict=True)   # of torch.distributed.checkpoint.state_dict\n"
    "+set_model_state_dict(model, state, options=options)",
)


@log_pattern(
    r"Operator (?P<none>[\w.]+) does not have a sharding strategy registered"
    r"|Sharding propagation failed (?:for|on)(?: op)? (?:Op\()?(?:op=)?(?P<fails>[\w.]+)"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name the operator."""
    op = match["none"] or match["fails"]
    if "copy_" in op and "loading state_dict for" in record.text:
        yield Finding(
            "load_state_dict copies whole tensors into the parts that fully_shard has left of the parameters",
            (record.proof(match, "a state dict that is sharded alike"),),
            WHOLE,
            record.place,
        )
        return
    yield Finding(
        f"{op} has no sharding rule" if match["none"] else f"the sharding rule of {op} does not fit these inputs",
        (record.proof(match, "an operator with a rule for the placements of its inputs"),),
        Fix(
            "do it on the local shards or on the whole tensor; within inference_mode, use no_grad",
            diff="-y = op(x)\n+y = op(x.full_tensor())   # on all ranks; or, shard by shard:\n"
            "+y = DTensor.from_local(op(x.to_local()), x.device_mesh, x.placements)",
        ),
        record.place,
    )


@log_pattern(r"found no DeviceMesh from dtensor args for (?P<op>c10d\.\w+)")
def of_a_collective(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """A sharded tensor is handed to a collective, by the script or by torch's own loader of state dicts."""
    loads = "set_model_state_dict" in record.text or "_broadcast_tensors" in record.text
    yield Finding(
        "set_model_state_dict is to broadcast whole tensors from rank 0, and is given sharded ones"
        if loads
        else f"{match['op'].partition('.')[2].rstrip('_')} is given a sharded tensor (DTensor)",
        (record.proof(match, "plain tensors on rank 0" if loads else "a plain tensor"),),
        Fix(
            "give it what was read from a file, on rank 0, and an empty dict on the others; a state dict of the "
            "sharded model itself needs no broadcast",
            diff="-set_model_state_dict(model, model.state_dict(), options=options)\n"
            '+state = torch.load("full.pt", map_location="cpu", mmap=True) if rank == 0 else {}\n'
            "+set_model_state_dict(model, state, options=options)",
        )
        if loads
        else Fix("communicate its local shard", diff="-dist.broadcast(x, 0)\n+dist.broadcast(x.to_local(), 0)"),
        record.place,
    )
