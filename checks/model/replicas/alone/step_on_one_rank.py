"""One rank alone steps the optimizer or the scheduler.

## What happens

DDP averages gradients, not weights: the copies of the model stay equal only because each rank takes the same step
with the same learning rate. Where `optimizer.step()` stands behind `if rank == 0:`, only rank 0 learns; where it is
`scheduler.step()`, the learning rates part, and the weights with them. Nothing fails.

## How to be sure

Compare `optimizer.param_groups[0]["lr"]` and a weight of two ranks. Reported in a source where the step stands behind a
test that one rank alone passes, and the others step nowhere.

## How to mend it

Step on all ranks; leave only the output to rank 0.

## Versions and sources

Holds for torch 2.2 to 2.13; seen with torch 2.13 CPU. Source: torch/nn/parallel/distributed.py, which reduces gradients
alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import DDP, OTHER_RANKS, Ailment, Finding, Fix, Severity, lint

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script

AILMENT = Ailment("DDP556", Severity.ERROR)


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a step of what torch.optim made, behind a test that one rank alone passes."""
    if script.frameworks or not script.calls(DDP) or project.does("broadcast"):
        return
    for call in script.nodes(ast.Call):
        match call:
            case ast.Call(func=ast.Attribute(value=ast.Name() | ast.Attribute() as owner, attr="step")):
                kind = _kind(script, owner)
                guard = script.one_rank_guard(call) if kind else None
                if guard is not None and not _others_step(script, call):
                    name = script.code(owner)
                    yield Finding(
                        f"one rank alone steps {name}: the {kind} of the ranks part",
                        (script.seen(call, f"{name}.step() on all ranks"), script.seen(guard.test)),
                        Fix(f"step {name} outside of this branch"),
                        script.place(call),
                    )


def _kind(script: Script, owner: ast.Name | ast.Attribute) -> str:
    """Return what a step of this object changes; empty where it is not torch's."""
    held = script.held(owner)
    path = script.resolve(held.func) or "" if isinstance(held, ast.Call) else ""
    if path.startswith("torch.optim.lr_scheduler."):
        return "learning rates"
    return "weights" if path.startswith("torch.optim.") else ""


def _others_step(script: Script, call: ast.Call) -> bool:
    """Whether the same step stands elsewhere, where the other ranks can come to it."""
    code = script.code(call.func)
    same = [each for each in script.nodes(ast.Call) if each is not call and script.code(each.func) == code]
    return any(
        any(guard.who(script.tree) == OTHER_RANKS for guard in script.guards(each))
        or script.one_rank_guard(each) is None
        for each in same
    )
