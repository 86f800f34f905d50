"""The checkpoint is a whole training state; the weights stand in it under a key.

## What happens

A file saved for resuming holds a dict such as {"model": ..., "optimizer": ..., "epoch": 12}. Passed to
`load_state_dict` as it is, it raises 'Missing key(s) in state_dict: ... Unexpected key(s) in state_dict: "model",
"optimizer", "epoch"'. With `strict=False` it raises nothing and loads nothing, and the training starts from random
weights.

## How to be sure

`ddpdoctor inspect last.pt` shows what the file holds, and under which keys.
`ddpdoctor check --checkpoint last.pt --model train.py:build_model` names the inner dict whose keys are those of the
model. For a file it is a note: such a file is useful, as long as the script that loads it knows where the weights
are. In a log, where `load_state_dict` got the whole dict, it is an error.

## How to mend it

Load the inner dict, `model.load_state_dict(ckpt["model"])`, or let `ddpdoctor.load_state_dict(model, "last.pt")` find
it. `ddpdoctor repair` mends the keys of every state dict in the file, wherever it is.

## Versions and sources

Holds for all versions of torch; seen with torch 2.13 CPU. Source: PyTorch tutorials, "Saving and Loading a General
Checkpoint".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    CheckpointFile,
    Evidence,
    Finding,
    Fix,
    Log,
    Place,
    Record,
    Severity,
    StateDict,
    closest_difference,
    probe,
    subscript,
)

from .._look import PICKLED, few, load_lines, quoted, state_dicts, strip_lines
from .._reason import Reason, on_refusal
from .._refusal import refusal

if TYPE_CHECKING:
    from ddpdoctor.check import ModelExam

AILMENT = Ailment("DDP805", Severity.NOTE)


@probe
def alone(checkpoint: CheckpointFile, model_given: bool) -> Iterator[Finding]:  # noqa: FBT001 - an input of this name
    """Find where the weights stand."""
    found = state_dicts(checkpoint)
    if checkpoint.format in PICKLED and not model_given and all(each.location for each in found):
        yield _finding(checkpoint, max(found, key=lambda each: len(each.entries)), (), "")


@probe
def beside_the_model(checkpoint: CheckpointFile, model: ModelExam) -> Iterator[Finding]:
    """Find which of the inner dicts is the model's."""
    state_dicts(checkpoint)
    found = closest_difference(checkpoint, model.state)
    if checkpoint.format in PICKLED and found and found.same_network and found.state_dict.location:
        own = f"; {found.matching} of its keys are the model's"
        yield _finding(checkpoint, found.state_dict, strip_lines(found.file_strip), own)


def _finding(
    checkpoint: CheckpointFile, state_dict: StateDict, strip: tuple[str, ...] | list[str], own: str
) -> Finding:
    place = subscript("ckpt", state_dict.location)
    return Finding(
        f"the file is a training state, the {len(state_dict.entries)} weights stand in {place}{own}",
        (
            Evidence(
                f"outermost keys: {few((item.key for item in checkpoint.items), 8)}",
                "the names of parameters, if the file is to be loaded as it is",
                checkpoint.path,
            ),
        ),
        Fix(
            f"pass {place} to load_state_dict, not the whole file",
            diff="\n".join(
                [
                    "- model.load_state_dict(torch.load(path))",
                    *(f"+ {line}" for line in (*load_lines(checkpoint, state_dict), *strip)),
                    "+ model.load_state_dict(state)",
                ]
            ),
        ),
        place=Place(file=checkpoint.path, key=str(state_dict.location[-1])),
    )


@on_refusal(Reason.NESTED)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Recognise the keys of a training state among the unexpected ones."""
    refused = refusal(record, match, log)
    inner = next((key for key in (*WEIGHTS, *OF_DEEPSPEED) if key in refused.unexpected), "model")
    yield Finding(
        f"load_state_dict got the whole training state; the weights stand in it under {inner}",
        (Evidence(few(refused.unexpected), "names of parameters", "unexpected keys"), *refused.evidence),
        Fix(
            "load the inner dict",
            diff=f"-model.load_state_dict(ckpt)\n+model.load_state_dict(ckpt[{quoted(inner)}])",
        ),
        record.place,
        severity=Severity.ERROR,
    )


OF_DEEPSPEED = ("module",)  # of mp_rank_00_model_states.pt; the name of a layer, too
WEIGHTS = ("state_dict", "model_state_dict", "model_state", "model", "net", "network", "weights", "params", "ema")
