"""Something that no optimizer trains, and that the training computes with, is not the same on all ranks.

## What happens

A training computes with more than what it trains: a frozen teacher, the fixed random network of an exploration bonus,
the class weights of a criterion, running means that a fine-tuning keeps, masks of pruned weights. DDP gives rank 0's
weights and buffers to all when it wraps a model, and does so with that model alone. What each rank draws at random
under a seed of its own, or computes from its own share of the data, stays different: every rank minimises another
loss, and the weights, which stay equal, are trained for none of them.

## How to be sure

ddpdoctor compares what is called between steps and held by no optimizer: parameters and buffers that have not changed
over three compared steps and are different on the ranks.

## How to mend it

Give rank 0's to all before the first step; compute statistics from the data of all ranks.

Silent where ranks do not train one model, where they send to each other within the model (pipelines, experts), where
code was compiled, and of what each rank computes with that is a plain attribute: whether a rank has to have the same
there, nothing tells.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, "Distributed Data Parallel",
internal design: the constructor broadcasts the state of the module that it is given.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Place, Severity, StepFingerprinted, Training, watch

from .._words import counted, listed
from ._used import Module, Seen, modules

AILMENT = Ailment("DDP1520", Severity.ERROR)
SURE = 3  # steps


@watch(StepFingerprinted)
def while_training(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    """Look for tensors that stay as they are on each rank, and are others on another."""
    for module in modules(event, training, SURE):
        told = _was_told(module)
        names = [each for each in module.tensors if _stays(each, SURE) and each.differs]
        if names and not told:
            yield _finding(module, names, event)


def _was_told(module: Module) -> bool:
    """Whether the step before has shown it already."""
    if len(module.tensors[0].prints) <= SURE:
        return False
    before = [Seen(each.name, each.is_parameter, each.prints[:-1]) for each in module.tensors]
    return any(_stays(each, SURE) and each.differs for each in before)


def _stays(each: Seen, steps: int) -> bool:
    last = each.prints[-steps:]
    return all(row == last[0] for row in last)


def _finding(module: Module, found: list[Seen], event: StepFingerprinted) -> Finding:
    used, names = module.used, [each.name for each in found]
    values = [each for each in found[0].prints[-1] if each]
    told = ", ".join(f"{each[0]:.4g} on rank {rank}" for rank, each in enumerate(values[:8]))
    what = counted(len(names), "parameter" if found[0].is_parameter else "buffer")
    return Finding(
        f"{used.kind}, which the training calls and does not train, is not the same on all ranks: {listed(names, 4)}",
        (
            Evidence(f"a projection of {names[0]}: {told}", "the same on all ranks", f"before step {event.number}"),
            Evidence(
                f"{what} of {used.kind} differ, and did not change since {SURE - 1} compared steps", "", "all ranks"
            ),
        ),
        Fix(
            "give rank 0's to all before the first step; compute statistics from the data of all ranks",
            diff="+for tensor in module.state_dict().values():  # or seed all ranks alike before it is built\n"
            "+    dist.broadcast(tensor, src=0)",
        ),
        Place(file=used.file, line=used.line),
    )
