"""The checkpoint is that of an AveragedModel (SWA or EMA), not of the model.

## What happens

`torch.optim.swa_utils.AveragedModel` keeps a copy of the model as its child `module`, beside a counter `n_averaged`;
mmengine's averaged models are alike, with `steps`.
Its keys look like those of DDP, but for the counter, and the weights are the averaged ones. Loaded into the plain
model they raise 'Unexpected key(s) in state_dict: "n_averaged", "module.conv1.weight"'.

## How to be sure

`ddpdoctor inspect last.pt` says so. Without ddpdoctor, look for `n_averaged` among the keys.
`ddpdoctor check --checkpoint last.pt --model train.py:build_model` reports an error where the keys without `module.`
are those of the model; without a model it is a note.

## How to mend it

To go on averaging, load the file into an AveragedModel. To evaluate or to deploy, use
`ddpdoctor.load_state_dict(model, "last.pt")`, which takes the weights and leaves the counter; or save
`averaged.module.state_dict()`. `ddpdoctor repair last.pt --strip module. -o last.bare.pt` gives the bare keys but
keeps the counter, since it never drops a key. After SWA, `torch.optim.swa_utils.update_bn` computes the BatchNorm
statistics anew.

## Versions and sources

Holds for torch 1.6 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, "torch.optim", weight
averaging.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Fix,
    Log,
    Place,
    Record,
    Severity,
    Strip,
    assumed_strip,
    closest_difference,
    counter_in,
    is_averaged,
    probe,
)

from .._look import few, named, quoted, state_dicts
from .._reason import Reason, on_refusal
from .._refusal import refusal

if TYPE_CHECKING:
    from ddpdoctor.check import CheckpointFile, ModelExam, StateDict

AILMENT = Ailment("DDP811", Severity.ERROR)


@probe
def alone(checkpoint: CheckpointFile, model_given: bool) -> Iterator[Finding]:  # noqa: FBT001 - an input of this name
    """Note the state dicts that have the counter."""
    if not model_given:
        for state_dict in state_dicts(checkpoint):
            if is_averaged(state_dict.keys):
                yield _finding(checkpoint, state_dict, assumed_strip(state_dict.keys), Severity.NOTE)


@probe
def beside_the_model(checkpoint: CheckpointFile, model: ModelExam) -> Iterator[Finding]:
    """Report it when the model is the one inside."""
    state_dicts(checkpoint)
    found = closest_difference(checkpoint, model.state)
    if found and found.same_network and found.file_strip.segments and is_averaged(found.state_dict.keys):
        yield _finding(checkpoint, found.state_dict, found.file_strip, None)


def _finding(checkpoint: CheckpointFile, state_dict: StateDict, strip: Strip, severity: Severity | None) -> Finding:
    counter = counter_in(state_dict.keys)
    keys = [key for key in state_dict.keys if key != counter]
    return Finding(
        f"{named(state_dict)} is the state of an AveragedModel: {counter}, and {len(keys)} keys with {strip}",
        (Evidence(few([counter, *keys]), few(map(strip, keys)), checkpoint.path),),
        Fix(
            "load it by ddpdoctor, which leaves the counter, or load it into AveragedModel(model)",
            diff=f"- model.load_state_dict(torch.load(path))\n+ import ddpdoctor\n"
            f"+ ddpdoctor.load_state_dict(model, {quoted(checkpoint.path)})\n"
            "- torch.save(averaged.state_dict(), path)\n+ torch.save(averaged.module.state_dict(), path)",
        ),
        place=Place(file=checkpoint.path, key=counter),
        severity=severity,
    )


@on_refusal(Reason.AVERAGED)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Recognise the counter among the unexpected keys."""
    refused = refusal(record, match, log)
    yield Finding(
        "the checkpoint is that of an AveragedModel: n_averaged stands among its keys",
        refused.evidence,
        Fix(
            "load the weights and leave the counter",
            diff=f"-model.load_state_dict(torch.load({quoted(refused.path)}))\n"
            f"+ddpdoctor.load_state_dict(model, {quoted(refused.path)})",
        ),
        record.place,
    )
