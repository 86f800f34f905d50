"""A method of the model is called past FullyShardedDataParallel, which alone gathers its parameters.

## What happens

FullyShardedDataParallel (FSDP1) gathers the parameters for its own `forward` and frees them after it.
`model.module.encode(x)`, or another method that computes with them, finds flat shards, of one dimension or without
memory: "mat2 must be a matrix, got 1-D tensor", "'weight' must be 2-D", "Output 0 of View is a view and its base or
another view of its base has been modified inplace", "out of bounds for storage of size 0". DDP has no such limit: the
parameters stay where they are.

A backward that ends in "storage of size 0" reads a weight that was released since its forward: activation checkpointing
around the wrapper in place of inside of it, a second backward, or an autograd.Function that kept a view of the weight.
FSDP1 asserts the order of its passes as well: "Invalid: ``_post_backward_hook_state``", "expected to be in states ...
but current state is TrainingState.IDLE".

## How to be sure

The model was given to FullyShardedDataParallel, and the traceback goes from the script into a layer without a frame of
torch/distributed/fsdp.

## How to mend it

Go through forward, and let it choose:

    def forward(self, x, encode_only=False):
        return self.encode(x) if encode_only else self.head(self.encode(x))

or gather the parameters for that call, on all ranks, without training them:

    with FullyShardedDataParallel.summon_full_params(model):
        ...

With fully_shard (FSDP2): `register_fsdp_forward_method(model, "encode")`.

## Versions and sources

Measured with torch 2.13, gloo, two ranks. Source: PyTorch documentation, FullyShardedDataParallel. Holds for torch 2.2
to 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Ambiguity,
    Evidence,
    Failed,
    Finding,
    Fix,
    Log,
    Record,
    Severity,
    Sharded,
    Training,
    log_pattern,
    place,
    watch,
)

from ._released import BEFORE_BACKWARD, BEFORE_FORWARD, PARTLY, SEARCH, of_state_dict

AILMENT = Ailment("DDP582", Severity.ERROR)
SAID = re.compile(
    r"mat2 must be a matrix, got 1-D tensor|'weight' must be 2-D|weight should have at least three dimensions"
    r"|is a view and its base or another view of its base has been modified inplace"
    r"|mat \(\d+x\d+\), vec \(0\)|its data is not allocated yet|out of bounds for storage of size 0"
)
WRAPPED_BY = r"ully_sharded|ullySharded|FSDP|fsdp|eepspeed|eepSpeed|ZeRO"
THROUGH = re.compile(r"[/\\]distributed[/\\]fsdp[/\\]")


@watch(Failed)
def while_training(event: Failed, training: Training) -> Iterator[Finding]:
    """Look for the forward of FullyShardedDataParallel in the traceback."""
    sharded = training.of(Sharded, pid=event.pid, api="FullyShardedDataParallel", shards=True)
    said = SAID.search(event.text)
    if not sharded or said is None or THROUGH.search(event.text) or "torch/nn/modules/" not in event.text:
        return
    yield Finding(
        "the model computes past FullyShardedDataParallel, where its parameters are flat shards",
        (
            Evidence(event.said, "forward of FullyShardedDataParallel around the call", f"rank {event.rank}"),
            Evidence(f"{sharded[-1].kind} was given to FullyShardedDataParallel", "", str(sharded[-1].site)),
        ),
        Fix(
            "call the model itself, and let its forward choose what is computed",
            diff="-loss = model.module.encode(inputs)\n+loss = model(inputs, encode_only=True)",
        ),
        place(event.site, rank=event.rank),
    )


@log_pattern(
    r"RuntimeError: (?:'weight' must be 2-D|weight should have at least three dimensions)",
    context=(WRAPPED_BY,),
)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Leave open whose shard it is that a layer got in place of its weight, where the log shows a sharded training."""
    shown = log.first(WRAPPED_BY)
    if shown is None and not re.search(WRAPPED_BY, record.text):
        return
    yield Finding(
        "a layer got a flat or empty shard in place of its weight: it computes past the wrapper that gathers it",
        (
            record.proof(match, "the weight that the layer was built with"),
            *((shown[0].proof(shown[1]),) if shown and shown[0] is not record else ()),
        ),
        Fix(
            "call the wrapped model itself, and keep what is wrapped where it is called",
            diff="-loss = inner_model(inputs)\n+loss = model(inputs)   # what FSDP or DeepSpeed returned",
        ),
        record.place,
        ambiguity=Ambiguity(BEFORE_FORWARD, SEARCH),
    )


@log_pattern(
    r"Output \d+ of (?P<by>\w+) is a view and (?:its base or another view of its base has been|is being) "
    r"modified inplace",
    context=(WRAPPED_BY,),
)
def of_a_view(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Flat parameters and hooks hand out views; where the log shows no such wrapper it is the script's own."""
    shown = log.first(WRAPPED_BY)
    if shown is None and not re.search(WRAPPED_BY, record.text):
        return
    line = record.code.strip()
    yield Finding(
        f"{line or 'a line of the forward'} changes in place what the wrapper handed out as a view ({match['by']}): "
        "autograd refuses that for views of a flat parameter, or of several outputs",
        (
            record.proof(match, "a new tensor in place of a changed one"),
            *((shown[0].proof(shown[1]),) if shown and shown[0] is not record else ()),
        ),
        Fix(
            "compute a new tensor",
            diff="-hidden[:, 0] += self.cls(x)\n+hidden = hidden.clone()\n+hidden[:, 0] += self.cls(x)",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "the line changes a parameter, or an output of a wrapped module, in place (+=, relu_, [...] =)",
                "the module is called past the wrapper that gathers its parameters",
            ),
            SEARCH,
        ),
    )


@log_pattern(r"RuntimeError: setStorage: [^\n]{1,300}?out of bounds for storage of size 0", context=(WRAPPED_BY,))
def of_released(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Recognise a weight whose memory is released between the passes: nobody but a sharding wrapper does so."""
    if (asked := of_state_dict(record, match)) is not None:
        yield asked
        return
    shown = log.first(WRAPPED_BY)
    backward = re.search(r"\bbackward\b", record.text) is not None
    yield Finding(
        f"the {'backward' if backward else 'forward'} reads a weight while its memory is released: FSDP, ZeRO 3 or "
        "another wrapper that shards gives it back only within the passes that go through itself",
        (
            record.proof(match, "a weight that is gathered"),
            *((shown[0].proof(shown[1]),) if shown and shown[0] is not record else ()),
        ),
        Fix(
            "let each forward and its backward go through the wrapper, with activation checkpointing inside of it",
            diff="-layer = checkpoint_wrapper(fully_shard(layer))\n+layer = fully_shard(checkpoint_wrapper(layer))"
            if backward
            else "-loss = inner_model(inputs)\n+loss = model(inputs)   # what FSDP or DeepSpeed returned",
        ),
        record.place,
        ambiguity=Ambiguity(BEFORE_BACKWARD if backward else BEFORE_FORWARD, SEARCH),
    )


@log_pattern(
    r"(?:AssertionError|ValueError): (?P<said>Invalid: ``_post_backward_hook_state``[^\n]{0,80}"
    r"|expected to be in states \[?[^\n]{0,200}?TrainingState[^\n]{0,200}? but current state is [^\n]{0,80}"
    r"|Expects `BACKWARD_PRE` or `(?:BACKWARD_POST|IDLE)`[^\n]{0,80}|Expects to be in `BACKWARD_PRE`[^\n]{0,80}"
    r"|Expects `_post_backward_called` to be set[^\n]{0,60}|Expects to only be called in the post-backward[^\n]{0,60}"
    r"|Expects storage to be (?:allocated|freed)[^\n]{0,60}|Expects tensor to be (?:un)?sharded[^\n]{0,80}"
    r"|Expects `\.grad` to be the unsharded gradient[^\n]{0,80})"
)
def of_its_own_order(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """FSDP1 asserts the order of its passes: gathered in the forward, once more in the backward, then released."""
    yield Finding(
        f"FSDP's passes are out of their order: a unit's backward does not fit its last forward ({match['said']})",
        (record.proof(match, "one forward of the wrapped model, then its backward"),),
        Fix(
            "let each forward of the wrapper be followed by its own backward, and give what trains by turns a wrapper "
            "of its own",
            diff="-first = model(a)\n-second = model(b)\n-(first + second).backward()\n"
            "+model(a).backward()   # with model.no_sync(), but for the last\n+model(b).backward()",
        ),
        record.place,
        ambiguity=Ambiguity(
            (BEFORE_BACKWARD[1], PARTLY, BEFORE_BACKWARD[0], BEFORE_BACKWARD[3]),
            SEARCH,
        ),
    )
