"""The checkpoint is that of an AveragedModel (SWA or EMA), not of the model.

`torch.optim.swa_utils.AveragedModel` keeps a copy of the model as its child `module`, beside a counter `n_averaged`.
Its keys look like those of DDP, but for the counter, and the weights are the averaged ones. Loaded into the plain
model they raise 'Unexpected key(s) in state_dict: "n_averaged", "module.conv1.weight"'.

To be sure, look for `n_averaged` among the keys.

Load it into an AveragedModel to go on averaging; to evaluate or to deploy, take the prefix off and drop the counter,
or save `averaged.module.state_dict()`. After SWA, BatchNorm statistics are computed anew by
`torch.optim.swa_utils.update_bn`.

Holds for torch 1.6 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, "torch.optim", weight
averaging.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor import Card, Evidence, Finding, Fix, Place, Severity
from ddpdoctor.check import probe
from ddpdoctor.checkpoint import CheckpointFile, StateDict
from ddpdoctor.checkpoint.compare import explain
from ddpdoctor.checkpoint.keys import COUNTER, Strip, assumed, is_averaged

from ._look import beside, few, load_lines, named, pasted, save_lines, state_dicts, strip_lines

if TYPE_CHECKING:
    from ddpdoctor.probe.model_exam import ModelExam

CARD = Card("DDP811", Severity.ERROR)


@probe
def alone(checkpoint: CheckpointFile, model_given: bool) -> Iterator[Finding]:  # noqa: FBT001 - an input of this name
    """Note the state dicts that have the counter."""
    if not model_given:
        for state_dict in state_dicts(checkpoint):
            if is_averaged(state_dict.keys):
                yield _finding(checkpoint, state_dict, assumed(state_dict.keys), Severity.NOTE)


@probe
def beside_the_model(checkpoint: CheckpointFile, model: ModelExam) -> Iterator[Finding]:
    """Report it when the model is the one inside."""
    state_dicts(checkpoint)
    found = explain(checkpoint, model.state)
    if found and found.same_network and found.file_strip.segments and is_averaged(found.state_dict.keys):
        yield _finding(checkpoint, found.state_dict, found.file_strip, None)


def _finding(checkpoint: CheckpointFile, state_dict: StateDict, strip: Strip, severity: Severity | None) -> Finding:
    keys = [key for key in state_dict.keys if key != COUNTER]
    new = beside(checkpoint.path, "bare")
    counter = [f'state.pop("{COUNTER}")']
    mend = [*load_lines(checkpoint, state_dict), *counter, *strip_lines(strip), *save_lines(checkpoint, new)]
    return Finding(
        f"{named(state_dict)} is the state of an AveragedModel: {COUNTER}, and {len(keys)} keys with {strip}",
        (Evidence(few([COUNTER, *keys]), few(map(strip, keys)), checkpoint.path),),
        Fix(
            f"write {new} with the averaged weights under the model's keys, or load into AveragedModel(model)",
            pasted(mend),
            "- torch.save(averaged.state_dict(), path)\n+ torch.save(averaged.module.state_dict(), path)",
        ),
        place=Place(file=checkpoint.path, key=COUNTER),
        severity=severity,
    )
