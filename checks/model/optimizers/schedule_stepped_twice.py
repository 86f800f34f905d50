"""The learning rate's schedule is stepped by DeepSpeed's engine, and by the script as well.

## What happens

`engine.step()` steps the schedule that `deepspeed.initialize(lr_scheduler=...)` was given, or that the config names,
with each update of the model. A `scheduler.step()` beside it makes two steps of each: the warm-up is half as long, the
learning rate reaches its end in the middle of the training. Nothing fails.

## How to be sure

Print `engine.get_lr()` in each epoch. In a running training (`ddpdoctor run`) the schedule had moved on by one step
between two calls of `engine.step()`, several times in a row, and the file has the line that steps it. In a source
(`ddpdoctor lint`) the schedule is handed to `initialize`, and it, or the one that is returned, is stepped.

## How to mend it

Leave the schedule to the engine, or keep it to yourself: without `lr_scheduler=` and without `scheduler` in the config
the script steps it.

## Versions and sources

Source: DeepSpeed documentation, "Training API", learning rate scheduler; deepspeed/runtime/engine.py,
`_take_model_step`. Seen with DeepSpeed 0.19 and torch 2.13 CPU.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Fix,
    Place,
    ScheduleSteppedTwice,
    Severity,
    dotted,
    keyword,
    lint,
    tree_of,
    watch,
)

from ..._source import taken_out

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP1561", Severity.ERROR)
SCHEDULE = re.compile(r"sched", re.IGNORECASE)
MEND = "leave the schedule to the engine, which steps it with each update of the model"
PLACES = 4
"""What deepspeed.initialize returns: the engine first, the schedule last."""


@watch(ScheduleSteppedTwice)
def while_training(event: ScheduleSteppedTwice) -> Iterator[Finding]:
    """Name the line that steps a schedule, in the file that steps the engine."""
    line = _stepping(event.site.file) if event.site else None
    if event.rank != 0 or line is None or event.site is None:
        return
    yield Finding(
        f"{event.kind} makes two steps with each update: engine.step() steps it, and the script does so again",
        (
            Evidence(
                f"it had moved on by one step between calls of engine.step(), {event.times} times in a row",
                "it stands still between them",
                "rank 0",
            ),
            Evidence("engine.step()", "the only one that steps it", str(event.site)),
        ),
        Fix(MEND, diff=f"-{line[1]}"),
        Place(file=event.site.file, line=line[0]),
    )


def _stepping(file: str) -> tuple[int, str] | None:
    """Return the one line of a file that steps a schedule, and its code; None where there is none, or several."""
    found = [
        (node.lineno, ast.unparse(node))
        for node in tree_of(file).of(ast.Call)
        if isinstance(node.func, ast.Attribute)
        and node.func.attr == "step"
        and SCHEDULE.search(ast.unparse(node.func.value))
    ]
    return found[0] if len(found) == 1 else None


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for a step of the schedule that the engine was given, beside the engine's own."""
    for call in script.calls("deepspeed.initialize"):
        given = keyword(call, "lr_scheduler")
        match script.tree.parents.get(call):
            case ast.Assign(targets=[ast.Tuple(elts=elts)]) if len(elts) == PLACES and given is not None:
                engine = dotted(elts[0]) or ""
                if isinstance(given, ast.Constant):
                    continue
                names = {dotted(elts[-1]) or "", dotted(given) or ""} - {"", "_", "__"}
            case _:
                continue
        near = {None, script.function(call)}
        calls = [node for node in script.nodes(ast.Call) if script.function(node) in near]
        steps = {name: node for node in calls if (name := _steps(node))}
        for name in sorted(names & set(steps)):
            if engine in steps:
                yield Finding(
                    f"{name}.step() beside {engine}.step(), which steps the schedule that initialize was given",
                    (script.seen(steps[name], f"{engine}.step() alone"), script.seen(call)),
                    Fix(MEND, diff=f"-{script.code(steps[name])}", edits=taken_out(script, steps[name])),
                    script.place(steps[name]),
                )


def _steps(node: ast.Call) -> str:
    """Return the name of what a call steps; empty for other calls."""
    match node:
        case ast.Call(func=ast.Attribute(value=owner, attr="step")):
            return dotted(owner) or ""
    return ""
