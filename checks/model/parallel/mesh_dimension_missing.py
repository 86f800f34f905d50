"""A dimension of the device mesh is asked for by a name that the mesh does not have.

## What happens

Tensor parallelism, sharding and replicas each take the dimension of the device mesh that has their name:
`mesh["tp"]`. Where the mesh was made without it, torch says "Invalid mesh_dim_names ('dp_shard_cp',) specified. Valid
mesh_dim_names are ['tp']" or "Mesh dimension 'dp' does not exist". Frameworks make a dimension only where its size is
more than 1: torchtitan says "Mesh 'tp' is not available", Accelerate "FSDP is enabled but the device mesh is ('tp',),
which has no dimension for FSDP to shard across". All ranks end there, before the first step.

## How to be sure

The message names both. Print `mesh.mesh_dim_names` where the mesh is made, and compare with the name that is asked for.

## How to mend it

Make the mesh with that dimension, its size may be 1, or leave the parallelism out that asks for it. In Accelerate and
torchtitan the sizes of the configuration decide: give the dimension a size of more than 1 (`dp_shard_size`,
`tensor_parallel_degree`), or switch the plan off that uses it.

## Versions and sources

Holds for torch 2.2 to 2.13: torch/distributed/device_mesh.py; torchtitan, distributed/parallel_dims.py; Accelerate 1.10
and later, parallelism_config.py. Seen in huggingface/accelerate#3798, pytorch/torchtitan#2184.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Failed,
    Finding,
    Fix,
    Place,
    Record,
    Severity,
    log_pattern,
    place,
    watch,
)

AILMENT = Ailment("DDP1512", Severity.ERROR)
SAID = (
    r"Invalid mesh_dim_names? \(?(?P<asked>[^)\n]{1,120}?),?\)? specified\. Valid mesh_dim_names are "
    r"[\[(](?P<has>[^\])\n]{0,200}?),?[\])]"
    r"|Mesh dimension (?P<one>'[\w.-]+') does not exist\.[\"', ]*Available mesh dimensions are: "
    r"mesh_dim_names=\((?P<those>[^)\n]{0,200}?),?\)"
)
TITAN = r"ValueError: Mesh (?P<titan>'[\w.-]+') is not available"
NO_SHARDS = r"FSDP is enabled but the device mesh is \((?P<left>[^)\n]{0,200}?),?\), which has no dimension for FSDP"
FIX = Fix(
    "make the mesh with that dimension, of size 1 where nothing is to be shared out over it",
    diff="-mesh = init_device_mesh('cuda', (world_size,), mesh_dim_names=('tp',))\n"
    "+mesh = init_device_mesh('cuda', (world_size // tp, tp), mesh_dim_names=('dp', 'tp'))",
)
ACCELERATE = Fix(
    "leave ranks for FSDP to share the model over, or start it without an FSDP configuration",
    diff="-ParallelismConfig(tp_size=8)\n+ParallelismConfig(tp_size=2, dp_shard_size=4)",
)
DEGREES = Fix(
    "give the dimension a size of more than 1, or switch the parallelism off that asks for it",
    command="... --parallelism.tensor_parallel_degree=2   # the product of all degrees is the number of ranks",
)


@watch(Failed)
def while_training(event: Failed) -> Iterator[Finding]:
    """Read both names from torch's own exception."""
    if match := re.search(SAID, event.said):
        proof = Evidence(event.said, "a name of the mesh's own", f"rank {event.rank}")
        yield _finding(match, proof, place(event.site, rank=event.rank), "")


@log_pattern(f"{SAID}|{TITAN}|{NO_SHARDS}", plain=True)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read both names; a framework that makes only dimensions of more than one rank names one."""
    proof = record.proof(match, "a name of the mesh's own")
    if name := match["titan"]:
        told = f"the device mesh has no dimension {name}: torchtitan makes only those of more than one rank"
        yield Finding(told, (proof,), DEGREES, record.place)
    elif match["left"] is not None:
        told = f"FSDP is to share the model out, and the device mesh has only {match['left']}"
        yield Finding(told, (proof,), ACCELERATE, record.place)
    else:
        yield _finding(match, proof, record.place, record.text)


def _finding(match: re.Match[str], proof: Evidence, where: Place, text: str) -> Finding:
    """Return Accelerate's own fix where its code asked for the dimension."""
    asked, has = (match["asked"] or match["one"]).strip(), match["has"] if match["asked"] else match["those"]
    return Finding(
        f"the device mesh has no dimension {asked}: it has {has.strip() or 'none'}",
        (proof,),
        ACCELERATE if "dp_shard" in asked and re.search(r"accelerate[/\\.]", text) else FIX,
        where,
    )
