"""A copy of the model is updated on some ranks only, and all ranks compute with theirs.

## What happens

A teacher that averages the student's weights, a target network, an exponential moving average: no optimizer and no DDP
keeps it, a line of the script does. Where that line stands under `if rank == 0`, as what saves and prints does, the
other ranks go on with the copy as it was at first. Nothing fails, for the weights that are trained stay equal; their
loss is computed with two different teachers.

## How to be sure

ddpdoctor compares what is called between steps and held by no optimizer: on one rank it has changed before each
compared step, on another one never.

## How to mend it

Update the copy on every rank: the weights that it averages are equal there. A copy that only rank 0 uses, to save it
or to evaluate, is no fault.

Silent where ranks do not train one model, where they send to each other within the model, and where code was compiled.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, torch.optim.swa_utils,
AveragedModel: `update_parameters` changes the process's own copy.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Place, Severity, StepFingerprinted, Training, watch

from ..._words import listed
from .._used import Module, modules

AILMENT = Ailment("DDP1521", Severity.ERROR)
SURE = 4  # steps
LATE = 30
SOME = 3  # changes: who copies the weights now and then


@watch(StepFingerprinted)
def while_training(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    """Look for parameters that change on some ranks, and never on others."""
    for module in modules(event, training, SURE):
        differ, changes = [each.name for each in module.parameters if each.differs], module.changes()
        if not differ:
            continue
        intervals = len(module.tensors[0].prints) - 1
        always = max(changes) == intervals == SURE - 1
        reached = max(changes) >= SOME if event.number == LATE else module.just_changed(SOME)
        often = event.number >= LATE and reached and max(changes) < intervals
        if min(changes) == 0 and (always or often):
            yield _finding(module, differ, changes, event)


def _finding(module: Module, names: list[str], changes: list[int], event: StepFingerprinted) -> Finding:
    used = module.used
    still = [str(rank) for rank, count in enumerate(changes) if not count]
    told = ", ".join(f"{count} times on rank {rank}" for rank, count in list(enumerate(changes))[:8])
    return Finding(
        f"{used.kind}, which all ranks compute with, is not updated on rank {', '.join(still)}: {listed(names, 4)}",
        (
            Evidence(f"changed {told}", "on all ranks alike", f"compared steps up to {event.number}"),
            Evidence("no optimizer holds it, and DDP does not keep it equal", "", "all ranks"),
        ),
        Fix(
            "update the copy on every rank",
            diff="-if rank == 0:\n-    update(teacher, model.module)\n+update(teacher, model.module)",
        ),
        Place(file=used.file, line=used.line),
    )
