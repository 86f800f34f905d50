"""The backend does not have this collective or reduction.

## What happens

Gloo has no average and, before torch 2.5, no reduce_scatter; it cannot run ReduceOp.PREMUL_SUM. The call is refused at
once: "Cannot use ReduceOp.AVG with Gloo", "Cannot use ReduceOp.BAND with NCCL", "ProcessGroupGloo does not support
reduce_scatter". Code that was written for NCCL meets it in a test on the CPU, or where `backend="cuda:nccl,cpu:gloo"`
sends CPU tensors to gloo. All but NCCL refuse `barrier(device_ids=...)`: "Function argument device_ids not supported
for the selected backend gloo".

## How to be sure

`print(dist.get_backend(group), tensor.device)` before the call. On the device of the tensor decides which backend
works.

## How to mend it

Sum, then divide by the world size. In place of reduce_scatter use all_reduce and take the own share. Use NCCL for
tensors on GPUs.

## Versions and sources

Holds for torch 2.2 and later, each with its own list: torch 2.13's gloo averages and has reduce_scatter. Source:
torch's ProcessGroupGloo.cpp, Backend.hpp; seen with torch 2.2.2 and 2.13 CPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP791", Severity.ERROR)

COLLECTIVE = r"(?:all|reduce|scatter|gather|broadcast|send|recv|barrier)\w*"


@log_pattern(
    r"Cannot use ReduceOp\.(?P<op>\w{2,12}) with (?P<with>[A-Z]\w{1,10})\b"
    r"|(?P<smddp>SMDDP) does not support: (?P<lacks>\w{1,40})"
    rf"|(?:Backend (?P<named>\w+)|ProcessGroup(?P<old>Gloo|MPI|UCC|NCCL)) does not support (?P<what>{COLLECTIVE})"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name the backend and what it lacks."""
    if match["smddp"]:
        yield _of_sagemaker(record, match)
        return
    backend = (match["with"] or match["named"] or match["old"]).lower()
    what = f"ReduceOp.{match['op']}" if match["op"] else match["what"]
    yield Finding(
        f"{backend} does not have {what}",
        (record.proof(match, "a collective that this backend has, or tensors of another backend's device"),),
        AVERAGE if match["op"] == "AVG" else GATHERED if match["op"] else WHOLE,
        record.place,
    )


@log_pattern(r"Function argument device_ids not supported for the selected backend (?P<backend>\w+)")
def of_a_barrier(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """barrier() takes device_ids for NCCL alone."""
    yield Finding(
        f"barrier(device_ids=...) is for NCCL, and the group's backend is {match['backend']}",
        (record.proof(match, "barrier() without device_ids"),),
        Fix(
            "leave device_ids out; for NCCL name the device once, in init_process_group",
            diff="-dist.barrier(device_ids=[local_rank])\n+dist.barrier()",
        ),
        record.place,
    )


AVERAGE = Fix(
    "sum, and divide by the world size",
    diff="-dist.all_reduce(x, op=dist.ReduceOp.AVG)\n+dist.all_reduce(x)\n+x /= dist.get_world_size()",
)
GATHERED = Fix(
    "gather the tensors, and compute it on each rank",
    diff="-dist.all_reduce(x, op=dist.ReduceOp.BAND)\n"
    "+parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]\n+dist.all_gather(parts, x)\n"
    "+x = functools.reduce(torch.bitwise_and, parts)   # or the operation that is meant",
)
WHOLE = Fix(
    "use NCCL for tensors on GPUs; on the CPU reduce the whole and take the own share",
    diff="-dist.reduce_scatter_tensor(share, whole)\n+dist.all_reduce(whole)\n"
    "+share.copy_(whole.chunk(dist.get_world_size())[dist.get_rank()])",
)


def _of_sagemaker(record: Record, match: re.Match[str]) -> Finding:
    """SageMaker's own library has some collectives, for tensors of some types, and sums alone."""
    return Finding(
        f"smddp, SageMaker's library of collectives, does not have what a collective asks for ({match['lacks']})",
        (record.proof(match, "a collective that smddp has: sums of floating point tensors on GPUs"),),
        Fix(
            "use NCCL, which the same image has, for the group; smddp is for the gradients alone",
            diff="-dist.init_process_group('smddp')\n+dist.init_process_group('nccl')\n"
            "-distribution={'smdistributed': {'dataparallel': {'enabled': True}}}\n"
            "+distribution={'torch_distributed': {'enabled': True}}   # of the estimator",
        ),
        record.place,
    )
