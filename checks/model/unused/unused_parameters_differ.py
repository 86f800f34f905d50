"""Which parameters take part in the loss differs between ranks.

## What happens

DDP expects every rank to produce a gradient for the same parameters. Where one rank takes another branch (its
own task, its own data, a condition on the rank), one rank's bucket becomes complete and starts an all-reduce
for which the other never comes: a hang, or "Expected to have finished reduction in the prior iteration" on
the ranks that go on to the next step.

## How to be sure

ddpdoctor takes a step with the bare model on each rank, with that rank's example batch, and
compares which parameters got a gradient; then it takes three steps under DDP.

In a running training (`ddpdoctor run`) the names are read from the model when DDP raises, and compared between
the ranks.

## How to mend it

Make every rank use every parameter, adding the output of an unused branch times zero; or pass
`find_unused_parameters=True`, with which DDP averages a gradient of zero for what a rank did not use.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU, where the rank that used more hung in backward.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Failed,
    Finding,
    Fix,
    Log,
    Record,
    Returned,
    Severity,
    Table,
    Training,
    log_pattern,
    place,
    probe,
    watch,
)

from ..._findings.few import few
from .._words import counted, ends, listed

if TYPE_CHECKING:
    from ddpdoctor.check import ModelExam

AILMENT = Ailment("DDP502", Severity.ERROR)


@probe
def in_a_small_job(model: ModelExam) -> Iterator[Finding]:
    """Compare the ranks, and tell what DDP made of the difference."""
    steps = model.steps
    outcomes = steps.under_ddp()
    sets = [set(step.unused) for step in steps.plain]
    differing = sorted(name for name in set().union(*sets) if not all(name in unused for unused in sets))
    if not differing or all(isinstance(outcome, Returned) for outcome in outcomes):
        return
    yield Finding(
        f"{counted(len(differing), 'parameter')} of {model.model.kind} got a gradient on some ranks only: "
        + listed(differing),
        ends(outcomes, "three steps under DDP go through"),
        Fix(
            "let every rank use every parameter (the unused branch times zero), or let DDP look for the unused ones"
            + (" (tried here: three steps go through)" if steps.cured_by("find_unused_parameters") else ""),
            diff="-model = DDP(model)\n+model = DDP(model, find_unused_parameters=True)",
        ),
        table=Table(
            ("parameter", *(f"rank {rank}" for rank in range(len(sets)))),
            tuple((name, *("none" if name in unused else "gradient" for unused in sets)) for name in differing),
        ),
    )


STARTED = r"Expected to have finished reduction in the prior iteration"
WITHOUT = r"Parameter(?: indice)?s which did not receive grad for rank (\d+): ([^\n]+)"


@log_pattern(STARTED, context=(WITHOUT,), supersedes=("unused-parameters",))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Compare what the ranks say that they missed."""
    told = {found[1]: (found[2].strip(), other.proof(found)) for other, found in log.find(WITHOUT)}
    if len({names for names, _ in told.values()}) > 1:
        shown = few(told.items(), lambda each: each[1][0])
        yield Finding(
            "the ranks did not use the same parameters: "
            + "; ".join(f"rank {rank} not {names}" for rank, (names, _) in shown),
            (record.proof(match, "the same parameters on each rank"), *(proof for _, (_, proof) in shown)),
            SEARCH,
            record.place,
        )


@watch(Failed)
def while_training(event: Failed, training: Training) -> Iterator[Finding]:
    """Compare the names of what got no gradient on each rank."""
    told = {rank: each.unused for rank, each in training.by_rank(Failed).items() if each.unused}
    if event.unused and len(set(told.values())) > 1:
        names = sorted({name for unused in told.values() for name in unused})
        differing = [name for name in names if not all(name in unused for unused in told.values())]
        yield Finding(
            f"{counted(len(differing), 'parameter')} got a gradient on some ranks only: {listed(differing)}",
            tuple(
                Evidence(f"no gradient: {listed(unused)}", "the same on each rank", f"rank {rank}")
                for rank, unused in few(told.items(), lambda each: each[1])
            ),
            SEARCH,
            place(event.site, rank=event.rank),
        )


SEARCH = Fix(
    "let every rank use every parameter (an unused branch times zero), or let DDP look for unused ones",
    diff="-model = DDP(model)\n+model = DDP(model, find_unused_parameters=True)",
)
