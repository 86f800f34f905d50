"""A communication hook does not give all ranks the mean of their gradients.

## What happens

`register_comm_hook` replaces the all-reduce of DistributedDataParallel: what the hook's future gives becomes the
gradient. A hook that gives back its own bucket, or reduces a copy and returns the original, leaves each rank with what
it has computed: each trains a model of its own, and nothing fails. So does a hook that sends the largest values of a
gradient, and puts what comes back at places of the rank's own: what it gives is no gradient of anybody's. A hook that
sends 8-bit integers, each rank with a scale of its own, adds up numbers of different units, and each rank multiplies
the sum by its own scale.

## How to be sure

ddpdoctor takes fingerprints of each gradient in sampled steps, right after backward and right before the step. Here a
wrapped model has a hook, and each rank was given its own, or the ranks were given different ones that are neither the
mean nor their own, or differ by a factor. It is said after thirty steps, or when the training ends.

Silent where parameters, or something else of that size, are exchanged besides (local SGD), for torch's
`post_localSGD_hook` and `noop_hook`, and where there are groups of some ranks.

## How to mend it

    def hook(group, bucket):
        tensor = bucket.buffer().div_(dist.get_world_size())
        return dist.all_reduce(tensor, async_op=True).get_future().then(lambda future: future.value()[0])

## Versions and sources

The rule holds for torch 2.2 and later. It is seen where DDP tells its hooks: with torch 2.13 and 2.15, not with 2.2.
Source: PyTorch documentation, "DDP Communication Hooks".
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ended, Evidence, Finding, Fix, Place, Severity, StepFingerprinted, Training, watch

from ..._ledgers.ledger import data_parallel_sheets, last_steps
from ..._ledgers.sheets import NEVER, Sheet
from ..._ledgers.wordings import seen

AILMENT = Ailment("DDP574", Severity.ERROR)
SURE = 30
EARLY = 3
HALF = 0.5
ON_PURPOSE = {"noop_hook", "post_localSGD_hook"}


@watch(StepFingerprinted)
def while_training(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    """Look at all compared steps up to one that is late enough."""
    if event.number >= SURE:
        yield from _judged(event, training)


@watch(Ended)
def at_the_end(training: Training) -> Iterator[Finding]:
    """Look at all steps that there were."""
    for event in last_steps(training, EARLY):
        yield from _judged(event, training)


def _judged(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    steps = data_parallel_sheets(event, training, EARLY)
    hooks = {each for step in steps for rank in step.ranks.values() for each in rank.hooks}
    if len(hooks) != 1:
        return
    ((name, file, number),) = hooks
    last = steps[-1]
    if name in ON_PURPOSE or any(each.exchanged("parameter") for each in steps):
        return
    if all(map(_own, steps)) and not _sends_besides(steps):
        message = f"the communication hook {name} gives each rank its own gradients back: nothing is averaged"
    elif all(map(_of_no_mean, steps)):
        message = f"the communication hook {name} gives the ranks different gradients, which are no mean of theirs"
    elif all(map(_scaled_apart, steps)):
        message = (
            f"the communication hook {name} gives the ranks gradients that each has multiplied by a number of its own"
        )
    else:
        return
    line = max((each for each in last.lines_that_tell if each.apart), key=lambda each: each.size)
    yield Finding(
        message,
        (*seen(line, last), Evidence(f"{name} stands in for DDP's all-reduce", "", f"{file}:{number}")),
        Fix(
            "return the mean of all ranks",
            diff=" def hook(group, bucket):\n"
            "+    tensor = bucket.buffer().div_(dist.get_world_size())\n"
            "+    return dist.all_reduce(tensor, async_op=True).get_future().then(lambda future: future.value()[0])",
        ),
        Place(file=file, line=number) if file else Place(),
    )


def _own(step: Sheet) -> bool:
    telling = step.lines_that_tell
    return bool(telling) and all(line.managed != NEVER and line.own for line in telling)


def _of_no_mean(step: Sheet) -> bool:
    """Whether the ranks are given different gradients, and no multiple of the mean: what a rank clips is one."""
    apart = [line for line in step.lines_that_tell if line.apart and line.managed != NEVER and line.size > 1]
    mixed = [line for line in apart if all(line.times_mean(rank) is line.times_own(rank) is None for rank in (0, 1))]
    return bool(mixed) and len(mixed) == len([line for line in step.lines_that_tell if line.size > 1])


def _scaled_apart(step: Sheet) -> bool:
    """Whether what a rank is given is a multiple of what another one is given, and not the same."""
    telling = [line for line in step.lines_that_tell if line.managed != NEVER and line.size > 1]
    return bool(telling) and all(line.apart and line.times_given(1) is not None for line in telling)


def _sends_besides(steps: list[Sheet]) -> bool:
    """Whether more is sent than the hook itself could send."""
    between = steps[-1].number - steps[0].number
    once = steps[-1].elements * (between + 1)
    return steps[-1].sent - steps[0].sent > once
