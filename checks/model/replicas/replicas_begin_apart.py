"""The ranks exchange gradients, and have begun with different weights.

## What happens

An exchange of gradients keeps replicas equal that are equal. DistributedDataParallel gives all ranks the weights of
rank 0 when it wraps a model; a script that averages gradients by hand has to do so itself. Where it does not, and each
rank has initialised with a seed of its own, or only one has loaded a file, all ranks make the same steps from
different places: as many models as there are ranks, each trained with gradients that are mostly those of the others.

## How to be sure

ddpdoctor takes fingerprints of all parameters before the first step, and of the gradients in sampled steps. Here the
steps are given the same gradients on all ranks, of parameters that differ. Where a script updates its weights itself,
those are compared when gradients are asked for: they differ, as much goes through `all_reduce` in each step, and they
move by the same on all ranks.

In a source (`ddpdoctor lint`) it reports gradients that a loop over the parameters reduces over all ranks, where
nothing in reach seeds, broadcasts, or loads weights.

## How to mend it

    for tensor in model.state_dict().values():
        dist.broadcast(tensor, src=0)

before the first step, on all ranks. Or the same seed on all ranks before the model is built.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, "Distributed Data Parallel",
internal design, construction.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    HOROVOD,
    Ailment,
    Evidence,
    Finding,
    Fix,
    Severity,
    StepFingerprinted,
    Training,
    WeightsFingerprinted,
    lint,
    place,
    watch,
)

from ..._ledgers.ledger import data_parallel_sheets, starts_apart
from ..._ledgers.sheets import NEVER, Sheet
from ..._ledgers.updates import apart, compared, reduces, same_moves
from .._words import counted, listed
from ._by_hand import averaged_by_hand, hands_over_a_model

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script

AILMENT = Ailment("DDP573", Severity.ERROR)
SURE = 2
LEAST = 3  # compared backwards of a script without an optimizer


@watch(StepFingerprinted)
def while_training(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    """Look for gradients that are equal on all ranks, of parameters that never were."""
    steps = data_parallel_sheets(event, training, SURE)
    if not steps:
        return
    begun = starts_apart(steps[0])
    shared = {line.name for line in steps[-1].lines if line.shared and line.managed == NEVER}
    names = [name for name in begun if name in shared and all(_shares(each, name) for each in steps)]
    if names and len(names) * 2 > len(shared):
        yield Finding(
            f"the ranks have begun with different weights, and make the same steps: {listed(names, 4)}",
            (
                _values(steps[0], names[0]),
                Evidence(f"the gradients of {counted(len(names), 'parameter')} of them are equal on all ranks",
                         "equal parameters, too", f"step {event.number}"),
            ),
            WITH_HOROVOD if training.framework is HOROVOD else MEND,
            place(steps[0].held.site),
        )  # fmt: skip


@watch(WeightsFingerprinted)
def without_optimizer(event: WeightsFingerprinted, training: Training) -> Iterator[Finding]:
    """Look for weights that differ, and move alike, where gradients are reduced in each step."""
    steps = compared(event, training)
    if len(steps) != LEAST or any(each != NEVER for each in event.managed):
        return
    differ = apart(steps[0])
    if (
        not differ
        or not all(same_moves(steps, at) for at in differ)
        or not all(reduces(*pair) for pair in pairwise(steps))
    ):
        return
    told = ", ".join(f"{(each.values[differ[0]] or (0.0,))[0]:.4g} on rank {rank}"
                     for rank, each in [*steps[0].items()][:8])  # fmt: skip
    yield Finding(
        "the ranks have begun with different weights, and make the same steps: "
        + listed([event.names[at] for at in differ], 4),
        (
            Evidence(f"a projection of {event.names[differ[0]]}: {told}", "the same on all ranks", "before step 1"),
            Evidence(f"the updates of {counted(len(differ), 'parameter')} of them are equal on all ranks",
                     "equal parameters, too", f"steps 1 to {event.number - 1}"),
        ),
        MEND if not event.returned else PLAIN,
        place(event.site),
    )  # fmt: skip


PLAIN = Fix(
    "give all ranks the weights of rank 0 before the first step",
    diff="+for tensor in params.values():\n+    dist.broadcast(tensor, src=0)",
)
MEND = Fix(
    "give all ranks the weights of rank 0 before the first step",
    diff="+for tensor in model.state_dict().values():\n+    dist.broadcast(tensor, src=0)\n"
    " optimizer = torch.optim.SGD(model.parameters())",
)


WITH_HOROVOD = Fix(
    MEND.summary,
    diff="+hvd.broadcast_parameters(model.state_dict(), root_rank=0)\n"
    "+hvd.broadcast_optimizer_state(optimizer, root_rank=0)",
)


def _shares(step: Sheet, name: str) -> bool:
    return any(line.shared for line in step.lines if line.name == name)


def _values(step: Sheet, name: str) -> Evidence:
    at = step.held.names.index(name)
    values = {rank: each.values[at] for rank, each in step.ranks.items()}
    told = ", ".join(f"{each[0]:.4g} on rank {rank}" for rank, each in list(values.items())[:8] if each)
    return Evidence(f"a projection of {name}: {told}", "the same on all ranks", "before step 1")


EQUAL = (
    r"broadcast|(?i:seed)|DistributedDataParallel|FullySharded|fully_shard|load_state_dict|torch\.load|rng_state|scatter"
    r"|pretrained(?!=False)|weights=(?!None)|(?:constant|zeros|ones|eye|fill)_\(|\bProcess\(|[\"']fork|\bfork\("
)
"""What makes the weights of all ranks equal, or can: processes that are forked share their parent's."""
MADE = r"\bnn\.[A-Z]|\bmodels\.\w+\("
"""What says that a model is made here, with random weights; one that is handed to a function can be that of all."""


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for gradients that are averaged by hand, of a model that nothing has made equal."""
    if not script.joins or script.frameworks or project.does(EQUAL) or project.unknown() or not project.says(MADE):
        return
    call = averaged_by_hand(script)
    if call is not None and not hands_over_a_model(script):
        yield Finding(
            "the ranks begin with different weights: gradients are averaged by hand, and the weights never sent",
            (script.seen(call, "for tensor in model.state_dict().values(): dist.broadcast(tensor, src=0), before it"),),
            MEND,
            script.place(call),
        )
