"""The optimizers of the ranks remember different things, of parameters whose gradients are averaged.

## What happens

Momentum and the averages of Adam are part of each step. Where one rank has loaded them from a checkpoint and another
has not, or has them of another training, or builds its optimizer anew alone, the ranks are given the same gradients and
make different steps: the replicas drift apart, without an error, and one of them is saved.

## How to be sure

ddpdoctor compares before sampled steps what the optimizers of all ranks remember, by key: of how many parameters, and
its norm. Gradients, weights and options were equal until then.

Of ZeroRedundancyOptimizer, which shares its state out to the ranks, it looks on which of them `load_state_dict` was
called, when the training has ended. Silent for others that do so (whoever communicates in the step), where there are
groups of some ranks, and where gradients are not exchanged.

## How to mend it

Load the state of the optimizer on every rank, from the same file; DDP gives weights to all ranks, not states:

    checkpoint = torch.load("last.pt", map_location="cpu")
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: torch/optim/optimizer.py, `load_state_dict`; PyTorch
documentation, "DistributedDataParallel".
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Ended,
    Evidence,
    Finding,
    Fix,
    OptimizerLoaded,
    ParametersHeld,
    Severity,
    StepFingerprinted,
    Training,
    place,
    watch,
)

from ..._ledgers.ledger import built
from ..._ledgers.sheets import NEVER
from .._alike import earlier, of_one_model, states_alone_differ, states_differ

AILMENT = Ailment("DDP1500", Severity.ERROR)
SHARED = "ZeroRedundancyOptimizer"
READ = 16_384  # numbers of a tensor that are looked at
FIX = Fix(
    "load the optimizer's state on every rank",
    diff="-if rank == 0:\n-    optimizer.load_state_dict(checkpoint['optimizer'])\n"
    "+optimizer.load_state_dict(checkpoint['optimizer'])",
)
ANEW = Fix(
    "build the optimizer anew on every rank, or on none",
    diff="-if rank == 0:\n-    optimizer = torch.optim.Adam(model.parameters())\n"
    "+optimizer = torch.optim.Adam(model.parameters())",
)


@watch(StepFingerprinted)
def while_training(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    """Compare the states before one step, where nothing else has differed so far."""
    ranks, held = of_one_model(event, training), built(event, training)
    if not ranks or held is None:
        return
    key = states_alone_differ(event, training, held.kind)
    if not key or any(states_differ(each, held.kind) for each in earlier(event, training)):
        return  # told there, or a consequence
    told = {rank: next((each for each in step.state if each[0] == key), None) for rank, step in ranks.items()}
    loads = {
        rank: loaded[-1]
        for rank, step in ranks.items()
        if (loaded := training.of(OptimizerLoaded, pid=step.pid, optimizer=event.optimizer))
    }
    part = f" of the first {READ:,} numbers of each" if max(held.sizes, default=0) > READ else ""
    some = bool(loads) and len(loads) < len(ranks)
    first = next(iter(loads.values())) if some else event
    yield Finding(
        f"{key} of {held.kind} differs between the ranks, which step with the same gradients: the replicas diverge",
        (
            *(
                Evidence(
                    f"{key} of {each[1]} parameters, norm {each[2]:.6g}{part}" if each else f"no {key}",
                    "the same on all ranks",
                    f"rank {rank}, before step {event.number}",
                )
                for rank, each in list(told.items())[:8]
            ),
            *(
                Evidence(f"load_state_dict of {held.kind}", "on all ranks", f"{each.site}, rank {rank}")
                for rank, each in (list(loads.items())[:4] if some else [])
            ),
        ),
        FIX,
        place(first.site),
    )


@watch(Ended)
def at_the_end(training: Training) -> Iterator[Finding]:
    """Look for an optimizer of a wrapped model that only some ranks have built."""
    held = training.of(ParametersHeld)
    ranks = {each.rank for each in held}
    for each in {each.optimizer: each for each in held if any(of != NEVER for of in each.managed)}.values():
        owners = {other.rank for other in held if other.optimizer == each.optimizer}
        models = {of for of in each.managed if of != NEVER}
        before = [other for other in held if other.optimizer < each.optimizer and models & {*other.managed}]
        if len(ranks) > 1 and owners < ranks == {other.rank for other in before} and len(ranks) == training.world_size:
            shown = ", ".join(str(rank) for rank in sorted(rank for rank in owners if rank is not None))
            yield Finding(
                f"{each.kind} is built anew on rank {shown} alone: what it remembers of its steps is gone there",
                (
                    Evidence(
                        f"{each.kind} of {len(each.names)} parameters", "on all ranks", f"rank {shown}, {each.site}"
                    ),
                    Evidence(f"{before[-1].kind} of the same model", "", f"all ranks, {before[-1].site}"),
                ),
                ANEW,
                place(each.site),
            )


@watch(Ended)
def of_shares(training: Training) -> Iterator[Finding]:
    """Look for a state that each rank keeps its share of, and that some ranks alone were given."""
    ranks = {each.rank for each in training.of(StepFingerprinted)}
    if len(ranks) != training.world_size:
        return
    shared = [each for each in training.of(OptimizerLoaded) if each.kind == SHARED]
    for loaded in {each.optimizer: each for each in shared}.values():
        owners = {each.rank for each in training.of(OptimizerLoaded, optimizer=loaded.optimizer)}
        if owners < ranks:
            shown = ", ".join(str(rank) for rank in sorted(rank for rank in owners if rank is not None))
            left = ", ".join(str(rank) for rank in sorted(rank for rank in ranks - owners if rank is not None))
            yield Finding(
                f"the state of {SHARED} is loaded on rank {shown} alone: each rank keeps a share of it, and that of "
                f"rank {left} begins anew",
                (
                    Evidence(f"load_state_dict of {SHARED}", "on all ranks", f"{loaded.site}, rank {shown}"),
                    Evidence("none before its steps", "", f"rank {left}"),
                ),
                FIX,
                place(loaded.site),
            )
