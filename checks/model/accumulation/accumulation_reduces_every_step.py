"""Gradients are accumulated over several steps, and reduced in each of them.

## What happens

Where `optimizer.step()` comes every k-th step only, DDP still averages the gradients of all ranks in every backward: k
times the communication, k - 1 of them for nothing. The result is right, so this is a note.

## How to be sure

In a source (`ddpdoctor lint`): the step of the optimizer stands behind a test of `% k`, the backward does not, and
nothing in reach speaks of `no_sync` or `require_backward_grad_sync`.

## How to mend it

    with model.no_sync() if (i + 1) % k else contextlib.nullcontext():
        loss = criterion(model(inputs), targets) / k
        loss.backward()

The forward has to stand in the block as well. `ddpdoctor run --profile 50 -- COMMAND` measures what they take: where
those before the last are more than a fifth of the step, and 5 ms, it says so with the figures; where the ranks wait for
cores, by how many exchanges of a step are for nothing.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: PyTorch documentation, `DistributedDataParallel.no_sync`.
"""

from __future__ import annotations

import ast
import re
import statistics
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    DDP,
    STARVED,
    Ailment,
    Evidence,
    Finding,
    Fix,
    LineKind,
    LinesSampled,
    Place,
    Profiled,
    Severity,
    StepFingerprinted,
    StepsTimed,
    Training,
    lint,
    tree_of,
    watch,
)

from ..._findings.places import line_of_last
from ..._findings.profiled import step_seconds

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script

AILMENT = Ailment("DDP552", Severity.NOTE)
LARGE = 0.2  # of a step
LEAST = 0.005  # seconds of a step
SHOWN = 4  # ranks


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a loop whose optimizer steps every k-th time, and whose backward reduces each time."""
    for node in script.nodes(ast.Call) if script.calls(DDP) and not script.frameworks else ():
        match node:
            case ast.Call(func=ast.Attribute(attr="step", value=ast.Name(id=name))) if name.startswith("opt"):
                loop = next((each for each in script.tree.above(node) if isinstance(each, (ast.For, ast.While))), None)
                test = next((each.test for each in script.guards(node) if _counts(each.test)), None)
                backward = _backward(script, loop) if loop is not None and test is not None else None
                if backward is None or test is None or project.does("no_sync|require_backward_grad_sync"):
                    continue
                yield Finding(
                    "gradients are accumulated, and all ranks average them in every step",
                    (script.seen(backward, "model.no_sync() in all steps but the last"), script.seen(test)),
                    Fix("skip the reduction in all steps but the last", diff=MEND),
                    script.place(backward),
                )


@watch(StepsTimed)
def while_training(event: StepsTimed, training: Training) -> Iterator[Finding]:
    """Compare what the backward waits for with the step, where each step has several that reduce."""
    measured = training.complete(Profiled)
    each_waits = [min(each) / 1e9 for each in zip(*(each.exposed for each in measured.values()), strict=False)]
    times = min((round(min(each.synced, each.backwards)) for each in measured.values()), default=0)
    if not each_waits or times < 2:  # noqa: PLR2004 - as it has to be
        return
    total = step_seconds(measured)
    lost = statistics.median(each_waits) * (times - 1)
    if lost < LEAST or lost / total < LARGE:
        return
    busy = any(each.starved > STARVED for each in event.ranks)  # then the wait is none of a machine of their own
    yield Finding(
        f"each step of the optimizer has {times} backwards, and all ranks average the gradients in each of them: "
        + (
            f"{times - 1} of {times} exchanges are for nothing"
            if busy
            else f"about {1e3 * lost:.0f} of {1e3 * total:.0f} ms a step, {lost / total:.0%}, are waiting for nothing"
        ),
        tuple(
            Evidence(
                f"{each.synced:.1f} forwards a step outside no_sync(); the last backward waits "
                f"{statistics.median(each.exposed) / 1e6:.0f} ms for communication",
                "" if rank else "1 forward a step outside no_sync()",
                f"rank {rank}, {len(each.total)} steps",
            )
            for rank, each in list(measured.items())[:SHOWN]
        ),
        *_fix(training),
    )


def _fix(training: Training) -> tuple[Fix, Place]:
    """Return how the reduction is skipped, and where: the line of the backward, by the counter of its own loop."""
    lines = [line for told in training.by_rank(LinesSampled).values() for line in told.sampled]
    line = next((each for each in lines if each.kind == LineKind.BACKWARD), None)
    said = "skip the reduction in all steps but the last"
    if line is None:
        return Fix(said, diff=MEND), line_of_last(StepFingerprinted, training)
    diff = MEND
    for loop in sorted(tree_of(line.file).of(ast.For), key=lambda each: -each.lineno):
        if loop.lineno < line.line <= (loop.end_lineno or 0):
            match loop:
                case ast.For(target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="range"), args=[count])):
                    if not re.search(r"\.step\(", ast.unparse(loop)):
                        last = f"{name} + 1 < {ast.unparse(count)}"
                        diff = MEND.replace("(i + 1) % k", last).replace(" / k", " / ...")
            break
    return Fix(f"{said}; the forward belongs into the block, too", diff=diff), Place(file=line.file, line=line.line)


MEND = "+with model.no_sync() if (i + 1) % k else contextlib.nullcontext():\n     loss = criterion(model(x), y) / k"


def _counts(test: ast.expr) -> bool:
    return any(isinstance(each, ast.BinOp) and isinstance(each.op, ast.Mod) for each in ast.walk(test))


def _backward(script: Script, loop: ast.AST) -> ast.Call | None:
    """Return the backward of a loop that trains a wrapped model in every step."""
    nodes = [*script.inside(loop)]
    wraps = [script.wrap(node.func) for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    if not any(each is not None and each.sure and each.kind == "DistributedDataParallel" for each in wraps):
        return None
    found = [node for node in nodes if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".backward")]
    return found[0] if len(found) == 1 and not any(_counts(each.test) for each in script.guards(found[0])) else None
