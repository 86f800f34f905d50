"""A training is resumed, and a part of what its checkpoint holds is never given back.

## What happens

The checkpoint has the state of the optimizer, of the schedule, of the gradient scaler or of the averaged weights, and
the script that goes on from it reads the weights and the epoch alone. Adam begins without its moments, a schedule with
its warm-up, an average with the weights of the moment. Nothing fails: the loss jumps, and with jobs that are ended by a
time limit it does so each time.

## How to be sure

Print `optimizer.state_dict()["state"]`, or the learning rate, before and after the resume. Reported where a source
builds a dictionary with several `state_dict()`, gives some of them back by `load_state_dict(checkpoint["model"])`, goes
on from an epoch or a step of the same checkpoint, and says the key of another one nowhere else.

`dcp.load(state, ...)` of torch.distributed.checkpoint fills the tensors of what it is given. `optimizer.state_dict()`
of an optimizer that has not stepped has none, so that nothing of its state is loaded; `ddpdoctor run` compares what
such a load asks for with the keys that are saved.

Silent where the checkpoint is handed on as a whole, where a schedule is given `last_epoch` or is stepped in several
places, and where no epoch or step is read: then the weights alone are wanted.

## How to mend it

    optimizer.load_state_dict(checkpoint["optimizer"])
    scheduler.load_state_dict(checkpoint["scheduler"])

With torch.distributed.checkpoint, `get_state_dict(model, optimizer)` makes the state first, and `set_state_dict` gives
it back.

## Versions and sources

Holds for every version of torch. Source: PyTorch documentation, "Saving and loading a general checkpoint".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Fix,
    MomentsNotAsked,
    Place,
    Severity,
    StepFingerprinted,
    Training,
    lint,
    place,
    tree_of,
    watch,
)

from ..._findings.places import file_of_first_step
from ._resumed import Left, left_out

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP859", Severity.WARNING)


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for a state that is saved and not given back where the training is resumed."""
    if not script.frameworks and "load_state_dict" in script.text:
        for each in left_out(script.tree.module):
            yield _finding(each, str(script.path))


@watch(StepFingerprinted)
def while_training(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    """Look into the file of a training that runs on several ranks."""
    if file := file_of_first_step(event, training):
        for each in left_out(tree_of(file).module):
            yield _finding(each, file)


@watch(MomentsNotAsked)
def of_a_distributed_checkpoint(event: MomentsNotAsked) -> Iterator[Finding]:
    """Report what torch.distributed.checkpoint was not asked for: it fills what it is given, and nothing else."""
    key = event.key or "optim"
    yield Finding(
        f"dcp.load was given the empty state of a fresh optimizer: of the {event.entries} entries of its state that "
        "are saved, none is loaded",
        (
            Evidence(f'"{key}": {{"state": {{}}, "param_groups": ...}} is to be filled', "a state with its tensors",
                     str(event.site or "")),
            Evidence(f"{event.entries} keys {key}.state.* in .metadata", "", event.folder),
        ),
        Fix(
            "save and load by get_state_dict, which makes the state first; its keys are names of parameters, so that "
            "what saves has to take it as well",
            diff="+from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict\n"
            "+weights, moments = get_state_dict(model, optimizer)   # where it is saved, and where it is loaded\n"
            f'-state = {{"model": model.state_dict(), "{key}": optimizer.state_dict()}}\n'
            f'+state = {{"model": weights, "{key}": moments}}\n'
            " dcp.load(state, checkpoint_id=folder)\n"
            f'+set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["{key}"])',
        ),
        place(event.site),
        severity=Severity.ERROR,
    )  # fmt: skip


def _finding(left: Left, file: str) -> Finding:
    return Finding(
        f'a resumed training goes on without the state of {left.owner}: "{left.key}" is saved, and never given back',
        (
            Evidence(f'"{left.key}": {left.owner}.state_dict() is saved', "", f"{file}:{left.saved}"),
            Evidence(f'{left.base}["{left.read}"] is given back', f'{left.base}["{left.key}"] as well',
                     f"{file}:{left.line}"),
            Evidence(f'the training goes on from {left.base}["{left.progress}"]', "", f"{file}:{left.progressed}"),
        ),
        Fix(
            f"give {left.owner} its state back",
            diff=f'+{left.owner}.load_state_dict({left.base}["{left.key}"])',
        ),
        Place(file=file, line=left.line),
    )  # fmt: skip
