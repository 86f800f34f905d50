"""The sizes of the parallel dimensions do not multiply to the number of ranks.

## What happens

Data, tensor, pipeline and context parallelism divide the ranks among them, so their sizes multiply to the world size,
and the model's layers and heads have to be divisible by them. Where they do not: "world_size (8) is not equal to
tensor_model_parallel_size (1) x pipeline_model_parallel_size (1)", "world size (6) is not divisible by 4", "Number of
layers should be divisible by the pipeline-model-parallel size", "Mesh should not be bigger than default world size",
"Invalid parallel dims". Every rank says so, before any training. Where nobody asks, a rank gets a part of a head:
"shape '[4, 178, -1, 128]' is invalid for input of size 45568". A view that counts all heads does not fit the share of a
rank either: `view(bs, seqlen, self.n_heads, self.head_dim)`.

## How to be sure

The numbers stand in the message; the launcher's `--nnodes` times `--nproc_per_node` is the world size.

## How to mend it

Change the launch or the sizes, so that their product is the world size.

## Versions and sources

Holds for Megatron-LM and frameworks on it, torchtitan, vLLM, and torch 2.2 to 2.13 (torch.distributed.device_mesh).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Log, Record, Severity, log_pattern

from ._heads import HEADS, TENSOR_PARALLEL, share_of_heads, told_of_heads

AILMENT = Ailment("DDP431", Severity.ERROR)
LAYERS = r"(?:[Nn]umber of layers|num_layers) should be divisible by (?:the )?pipeline[-_]model[-_]parallel[-_ ]size"

ALONE = r"world[ _]size \(?1\)? is not (?:divisible by|equal to)|default world size 1,"


@log_pattern(
    r"world_size \(\d+\) is not equal to tensor_model_parallel_size \(\d+\) x pipeline_model_parallel_size \(\d+\)"
    r"|world[ _]size \(\d+\) is not divisible by [^\n]{1,120}"
    r"|Mesh should not be bigger than default world size[^\n]{0,80}"
    r"|Invalid parallel dims: [^\n]{0,160}!= WORLD_SIZE\(?\d+\)?"
    r"|mpiSize == tp \* pp"
    r"|World size \d+ must be divisible by the product of all parallel degrees[^\n.]{0,60}"
    r"|World size \(\d+\) must be divisible by (?:tp|expt_tp)\*[^\n]{1,60}"
    r"|ParallelismConfig total_size \(\d+\) does not match num_processes \(\d+\)"
    r"|expert_parallel_degree \(\d+\) must divide [^\n]{1,60}\(\d+\)"
    r"|AssertionError: (?P<bare>\d+ is not divisible by \d+)"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Quote the numbers; those of a bare assertion where Megatron's own function makes it."""
    if match["bare"] and "ensure_divisibility" not in record.text:
        return
    if re.search(ALONE, match[0]):
        yield _alone(record, match)
        return
    yield Finding(
        f"the parallel sizes do not fit the launch: {match[0].strip()}",
        (record.proof(match, "data x tensor x pipeline x context parallel sizes = nnodes x nproc_per_node"),),
        Fix(
            "make the product of the sizes the number of ranks, here or in the launch",
            command="torchrun --nnodes=NODES --nproc_per_node=RANKS train.py   # NODES * RANKS = product of the sizes",
        ),
        record.place,
    )


def _alone(record: Record, match: re.Match[str]) -> Finding:
    return Finding(
        f"one process was started, or each takes itself for the only one: {match[0].strip()}",
        (record.proof(match, "a world size that the parallel sizes divide"),),
        Fix(
            "start a process for each GPU by a launcher, or by as many tasks of Slurm",
            command="torchrun --nproc_per_node=gpu train.py\n#SBATCH --ntasks-per-node=8   # with srun python train.py",
        ),
        record.place,
    )


@log_pattern(LAYERS)
def of_layers(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Each stage of Megatron's pipeline takes as many layers, unless the first and the last are told otherwise."""
    yield Finding(
        "the number of layers cannot be divided by the pipeline parallel size",
        (record.proof(match, "a pipeline size that divides the layers, or stages of different sizes"),),
        Fix(
            "take a size that divides the layers; or give the first and the last stage other numbers, so that the rest "
            "divides by the stages between them",
            command="... --decoder-first-pipeline-num-layers 11 --decoder-last-pipeline-num-layers 11"
            "   # e.g. 46 layers in 4 stages: 11, 12, 12, 11",
        ),
        record.place,
    )


@log_pattern(r"[Ff]irst dimension of the tensor should be divisible by tensor parallel size")
def of_a_sequence(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Sequence parallelism shares the sequence out among the ranks of tensor parallelism."""
    yield Finding(
        "the length of the sequence cannot be divided by the tensor parallel size, and sequence parallelism divides it"
        if "sequence_parallel" in record.text
        else "first dimension of the tensor cannot be divided by the tensor parallel size",
        (record.proof(match, "a length that is a multiple of the tensor parallel size"),),
        Fix(
            "pad the sequences to a multiple of it, also the last batch of the evaluation; or leave sequence "
            "parallelism out",
            command="... --seq-length 4096   # a multiple of the tensor parallel size; or without --sequence-parallel",
            diff="+length = -(-tokens.size(1) // tensor_parallel_size) * tensor_parallel_size\n"
            "+tokens = torch.nn.functional.pad(tokens, (0, length - tokens.size(1)), value=pad_id)",
        ),
        record.place,
    )


@log_pattern(
    r"_dim_group_(?:infos|names)\[(?:mesh_dim|0)\][^\n]{0,200}\n(?:[^\n]{0,200}\n){0,2}?[^\n]{0,40}"
    r"IndexError: list index out of range"
)
def of_a_mesh_without_this_rank(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """A rank that is not in a mesh has no groups of it; torch then finds nothing under the dimension's number."""
    who = "this rank" if record.rank is None else f"rank {record.rank}"
    yield Finding(
        f"{who} is not in the device mesh that it uses: the mesh has fewer ranks than were started",
        (record.proof(match, "a mesh of as many ranks as the world size"),),
        Fix(
            "let the sizes of the mesh multiply to the world size, over all hosts",
            diff="+replicas = dist.get_world_size() // shards\n"
            " mesh = init_device_mesh('cuda', (replicas, shards), mesh_dim_names=('replicate', 'shard'))",
        ),
        record.place,
    )


@log_pattern(
    r"(?P<what>(?:[Tt]otal )?[Nn]um(?:ber of |_)(?:attention[ _])?(?:heads|query_groups|key_value_heads|experts)"
    r"|n_physical_experts|(?:KV )?[Aa]ttention head count"
    r"|[Hh]idden size|[Vv]ocab(?:ulary)? size|num_kv_heads)(?: ?[=(] "
    r"?(?P<has>\d+)\)?| (?P<bare>\d+))?"
    r" (?:must be|should be|needs to be|is not) (?:(?:evenly )?divisible by|a multiple(?: or divisor)? of) (?:the )?"
    r"(?P<by>[\w -]{0,60}?(?:parallel\w*(?:[ -]size)?|\w*(?:size|degree)))"
    r"(?: ?[=( ] ?(?P<parts>\d+))?"
)
def of_a_dimension(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Say what cannot be divided, and by which numbers it can."""
    has, parts = match["has"] or match["bare"], match["parts"]
    fits = [each for each in range(1, MOST) if int(has) % each == 0] if has else []
    yield Finding(
        f"{match['what'].strip()}{' (' + has + ')' if has else ''} cannot be divided by the {match['by']}"
        + (f" ({parts})" if parts else ""),
        (record.proof(match, f"a {match['by']} that divides it" + (f": {', '.join(map(str, fits))}" if fits else "")),),
        Fix(
            "take a size that divides it, and let the other ranks be data parallel or pipeline stages",
            command="torchrun --nproc_per_node=8 train.py --tensor-model-parallel-size "
            f"{max((each for each in fits if not parts or each < int(parts)), default=2)}   # the option has "
            f"the name of your program",
        ),
        record.place,
    )


@log_pattern(
    r"RuntimeError: shape '\[(?P<batch>\d+), (?P<length>\d+), (?P<heads>-1|\d+), (?P<head>\d+)\]' is invalid for input "
    r"of size (?P<size>\d+)",
    context=(TENSOR_PARALLEL,),
)
def of_a_head(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """A rank of tensor parallelism got a part of a key/value head, or of the heads that the code counts."""
    asked = log.first(TENSOR_PARALLEL)
    seen = (asked[0].proof(asked[1], "a tensor parallel size that divides num_key_value_heads"),) if asked else ()
    share = share_of_heads(match)
    if share is None or (not seen and (match["heads"] != "-1" or record.rank is None or not HEADS.search(record.text))):
        return
    yield told_of_heads(record, match, share, seen)


MOST = 65  # the largest size that is proposed


@log_pattern(r"AssertionError: Loading a checkpoint for MP=(?P<parts>\d+) but world size is (?P<world>\d+|None)")
def of_weights_in_parts(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Llama's own loader takes one rank for each file of weights."""
    parts = int(match["parts"])
    yield Finding(
        f"the weights lie in {parts} parts, and {match['world']} ranks were started: each takes one"
        if parts
        else "the folder that is given for the weights holds none",
        (record.proof(match, f"{parts or 'some'} files *.pth, as many as ranks"),),
        Fix(
            "start as many ranks as there are parts" if parts else "give the folder that holds consolidated.00.pth",
            command=f"torchrun --nproc_per_node={parts} ..." if parts else "ls CKPT_DIR/*.pth",
        ),
        record.place,
    )


@log_pattern(r"Found len\(mesh_dim_names\): (?P<names>\d+) and len\(mesh_shape\): ?(?P<sizes>\d+)")
def of_the_names(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """init_device_mesh takes a name for each size."""
    names, sizes = match["names"], match["sizes"]
    yield Finding(
        f"the device mesh is given sizes for {sizes} of its dimensions and names for {names}",
        (record.proof(match, "a name for each dimension, and the sizes multiply to the world size"),),
        Fix(
            "give as many sizes as names, in one order",
            diff="-init_device_mesh('cuda', (world_size,), mesh_dim_names=('dp', 'tp'))\n"
            "+init_device_mesh('cuda', (world_size // tp, tp), mesh_dim_names=('dp', 'tp'))",
        ),
        record.place,
    )
