"""init_process_group is given a backend that this torch does not have.

## What happens

The backend is `nccl`, `gloo`, `mpi`, `ucc`, `xccl` (torch 2.7 and later), or pairs of device and backend such as
`cpu:gloo,cuda:nccl`. Anything else ends each rank at init_process_group: "Unknown c10d backend type NCLL", "Unknown
backend type ncll". The usual reasons: a misspelt name, a pair in the wrong order, a backend that a plug-in registers
which was not imported (`hccl`: torch_npu, `ccl`: oneccl_bindings_for_pytorch, `smddp`:
smdistributed.dataparallel.torch.torch_smddp), or one that this build of torch was made without. torch before 2.0 says
"type object 'Backend' has no attribute 'SMDDP'".

## How to be sure

The message quotes the name. `dist.is_backend_available("nccl")` tells whether this build has it (torch 2.4 and later).

## How to mend it

Name a backend that exists: `nccl` for NVIDIA and AMD GPUs, `gloo` for CPUs. Leave the name out, and torch 2.6 and
later chooses by the device.

## Versions and sources

Holds for torch 2.2 to 2.13; seen with torch 2.13 CPU. Source: torch/distributed/distributed_c10d.py, `BackendConfig`,
`_new_process_group_helper`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, closest, log_pattern

AILMENT = Ailment("DDP443", Severity.ERROR)

KNOWN = ("nccl", "gloo", "mpi", "ucc", "xccl")
PLUGINS = {
    "hccl": "torch_npu",
    "ccl": "oneccl_bindings_for_pytorch",
    "smddp": "smdistributed.dataparallel.torch.torch_smddp",
}


@log_pattern(
    r"Unknown (?:c10d )?backend type (?P<type>[\w:,.-]+)"
    r"|Unknown backend '(?P<name>[^'\n]+)'\. Specify a 'device:backend'"
    r"|ValueError: Invalid backend: '(?P<old>[^'\n]+)'"
    r"|type object 'Backend' has no attribute '(?P<attribute>[A-Z][A-Z0-9_]{1,30})'"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name the backend that was meant, or the plug-in that brings it."""
    name = (match["type"] or match["name"] or match["old"] or match["attribute"]).lower()
    meant = closest(name, KNOWN)
    if name in PLUGINS:
        fix = Fix("import the plug-in that registers it", diff=f"+import {PLUGINS[name]}")
    elif name in KNOWN:
        fix = Fix("this torch was built without it: choose another", diff='+dist.init_process_group("gloo")')
    else:
        fix = Fix("name a backend that exists", diff=f'+dist.init_process_group("{meant or "nccl"}")')
    yield Finding(
        f"this torch has no backend {name!r}" + (f": did you mean {meant!r}?" if meant and meant != name else ""),
        (record.proof(match, " or ".join(KNOWN[:2])),),
        fix,
        record.place,
    )
