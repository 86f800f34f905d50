"""The gradients under DDP are not the mean of what each batch gives.

## What happens

After backward every rank must hold the mean of the ranks' gradients, and each rank's gradient must be what
its samples give, whichever rank they are on. Two ways in which that fails without an error:

- a gradient is not averaged although DDP wraps the model: an error, the ranks drift apart. A parameter named in
  `_ddp_params_and_buffers_to_ignore`, which some libraries set, is left out on purpose: a note.
- the forward depends on the rank: only rank 0 adds a regulariser, say. DDP then averages it with the other
  ranks' nothing and it counts 1/N. A warning, since it can be meant.

## How to be sure

ddpdoctor takes the gradients of one step three times from the same weights, buffers and
random numbers: under DDP, on each rank without DDP (then averaged by an all-reduce), and for all ranks'
batches one after the other in rank 0. A forward that itself calls collectives has no answer in one process
and is left alone.

## How to mend it

Compute in forward, with the same formula on every rank, and only log on rank 0.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Ambiguity, Evidence, Finding, Fix, Severity, Table, probe

from .._words import counted, listed

if TYPE_CHECKING:
    from ddpdoctor.check import Difference, ModelExam

AILMENT = Ailment("DDP515", Severity.ERROR)
ROWS = 6
REMAIN = Ambiguity(
    (
        "a layer in two reentrant checkpoints (gradient-added-after-exchange)",
        "a hook, or a backward within forward, that changes gradients after DDP has them",
    ),
    "grep -rnE 'checkpoint\\(|use_reentrant|register_hook|\\.backward\\(' --include='*.py' .",
)


@probe
def under_ddp(model: ModelExam) -> Iterator[Finding]:
    """Look for gradients that DDP did not average."""
    for rank, parity in enumerate(model.steps.compared()):
        if parity.averaged:
            names = {item.name for item in parity.averaged}
            yield Finding(
                f"DDP does not average the gradients of {counted(len(parity.averaged), 'parameter')}: "
                + listed([item.name for item in parity.averaged]),
                (_evidence(parity.averaged[0], "the mean over ranks", f"rank {rank}, {parity.mode}"),),
                Fix(
                    "let DDP have them, or average their gradients yourself after backward",
                    diff="+dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)\n optimizer.step()",
                ),
                severity=Severity.NOTE if names <= set(model.model.ignored) else Severity.ERROR,
                table=_table(parity.averaged, "DDP", "mean over ranks"),
                ambiguity=None if names & set(model.model.ignored) else REMAIN,
            )
            return


@probe
def of_each_rank(model: ModelExam) -> Iterator[Finding]:
    """Look for gradients that depend on which rank computes them."""
    parity = model.steps.compared()[0]
    if parity.alone:
        yield Finding(
            f"the same samples give other gradients on another rank: {listed([item.name for item in parity.alone])}",
            (_evidence(parity.alone[0], "the same batches in rank 0", f"mean over ranks, {parity.mode}"),),
            Fix(
                "compute the same on every rank",
                diff="-if dist.get_rank() == 0:\n-    loss = loss + penalty\n+loss = loss + penalty",
            ),
            severity=Severity.WARNING,
            table=_table(parity.alone, "mean over ranks", "all in rank 0"),
            ambiguity=Ambiguity(
                ("the forward, or the factory, has a condition on the rank", "ranks that differ on purpose"),
                "grep -nE 'get_rank|LOCAL_RANK|RANK|is_main' " + (model.source.file or model.target.module),
            ),
        )


def _evidence(item: Difference, expected: str, source: str) -> Evidence:
    return Evidence(
        f"the gradient of {item.name} has norm {item.seen:.4g}, off by {item.relative:.0%}",
        f"{item.expected:.4g}, {expected}",
        source,
    )


def _table(items: tuple[Difference, ...], seen: str, expected: str) -> Table:
    return Table(
        ("parameter", seen, expected, "difference"),
        tuple((item.name, f"{item.seen:.4g}", f"{item.expected:.4g}", f"{item.relative:.0%}") for item in items[:ROWS]),
    )
