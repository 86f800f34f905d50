"""Some parameters took no part in the loss.

## What happens

In backward DDP waits for a gradient of every parameter that wants one. A parameter that the forward does not use, or
whose output does not reach the loss, never gets its gradient; the bucket that it sits in is never averaged, and the
next forward raises "Expected to have finished reduction in the prior iteration before starting a new one". With
`static_graph=True` DDP learns in the first step which parameters those are; where a later step uses others, backward
raises "Your training graph has changed in this iteration". Usual causes: an auxiliary head, a branch behind a flag, a
layer that was replaced but not removed.

## How to be sure

ddpdoctor takes a step with the bare model in which every output takes part in the loss, names
the parameters whose `.grad` is still None, and those of them whose layer runs while torch records no graph
(`torch.no_grad()`). Then it takes three steps under DDP, with the options that the file of the factory passes to
DDP. An output that the training's own loss leaves out cannot be seen here, since the loss is not known.

In a running training (`ddpdoctor run`) the names of what got no gradient are read from the model when DDP
raises, where all ranks that raise agree on them.

## How to mend it

Best first: use the parameters or delete them; freeze them before wrapping (`requires_grad_(False)`); or pass
`find_unused_parameters=True`, which walks the graph in every step, in the place of `static_graph=True` where the steps
use different parameters (LayerDrop, experts, losses in turns).

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation,
"DistributedDataParallel".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    UNUSED,
    Ailment,
    Ambiguity,
    Evidence,
    Failed,
    Finding,
    Fix,
    Log,
    Record,
    Severity,
    Training,
    log_pattern,
    place,
    probe,
    watch,
)

from .._logs import ALTERNATING, BY_HAND, NO_GRADIENT, beside, find_unused
from .._words import counted, end, listed
from ._mend import IN_FORWARD, diff_of, mend

if TYPE_CHECKING:
    from ddpdoctor.check import ModelExam

AILMENT = Ailment("DDP501", Severity.ERROR)


@probe
def in_a_small_job(model: ModelExam) -> Iterator[Finding]:
    """Yield what DDP waited for in vain, when it is the same on all ranks."""
    steps = model.steps
    steps.under_ddp()
    raised = steps.raised(UNUSED)
    unused = steps.plain[0].unused
    if not raised or any(step.unused != unused for step in steps.plain):
        return
    cut = [name for name in unused if name.rpartition(".")[0] in steps.plain[0].without_grad]
    proof = Evidence(end(raised[0]), "three steps go through", f"rank {raised[0].rank}, under DDP")
    without = Evidence(f"no gradient: {listed(unused)}", "a gradient", "a step of the bare model, on every rank")
    yield Finding(
        f"{counted(len(unused), 'parameter')} of {model.model.kind} got no gradient, so DDP stops at the second step: "
        + listed(unused)
        if unused
        else f"DDP misses gradients of {model.model.kind}, though without DDP every parameter got one: it stops",
        (without, *_without_graph(cut), proof) if unused else (proof,),
        mend(unused, cut, cured=dict(steps.remedies).get("find_unused_parameters")),
        ambiguity=None
        if unused
        else Ambiguity(
            (
                "layers that are skipped at random (LayerDrop, stochastic depth)",
                "experts chosen by the data",
                "a backward() within forward, which DDP does not see",
            ),
            "TORCH_DISTRIBUTED_DEBUG=INFO torchrun --nproc_per_node=2 train.py",
        ),
    )


def _without_graph(names: list[str]) -> Iterator[Evidence]:
    if names:
        seen = f"runs while torch records no graph: {listed([name.rpartition('.')[0] for name in names])}"
        yield Evidence(seen, "outside torch.no_grad(), and not in a reentrant checkpoint without gradient", "forward")


@watch(Failed)
def while_training(event: Failed, training: Training) -> Iterator[Finding]:
    """Name what had no gradient when DDP stopped, where the ranks agree on it."""
    if len({each.unused for each in training.of(Failed) if each.unused}) > 1:
        return
    framework = training.framework
    if event.unused and not event.changed and re.search(NO_GRADIENT, event.text):
        yield Finding(
            f"{counted(len(event.unused), 'parameter')} got no gradient, so DDP stops: " + listed(event.unused),
            (
                Evidence(
                    f"no gradient: {listed(event.unused)}", "a gradient", f"rank {event.rank}, before this forward"
                ),
            ),
            Fix(
                IN_FORWARD + "freeze them, or let DDP look for them",
                diff=diff_of(
                    event.unused, framework.unused if framework and framework.unused else find_unused(event.text)
                ),
            ),
            place(event.site, rank=event.rank),
        )


INDICES = r"Parameter indices which did not receive grad for rank (\d+): ([\d ]+)"
NAMES = r"Parameters which did not receive grad for rank (\d+): ([^\n]+)"
STATIC = r"not compatible with static_graph set to True"
SEARCHED = r"`find_unused_parameters=True` is enabled"


@log_pattern(NO_GRADIENT, context=(INDICES, NAMES, ALTERNATING))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Name the parameters as far as the ranks tell them, and the remedy that fits how DDP was told to search."""
    if beside(record, log, ALTERNATING):
        return
    told = [*log.find(NAMES)] or [*log.find(INDICES)]
    ranks = dict.fromkeys(f"rank {found[1]}: {found[2].strip()}" for _, found in told)
    kind = "parameters" if log.first(NAMES) else "the parameters with index"
    if re.search(STATIC, record.text):
        message = "with static_graph=True a parameter that the first step used got no gradient later"
        fix = Fix("let DDP search in each step", diff="-DDP(model, static_graph=True)\n+" + BY_HAND)
    elif re.search(SEARCHED, record.text):
        message = "DDP searched for unused parameters, and an output of forward took no part in the loss"
        fix = Fix("use every output of forward in the loss, or do not return it: return what the loss needs")
    else:
        message = "some parameters took no part in the loss"
        fix = _use_or_freeze(record)
    named = f"; no gradient for {kind} of {listed(list(ranks), 4)}" if ranks else ""
    proofs = [other.proof(found, "a gradient for every parameter") for other, found in told[:4]]
    yield Finding(message + named, (record.proof(match, "every parameter gets a gradient"), *proofs), fix, record.place)


@log_pattern(f"{NAMES}|{INDICES}", context=(NO_GRADIENT, NAMES))
def of_its_list_alone(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Read what stands below DDP's error, where the error itself is not in the log; of two lists that with names."""
    if log.first(NO_GRADIENT) or (match[3] and log.first(NAMES)):
        return
    named = (match[2] or f"index {match[4]}").strip()
    yield Finding(
        f"some parameters took no part in the loss; no gradient on rank {match[1] or match[3]} for {named}",
        (record.proof(match, "a gradient for every parameter"),),
        _use_or_freeze(record),
        record.place,
    )


def _use_or_freeze(record: Record) -> Fix:
    return Fix(
        "use these parameters or freeze them (requires_grad_(False)) before DDP wraps; or let DDP look for them",
        diff=f"+{find_unused(record.text)}",
    )


@log_pattern(r"Your training graph has changed in this iteration")
def where_the_graph_is_static(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """DDP has kept the order of the first step, and skips what that left out."""
    yield Finding(
        "with static_graph=True the steps use other parameters than the first one did",
        (record.proof(match, "each step uses the parameters of the first one"),),
        Fix(
            "let DDP search in each step (checkpoints with use_reentrant=False work with that, too); or have all steps "
            "use the same layers",
            diff="-DDP(model, static_graph=True)\n+" + BY_HAND,
        ),
        record.place,
    )
