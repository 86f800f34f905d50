"""The optimizer holds other parameters than those that the model trains.

## What happens

An optimizer keeps the parameter objects that it was given. Built on a copy of the model, on a model that was built
anew since, or before a layer was replaced, it steps what takes no part in the training; the model that DDP averages
gradients for never changes, or not in that layer. Nothing fails, the loss does not fall.

## How to be sure

In two steps after one another the optimizer's own parameters have no gradient, and parameters of the
wrapped model have one that no optimizer of the process holds. Or parameters that were frozen when DDP wrapped
the model are not any more, have a gradient, and are in no optimizer: an optimizer built from what
required a gradient then has not heard of them, nor has DDP. In a log: `optimizer.state_dict()` ends with "KeyError:
139787214408336", a number in the place of a name, where the optimizer has states of parameters that were replaced; and
Accelerate's `prepare` with FSDP2 says that a parameter in the optimizer couldn't be switched to its sharded version.

## How to mend it

Build the optimizer last, from the parameters of the model that is trained. An optimizer that was built
before DDP wrapped the same model is fine: DDP keeps the parameter objects.

Parameters that are left out of all optimizers on purpose are not reported while the optimizer's own have gradients,
unless a group of it holds nothing: what chose its parameters by name found none, as `name.startswith("backbone")` does
once the model is wrapped, where all names begin with `module.`.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, "torch.optim", constructing it.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import (
    LIGHTNING,
    Ailment,
    Ambiguity,
    Evidence,
    Finding,
    Fix,
    OptimizerSeen,
    Record,
    Severity,
    StepSampled,
    Training,
    log_pattern,
    place,
    watch,
)

from .._words import counted, listed
from ._empty_groups import of_an_empty_group

AILMENT = Ailment("DDP565", Severity.ERROR)
SURE = 3


@watch(StepSampled)
def while_training(event: StepSampled, training: Training) -> Iterator[Finding]:
    """Look at two steps after one another for parameters without a gradient here, with one there."""
    last = next(training.before(event, optimizer=event.optimizer, model=event.model), None)
    seen = training.of(OptimizerSeen, pid=event.pid, optimizer=event.optimizer, model=event.model)
    if event.number < SURE or last is None or not seen:
        return
    if event.thawed and last.thawed:
        yield _thawed(event, training)
        return
    if event.closure or not (event.unheld and last.unheld):
        return
    holds = seen[-1]
    model = f"{counted(len(event.unheld), 'parameter')} of the model with a gradient: {listed(event.unheld, 4)}"
    unheld = Evidence(model, "held by an optimizer", f"rank {event.rank}, right before step {event.number}")
    if event.model is None and holds.others and not event.active and not last.active:
        frozen = f", {len(holds.frozen)} of them frozen ones of the model" if holds.frozen else ""
        yield Finding(
            f"{holds.kind} steps parameters that take no part in the training, and none of the model's",
            (
                Evidence(
                    f"{counted(holds.others, 'parameter')} in {holds.kind}, none with a gradient{frozen}",
                    "the parameters that the model trains",
                    f"rank {event.rank}",
                ),
                unheld,
            ),
            _fix(holds.kind),
            place(event.site),
        )
    elif event.model is not None and holds.empty and not holds.gone and not event.idle:
        yield of_an_empty_group(event, holds)
    elif event.model is not None and (holds.gone or (event.idle and last.idle)):
        stale = f"no longer in the model: {listed(holds.gone, 4)}" if holds.gone else "without a gradient, of no model"
        yield Finding(
            f"{holds.kind} holds parameters of a layer that was replaced; the new one is in no optimizer",
            (
                Evidence(
                    f"{counted(len(holds.gone) or event.idle, 'parameter')} in {holds.kind} {stale}",
                    "the model's own",
                    f"rank {event.rank}",
                ),
                unheld,
            ),
            _fix(holds.kind),
            place(event.site),
        )


def _thawed(event: StepSampled, training: Training) -> Finding:
    """Return what was frozen when the model was wrapped, learns now, and is in no optimizer."""
    many = len(event.thawed) > 1
    return Finding(
        f"{counted(len(event.thawed), 'parameter')} that {'were' if many else 'was'} frozen when DDP wrapped the model "
        f"{'are' if many else 'is'} unfrozen, and in no optimizer: {listed(event.thawed, 4)}",
        (
            Evidence(
                f"with a gradient: {listed(event.thawed, 4)}",
                "held by an optimizer, and known to DDP",
                f"rank {event.rank}, right before step {event.number}",
            ),
        ),
        Fix(
            "give the optimizer all parameters, and freeze when DDP has wrapped the model: what was frozen before is "
            "never averaged",
            diff="-torch.optim.SGD([p for p in self.parameters() if p.requires_grad], lr=lr)\n"
            "+torch.optim.SGD(self.parameters(), lr=lr)   # what has no gradient is left as it is\n"
            + (
                " def __init__(self):\n-    self.backbone.requires_grad_(False)\n+def on_train_start(self):\n"
                "+    self.backbone.requires_grad_(False)"
                if training.framework is LIGHTNING
                else "-model.backbone.requires_grad_(False)\n model = DistributedDataParallel(model, "
                "find_unused_parameters=True)\n+model.module.backbone.requires_grad_(False)"
            ),
        ),
        place(event.site),
    )


def _fix(kind: str) -> Fix:
    return Fix(
        "build the optimizer from the model that is trained, after all changes to it",
        diff=f"+optimizer = torch.optim.{kind}(model.parameters(), lr=lr)\n for epoch in range(epochs):",
    )


@log_pattern(r"param_mappings\[id\(k\)\][^\n]*\n(?:[^\n]{0,200}\n){0,3}?[^\n]{0,40}KeyError: \d{6,}")
def in_logs(record: Record) -> Iterator[Finding]:
    """Its state dict asks for the number of a parameter that has a state, and that none of the groups holds."""
    yield Finding(
        "the optimizer has a state for a parameter that is in none of its groups",
        (record.proof(None, "states of the parameters that it holds"),),
        Fix(
            "build the optimizer after the model was wrapped or sharded, from the parameters of that one",
            diff="-optimizer = torch.optim.Adagrad(model.parameters(), lr=lr)\n model = wrap(model)\n"
            "+optimizer = torch.optim.Adagrad(model.parameters(), lr=lr)",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "its groups got other parameters after it had states (Adagrad has them at once): FSDP2, a new layer",
                "states were put into it by hand, for other parameters",
            ),
            "print([p.shape for p in optimizer.state if all(p is not q for g in optimizer.param_groups for q in "
            "g['params'])])   # above that line",
        ),
    )


@log_pattern(r"A parameter in the optimizer couldn't be switched to its sharded version")
def of_accelerate(record: Record) -> Iterator[Finding]:
    """FSDP2 has new parameters for those that the optimizer holds, and one of these is not of the model at hand."""
    yield Finding(
        "the optimizer holds a parameter that is not in the model that FSDP2 shards, as that is when it does so",
        (record.proof(None, "each parameter of the optimizer is one of the prepared model"),),
        Fix(
            "build the optimizer right before prepare, from that model, and prepare both in one call",
            diff=" model = change(model)   # adapters, tied weights, compile, checkpointing: all before\n"
            "+optimizer = AdamW(model.parameters(), lr=lr)\n model, optimizer = accelerator.prepare(model, optimizer)",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "the optimizer was built from another model, or before a layer of this one was replaced or moved",
                "two names of the model hold one parameter (tied weights), and sharding has parted them",
                "a version of Accelerate that looks parameters up by their address, which can change: upgrade it",
            ),
            "pip show accelerate | head -n 2; python -c 'import torch; print(torch.__version__)'",
        ),
    )
