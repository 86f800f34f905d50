"""The batch size does not divide by the number of ranks.

## What happens

Where a script takes the batch size of all ranks together, each rank gets its part of it. Some programs refuse a size
that leaves a rest: YOLO's train.py ("--batch-size 64 must be multiple of WORLD_SIZE"), verl ("only support equal chunk.
Got size of DataProto 2 and chunk 4"), Accelerate with `split_batches=True` ("the batch size (8) needs to be a round
multiple of the number of processes (3)"), Megatron ("global batch size (128) is not divisible by micro batch size (4)
times data parallel size (24)"). Scripts that divide without a look get 0 where the batch is smaller than the number of
ranks, which torch's BatchSampler refuses: "batch_size should be a positive integer value, but got batch_size=0".

## How to be sure

Divide the batch size that you give by the number of ranks, for Megatron by the ranks times the size of a micro batch
(ranks that share one model by tensor or pipeline parallelism count once).

## How to mend it

Give a multiple. A larger batch wants a larger learning rate; a script of your own had better take the size of one rank.

## Versions and sources

Holds for all versions of torch. Sources: WongKinYiu/ScaledYOLOv4#76, hancyran/RepSurf#14, huggingface/accelerate#358,
torch's torch/utils/data/sampler.py, BatchSampler.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP422", Severity.ERROR)
DIVIDED = re.compile(
    r"//? *(?:\w+\.)*(?:world_size|num_gpus|n_gpus?|ngpus\w*|num_replicas|nprocs|get_world_size)", re.IGNORECASE
)
CAUSES = ("a batch size was divided by more ranks than it has samples", "batch_size=0 was given")
WHERE = "grep -rnE 'batch_size *(=|//)' --include=*.py .   # where the loader's batch size comes from"


@log_pattern(
    r"batch[-_]size (?P<yolo>\d+) not multiple of (?:GPU|CUDA device) count (?P<gpus>\d+)"
    r"|--batch-size (?P<of_world>\d+) must be (?:a )?multiple of (?:WORLD_SIZE|(?:GPU|CUDA device) count)"
    r"|the batch size \((?P<split>\d+)\) needs to be a round multiple of the number of processes \((?P<processes>\d+)\)"
    r"|global batch size \((?P<all>\d+)\) is not divisible by micro batch size \((?P<micro>\d+)\) "
    r"times data parallel size \((?P<data>\d+)\)"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read both numbers, as far as they are said."""
    size = int(match["yolo"] or match["of_world"] or match["split"] or match["all"])
    ranks = int(match["gpus"] or match["processes"] or match["data"] or 0)
    step = ranks * int(match["micro"] or 1)
    what = f"{ranks} ranks" if ranks else "the number of ranks"
    each = f" with {match['micro']} a rank in each micro batch" if match["micro"] else ""
    yield Finding(
        f"a batch of {size} does not divide by {what}{each}",
        (record.proof(match, f"a multiple of {step}" if step else "a multiple of the ranks"),),
        Fix(
            "give a multiple of the ranks",
            command=f"... {'--global-batch-size' if match['all'] else '--batch-size'} "
            + (str(max(1, size // step) * step) if step else "$((SIZE_OF_ONE_RANK * RANKS))"),
        ),
        record.place,
    )


@log_pattern(
    r"(?:global|effective|generation) (?:train |eval )?batch size \((?P<all>\d+)(?: x (?P<each>\d+))?[^)\n]{0,40}\) "
    r"must be (?:evenly )?divisible by the number of generations per prompt \((?P<generations>\d+)\)"
)
def of_generations(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """TRL's GRPO shares the generations of a prompt out over the samples of all ranks."""
    ranks, each = (int(match["all"]), int(match["each"])) if match["each"] else (0, 0)
    size, wanted = ranks * each or int(match["all"]), int(match["generations"])
    fitting = max((number for number in range(2, wanted + 1) if size % number == 0), default=size)
    yield Finding(
        f"{wanted} generations of each prompt do not divide the {size} samples that all ranks take together"
        + (f": {ranks} ranks of {each}" if each else ""),
        (record.proof(match, f"a multiple of {wanted} samples"),),
        Fix(
            "take another number of generations, or of samples on each rank; a GPU that vLLM has is no rank",
            diff=f"-GRPOConfig(num_generations={wanted})\n+GRPOConfig(num_generations={fitting})   # divides {size}",
        ),
        record.place,
    )


@log_pattern(
    r"AssertionError: only support equal (?P<cut>split|chunk)\. Got size of DataProto (?P<size>\d+) and "
    r"chunk (?P<chunk>\d+)"
)
def of_verl(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Verl cuts the samples of a rank into micro batches of one size; agents with tools make any number of samples."""
    if match["cut"] == "chunk":
        yield _of_verls_ranks(record, match)
        return
    yield Finding(
        f"the {match['size']} samples of a rank do not divide into micro batches of {match['chunk']}: verl cuts "
        "them into equal ones only",
        (record.proof(match, f"a multiple of {match['chunk']} samples on each rank"),),
        Fix(
            "let verl form the micro batches by tokens, or drop what does not fill one",
            command="... actor_rollout_ref.actor.use_dynamic_bsz=True "
            "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=True",
        ),
        record.place,
    )


def _of_verls_ranks(record: Record, match: re.Match[str]) -> Finding:
    """Verl hands each rank an equal part of a batch, of the training as of a validation."""
    size, ranks = int(match["size"]), int(match["chunk"])
    return Finding(
        f"a batch of {size} samples does not divide by {ranks} ranks: verl gives each an equal part",
        (record.proof(match, f"a multiple of {ranks} samples"),),
        Fix(
            "give a multiple of the ranks, counted with the samples of each prompt (rollout.n)",
            command=f"... data.train_batch_size={max(1, -(-size // ranks)) * ranks} data.val_batch_size=null",
        ),
        record.place,
    )


@log_pattern(r"ValueError: batch_size should be a positive integer value, but got batch_size=0\b")
def that_leaves_nothing(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """A loader is given the quotient of a batch size and a larger number of ranks."""
    yield Finding(
        "a loader is given batch_size=0"
        + (": a batch size divided by more ranks than it has samples" if DIVIDED.search(record.text) else ""),
        (record.proof(match, "at least 1 for each rank"),),
        Fix(
            "give at least as many samples as there are ranks",
            diff="-batch_size=args.batch_size // world_size\n+batch_size=max(1, args.batch_size // world_size)",
        ),
        record.place,
        ambiguity=None if DIVIDED.search(record.text) else Ambiguity(CAUSES, WHERE),
    )


@log_pattern(
    r"\n[ \t]*assert (?P<test>[^\n]{0,80}(?:batch|tokens)[^\n]{0,60} % [^\n]{0,60}"
    r"(?:world_size|num_replicas|(?:num|n|len)_?\(?(?:\w+\.)?(?:gpus?|devices)|world_tokens|nprocs?)[^\n]{0,40} == 0\b"
    r"[^\n]{0,120})(?:\n[ \t~^]+(?=\n))?\nAssertionError"
)
def by_an_assertion(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """A script that looks itself, and says no number: its own line names what does not divide."""
    test = match["test"].partition(" == 0")[0].strip()
    yield Finding(
        f"the batch does not divide by the ranks: {test} leaves a rest",
        (record.proof(match, f"{test} == 0"),),
        Fix(
            "give a batch that is a multiple of what it is divided by, or start another number of ranks",
            command="torchrun --nproc_per_node=RANKS train.py --batch-size $((SIZE_OF_ONE_RANK * RANKS))",
        ),
        record.place,
    )
