"""A dimension that the ranks share out between them does not divide by their number.

## What happens

Context parallelism gives each rank a piece of each sequence, and its pieces have to be of one length: "Tensor size
along dimension to be sharded must be divisible by mesh size", "sequence length must be divisible by ...". Megatron cuts
each sequence into twice as many pieces as there are ranks. FSDP2 pads where it shards the first dimension of a
parameter, but not another one that `shard_placement_fn` chooses: "FSDP does not support uneven sharding on dim 1:
torch.Size([1024, 1000]) (world size: 3)".

## How to be sure

The message has the size and the number of ranks, or the batch's shape and the mesh have them.

## How to mend it

Pad the sequences of a batch to a multiple of the ranks that share one (twice that for Megatron and torch's
context_parallel, which balance the halves), or take another number of ranks for that dimension. For FSDP2, shard
dimension 0 where the other one leaves a rest.

## Versions and sources

Measured with fully_shard of torch 2.13, gloo, two ranks. Source: torch/distributed/fsdp/_fully_shard/_fsdp_param.py;
huggingface/diffusers#12536. Holds for torch 2.6 to 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP489", Severity.ERROR)


@log_pattern(
    r"FSDP does not support uneven sharding on dim (?P<dim>\d+): torch\.Size\(\[(?P<shape>[\d, ]{1,80})\]\) "
    r"\(world size: (?P<ranks>\d+)\)"
)
def of_a_parameter(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Shard another dimension where the chosen one leaves a rest."""
    dim, ranks = int(match["dim"]), int(match["ranks"])
    size = match["shape"].replace(" ", "").split(",")[dim]
    yield Finding(
        f"fully_shard is to share out dimension {dim} of a parameter, {size}, over {ranks} ranks: it leaves a rest",
        (record.proof(match, f"a multiple of {ranks}, or dimension 0, which is padded"),),
        Fix(
            "shard that dimension only where it divides",
            diff=f"-fully_shard(model, shard_placement_fn=lambda p: Shard({dim}))\n"
            f"+fully_shard(model, shard_placement_fn=lambda p: Shard({dim}) if p.ndim > {dim} and "
            f"p.shape[{dim}] % {ranks} == 0 else Shard(0))",
        ),
        record.place,
    )


@log_pattern(
    r"Tensor size along dimension to be sharded must be divisible by mesh size"
    r"|(?:[Ss]equence|[Ss]eq\w*|context)[ _]?(?:length|len|dim)\w*(?: \(?(?P<length>\d+)\)?)? (?:must|should|has to"
    r"|is not)(?: be)? (?:evenly )?(?:divisible by|a multiple of) [^\n.]{0,60}?(?:parallel|world_size|world size|mesh"
    r"|\bcp\b|cp_size|sp_size|ulysses|ranks|number of GPUs|processes)"
)
def of_a_sequence(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Each rank of a context, or sequence, parallel group gets a piece of one length."""
    length = f" of {match['length']}" if match["length"] else ""
    yield Finding(
        f"a sequence{length} does not divide over the ranks that share it",
        (record.proof(match, "a multiple of the ranks of the group, twice that for torch and Megatron"),),
        Fix(
            "pad each batch to a multiple of the ranks, with what the loss leaves out",
            diff="+multiple = 2 * context_parallel_size\n"
            "+tokens = F.pad(tokens, (0, -tokens.shape[1] % multiple), value=pad_id)\n"
            "+labels = F.pad(labels, (0, -labels.shape[1] % multiple), value=-100)",
        ),
        record.place,
    )
