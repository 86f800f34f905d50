"""An optimizer is made of no parameters: what chose them found none in the model that was wrapped.

## What happens

torch refuses: "optimizer got an empty parameter list". In a distributed training the list is often empty because the
model was wrapped before the parameters were chosen:

- By name: under DistributedDataParallel and DataParallel each name begins with `module.`; under
  FullyShardedDataParallel the parameters are one `_flat_param` for each unit, and no name of the model's is left,
  unless `use_orig_params=True`.
- By identity: FullyShardedDataParallel and `deepspeed.zero.Init` replace the parameters.
- By stage: a stage of a pipeline (DeepSpeed's PipelineModule) whose layers are all frozen has nothing to train, while
  the others have.

In any training: all parameters are frozen, or a generator such as `model.parameters()` was used up by a first reader.

## How to be sure

Print the names where the optimizer is made: `print([n for n, p in model.named_parameters() if p.requires_grad][:5])`.
Names that begin with `module.` or end in `_flat_param` are the wrapper's; none at all are frozen ones.

## How to mend it

Choose the parameters of the model before it is wrapped (DistributedDataParallel keeps them), or give
FullyShardedDataParallel `use_orig_params=True` and look for a part of the name (`"head." in name`). Let each stage of a
pipeline train something: fewer stages, or adapters in layers of each. DeepSpeed cuts by the parameters that are trained
(`partition_method="parameters"`), and one large layer that is trained among frozen ones leaves nothing to the others.

## Versions and sources

Holds for torch 2.2 to 2.13. Sources: torch/optim/optimizer.py; PyTorch documentation, "FullyShardedDataParallel";
deepspeed/runtime/pipe/module.py, `_partition_layers`; pytorch/pytorch#132068, Coobiw/MPP-LLaVA#13.
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
    Place,
    Record,
    Severity,
    Sharded,
    Training,
    Wrapped,
    log_pattern,
    place,
    watch,
)

from .._logs import beside

AILMENT = Ailment("DDP1511", Severity.ERROR)
SAID = "optimizer got an empty parameter list"
RIGHT = "the parameters that are to be trained"
STAGE = r"\bPipelineEngine\("
FLAT = r"FullyShardedDataParallel|[/\\]distributed[/\\]fsdp[/\\]|\bFSDP\b"
BY_NAME = Fix(
    "choose the parameters before the model is wrapped",
    diff="-model = DDP(model, device_ids=[local_rank])\n"
    ' head = [p for name, p in model.named_parameters() if name.startswith("head.")]\n'
    "+model = DDP(model, device_ids=[local_rank])\n optimizer = torch.optim.AdamW(head)",
)
ORIGINAL = Fix(
    "let FSDP keep the names of the model",
    diff="-model = FSDP(model)\n+model = FSDP(model, use_orig_params=True)\n"
    '-head = [p for name, p in model.named_parameters() if name.startswith("head.")]\n'
    '+head = [p for name, p in model.named_parameters() if "head." in name]',
)
FROZEN = "no parameter that was chosen requires a gradient: requires_grad_(False) went further than meant"
USED_UP = "a generator (model.parameters(), filter(...)) was read before, and yields nothing the second time"
FLATTENED = "they were chosen by name or identity after FSDP had replaced them by flat ones (_flat_param)"
PREFIXED = "they were chosen by name after the wrapping, where each name begins with module."
NAMES = "print([name for name, p in model.named_parameters() if p.requires_grad][:5])   # before the optimizer is made"


@watch(Failed)
def while_training(event: Failed, training: Training) -> Iterator[Finding]:
    """Look what had become of the parameters' names when the optimizer was made."""
    if SAID not in event.said:
        return
    shards = training.of(Sharded, pid=event.pid, api="FullyShardedDataParallel")
    wrapped = training.of(Wrapped, pid=event.pid)
    by = shards or wrapped
    yield _finding(
        (
            Evidence(event.said, RIGHT, f"rank {event.rank}"),
            *((Evidence(f"{by[-1].kind} was wrapped before", "", str(by[-1].site)),) if by else ()),
        ),
        place(event.site, rank=event.rank),
        ORIGINAL if shards else BY_NAME,
        (FLATTENED,) if shards else (PREFIXED,) if wrapped else (),
    )


@log_pattern(rf"ValueError: {SAID}", context=(FLAT,), plain=True)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Tell a stage of a pipeline from parameters that a wrapper renamed; else leave the causes open."""
    proof = record.proof(match, RIGHT)
    if stage := re.search(STAGE, record.text):
        yield Finding(
            "a stage of the pipeline has no parameter that is trained, and DeepSpeed makes an optimizer for each stage",
            (proof, record.proof(stage)),
            Fix(
                "use fewer stages, or let layers of each stage train (adapters, say)",
                diff="-PipelineModule(layers, num_stages=2)\n+PipelineModule(layers, num_stages=1)",
            ),
            record.place,
        )
        return
    flat = beside(record, log, FLAT)
    yield _finding((proof, *flat), record.place, ORIGINAL if flat else BY_NAME, (FLATTENED,) if flat else (PREFIXED,))


def _finding(proof: tuple[Evidence, ...], where: Place, fix: Fix, causes: tuple[str, ...]) -> Finding:
    """Leave open what found no parameters: the causes that a wrapper has, and those of any training."""
    return Finding(
        "the optimizer is given no parameters",
        proof,
        fix,
        where,
        ambiguity=Ambiguity((*causes, FROZEN, USED_UP), NAMES),
    )
