"""The model takes no training step with the example batch, DDP or not.

## What happens

The bare model was called with the example batch in a single process (on each rank), a loss was made of its
outputs, and forward or backward raised. Under DDP the same happens, often with one rank's message lost among
those of the others. What checks of their own explain (SyncBatchNorm on CPU, batch normalisation of one value)
is reported there.

In a log: shapes that do not fit ("mat1 and mat2 shapes cannot be multiplied", "shape '[16, 8, 64]' is invalid for
input of size 4096"), an index beyond an embedding ("index out of range in self"), FlashAttention on float32.

## How to be sure

Call `model(*batch)` in a Python prompt. Where one rank alone raises it, its samples are what differs.

## How to mend it

The traceback's last line of your own code is given. If the batch is not what forward takes,
let the function that `--batch` names return it as people pass it: a tensor, a tuple of the positional
arguments, or a dict of keyword arguments; of `(input, target)` only the first is passed where forward takes
one argument.

## Versions and sources

Holds for all versions of torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    TOO_SLOW,
    Ailment,
    Ambiguity,
    Evidence,
    Finding,
    Fix,
    Log,
    NotRun,
    Place,
    Record,
    Severity,
    log_pattern,
    probe,
)

from .._part_of_a_batch import of_a_part

if TYPE_CHECKING:
    from ddpdoctor.check import ModelExam

AILMENT = Ailment("DDP522", Severity.ERROR)
EXPLAINED = ("SyncBatchNorm", "Expected more than 1 value per channel when training")


@probe
def in_a_step(model: ModelExam) -> Iterator[Finding]:
    """Yield what the bare model raised, on the first rank where it did."""
    for rank, step in enumerate(model.steps.plain):
        if step.trouble is not None and step.trouble.kind == TOO_SLOW:
            raise NotRun(step.trouble.message)
        if step.trouble is None or any(words in step.trouble.message for words in EXPLAINED):
            continue
        no_loss = step.trouble.kind == "NoLossError"
        if no_loss and not model.ranks[rank].trainable:
            continue
        frames = step.trouble.frames
        yield Finding(
            f"no output of {model.model.kind} has a gradient: backward has nowhere to start"
            if no_loss
            else f"without DDP, {model.model.kind} fails on the example batch: {step.trouble.kind}",
            (Evidence(str(step.trouble), "forward and backward go through", f"rank {rank}, one process"),),
            Fix(
                "repeat it in one process",
                command=f"python -c 'from ddpdoctor.examine.target import build, parse; "
                f'model = build(parse("{model.target}"), 0, 1); batch = build(parse("{model.batch}"), 0, 1); '
                "print(model(*batch) if isinstance(batch, (tuple, list)) else model(batch))'",
            ),
            place=Place(file=frames[0].file, line=frames[0].line, rank=rank) if frames else Place(rank=rank),
            severity=Severity.WARNING if no_loss else Severity.ERROR,
        )
        return


SHARDED = (
    r"(?i:deepspeed|fsdp|fully_shard|tensor_parallel|dtensor|pipeline_parallel|distributed[/\\]pipelining"
    r"|sequence_parallel|context_parallel)"
)

OPTIMIZER = r"torch[/\\]optim[/\\]\w+\.py|\bexp_avg\w*\."
LOADS = r"\bin \w*load_\w*(?:checkpoint|ckpt|state|model|weights)"
"""A function that reads a checkpoint: what does not fit there is no step of the model."""


@log_pattern(
    r"mat1 and mat2 shapes cannot be multiplied \((?P<one>\d+x\d+) and (?P<two>\d+x\d+)\)"
    r"|The size of tensor a \((?P<a>\d+)\) must match the size of tensor b \((?P<b>\d+)\)"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """The shapes of the model or of its input are wrong, and that has nothing to do with the number of ranks."""
    elsewhere = any(re.search(each, record.text) for each in (SHARDED, OPTIMIZER, LOADS))
    if elsewhere or "0" in {match["a"], match["b"]}:
        return  # a parameter, or its gradient, that another rank holds has no size here
    one, two = (match["one"], match["two"]) if match["one"] else (match["a"], match["b"])
    if BEGINS not in record.text:
        yield _of_a_cut_text(record, match, one, two)
        return
    yield Finding(
        f"the model's own step fails, with or without DDP: {one} does not fit {two}",
        (record.proof(match, "shapes that fit"),),
        Fix("make the shapes fit at the line of your own code; one process shows it", command="python train.py"),
        record.place,
    )


BEGINS = "Traceback (most recent call last)"


def _of_a_cut_text(record: Record, match: re.Match[str], one: str, two: str) -> Finding:
    """Leave open where the tensors come from: the frames that would say so are cut off."""
    return Finding(
        f"two tensors that meet do not fit, {one} and {two}; what called it is cut off",
        (record.proof(match, "shapes that fit"),),
        Fix(
            "let one process show it; the frames above this line say which tensors meet",
            command="CUDA_VISIBLE_DEVICES=0 python train.py",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "the model or its input has wrong shapes, with one rank as well",
                "one is a rank's share (a batch that DataParallel split, heads of tensor parallel), the other is whole",
                "it is the optimizer's step: its state is of other parameters, or of other shards",
            ),
            "CUDA_VISIBLE_DEVICES=0 python train.py   # fails as well: the first; see the frames of the whole log, too",
        ),
    )


SHAPES = (
    r"RuntimeError: (?:shape '\[[-\d, ]{1,80}\]' is invalid for input of size \d+"
    r"|Sizes of tensors must match except in dimension \d+\.[^\n]{1,120}"
    r"|Given groups=\d+, weight of size \[[\d, ]{1,60}\], expected input\[[\d, ]{1,60}\] to have \d+ channels"
    r"|The expanded size of the tensor \(\d+\) must match the existing size \(\d+\)[^\n]{0,160}"
    r"|Calculated padded input size per channel: [^\n]{1,120})"
    r"|ValueError: Target size \(torch\.Size\([^\n]{1,60}?\) must be the same as input size [^\n]{1,60}"
    r"|AssertionError: FP8 execution requires [^\n]{1,120}? but got tensor with dims=\[[\d, ]{1,60}\]"
    r"|(?P<index>IndexError: index out of range in self)"
    r"|RuntimeError: (?P<flash>FlashAttention only supports? fp16 and bf16 data type)"
)


@log_pattern(SHAPES, plain=True)
def of_shapes(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Read the other words of torch for what does not fit; a rank alone that raises it can have other samples."""
    if re.search(SHARDED, record.text) and not match["flash"]:
        return
    if match["flash"]:
        yield Finding(
            "FlashAttention is given tensors of float32, and computes in float16 and bfloat16 alone",
            (record.proof(match, "queries, keys and values in bfloat16 or float16"),),
            Fix(
                "load the model in bfloat16, and compute under autocast what a wrapper keeps in float32",
                diff="-model = AutoModel.from_pretrained(name, attn_implementation='flash_attention_2')\n"
                "+model = AutoModel.from_pretrained(name, attn_implementation='flash_attention_2', "
                "torch_dtype=torch.bfloat16)\n"
                "+with torch.autocast('cuda', dtype=torch.bfloat16):   # around the forward, generate() included",
            ),
            record.place,
        )
        return
    ranks = log.ranks(SHAPES)
    if (part := of_a_part(record, match, len(ranks))) is not None:
        yield part
        return
    alone = ""
    if len(ranks) == 1 and min(ranks) > 0:  # the others are ended before they can say the same
        alone = f", on rank {min(ranks)}; where the others go on, its samples differ"
    yield Finding(
        f"an index is beyond the table that it is looked up in (an embedding){alone}"
        if match["index"]
        else f"tensors that meet in the model do not fit: {' '.join(match[0].partition(': ')[2].split())[:160]}{alone}",
        (record.proof(match, "indices below num_embeddings" if match["index"] else "shapes that fit"),),
        Fix(
            "print what the tokenizer, or the data, gives there; a table that has grown needs resize_token_embeddings",
            diff="+print(int(ids.min()), int(ids.max()), model.get_input_embeddings().num_embeddings)",
        )
        if match["index"]
        else Fix(
            "print the shapes above that line of your own code; where every batch is wrong, one process shows it",
            command="python train.py",
        ),
        record.place,
    )
