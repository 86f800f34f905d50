"""One rank alone steps the optimizer or the scheduler.

## What happens

DDP averages gradients, not weights: the copies of the model stay equal only because each rank takes the same step
with the same learning rate. Where `optimizer.step()` stands behind `if rank == 0:`, only rank 0 learns; where it is
`scheduler.step()`, the learning rates part, and the weights with them. Nothing fails.

## How to be sure

Compare `optimizer.param_groups[0]["lr"]` and a weight of two ranks. Reported in a source where the step stands behind a
test that one rank alone passes, and the others step nowhere; with Horovod, whose optimizer waits for the others in each
step, of a schedule alone.

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

from ...._frameworks.horovod import OPTIMIZER

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script

AILMENT = Ailment("DDP556", Severity.ERROR)


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a step of what torch.optim made, behind a test that one rank alone passes."""
    by_horovod = script.frameworks == {"horovod"} and bool(script.calls(OPTIMIZER))
    if by_horovod and project.does(SENT_BY_HOROVOD):
        return
    if not by_horovod and (script.frameworks or not script.calls(DDP) or project.does("broadcast")):
        return
    for call in script.nodes(ast.Call):
        match call:
            case ast.Call(func=ast.Attribute(value=ast.Name() | ast.Attribute() as owner, attr="step")):
                kind = _kind(script, owner)
                is_told = kind and not (by_horovod and (kind == WEIGHTS or _is_sent_after(script, call)))
                guard = script.one_rank_guard(call) if is_told else None
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
    return WEIGHTS if path.startswith("torch.optim.") else ""


WEIGHTS = "weights"
SENT_BY_HOROVOD = r"\.broadcast\(|broadcast_object|broadcast_async"
"""What can send rank 0's learning rate to the others; the state of the optimizer is sent once, before the training."""


def _is_sent_after(script: Script, call: ast.Call) -> bool:
    """Whether the loop that a step stands in also sends rank 0's optimizer to the others."""
    loops = [each for each in script.tree.above(call) if isinstance(each, (ast.For, ast.While))]
    sent = script.calls("horovod.torch.broadcast_optimizer_state")
    return any(loop in script.tree.above(each) for each in sent for loop in loops)


def _others_step(script: Script, call: ast.Call) -> bool:
    """Whether the same step stands elsewhere, where the other ranks can come to it."""
    code = script.code(call.func)
    same = [each for each in script.nodes(ast.Call) if each is not call and script.code(each.func) == code]
    return any(
        any(guard.who(script.tree) == OTHER_RANKS for guard in script.guards(each))
        or script.one_rank_guard(each) is None
        for each in same
    )
