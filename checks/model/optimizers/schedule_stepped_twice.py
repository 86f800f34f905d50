"""The learning rate's schedule is stepped by DeepSpeed's engine, and by the script as well.

## What happens

`engine.step()` steps the schedule that `deepspeed.initialize(lr_scheduler=...)` was given, or that the config names,
with each update of the model. A `scheduler.step()` beside it makes two steps of each: the warm-up is half as long, the
learning rate reaches its end in the middle of the training. Nothing fails.

## How to be sure

Print `engine.get_lr()` in each epoch. In a running training (`ddpdoctor run`) the schedule had moved on by one step
between two calls of `engine.step()`, several times in a row, and the file has the line that steps it. In a source
(`ddpdoctor lint`) the schedule is handed to `initialize`, and it, or the one that is returned, is stepped; or none is
handed, and the one that is returned is stepped: it is of the configuration, which the engine steps as well.

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
    given,
    is_open,
    lint,
    tree_of,
    watch,
)

from ..._scripts.source import taken_out

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP1561", Severity.ERROR)
SCHEDULE = re.compile(r"sched", re.IGNORECASE)
MEND = "leave the schedule to the engine, which steps it with each update of the model"


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
    """Look for a step of the schedule that the engine has, beside the engine's own.

    What initialize returns last is the schedule that it was given, else that of its configuration.
    """
    for call in script.calls("deepspeed.initialize"):
        schedule = given(call, LR_SCHEDULER, "lr_scheduler")
        match script.tree.parents.get(call):
            case ast.Assign(targets=[ast.Tuple(elts=[first, _, _, last])]) if not is_open(call):
                engine, returned = dotted(first) or "", dotted(last) or ""
            case _:
                continue
        if schedule is not None and not isinstance(schedule, ast.Constant):
            names, whose = {returned, dotted(schedule) or ""} - NOBODY, "the schedule that initialize was given"
        else:
            names, whose = {returned} - NOBODY, "the schedule of its configuration"
            names = {each for each in names if _is_stored_once(script, each)}
        steps = {name: node for node in _near(script, call, names) if (name := _steps(node))}
        if schedule is None:
            names -= {name for name in names & set(steps) if _is_asked_for(script, steps[name], name)}
        for name in sorted(names & set(steps)):
            if engine in steps:
                yield Finding(
                    f"{name}.step() beside {engine}.step(), which steps {whose}",
                    (script.seen(steps[name], f"{engine}.step() alone"), script.seen(call)),
                    Fix(MEND, diff=f"-{script.code(steps[name])}", edits=taken_out(script, steps[name])),
                    script.place(steps[name]),
                )


LR_SCHEDULER = 5
"""The place of the schedule among the arguments of deepspeed.initialize."""
NOBODY = {"", "_", "__"}


def _near(script: Script, call: ast.Call, names: set[str]) -> list[ast.Call]:
    """Return the calls in the function of a call, or in its class where an attribute holds what it has made."""
    owner = script.tree.class_of(call) if any(each.startswith("self.") for each in names) else None
    near = {None, script.function(call)}
    calls = script.nodes(ast.Call)
    return [each for each in calls if script.function(each) in near or (owner and script.tree.class_of(each) is owner)]


def _is_asked_for(script: Script, node: ast.Call, name: str) -> bool:
    """Whether a test asks for a schedule first: a configuration that names none leaves it None."""
    return any(name in script.code(each.test) for each in script.guards(node))


def _is_stored_once(script: Script, name: str) -> bool:
    """Whether one line of the file alone stores something under a name: a schedule of the script's own is another."""
    named: list[ast.Name | ast.Attribute] = [*script.nodes(ast.Name), *script.nodes(ast.Attribute)]
    return len([each for each in named if isinstance(each.ctx, ast.Store) and dotted(each) == name]) == 1


def _steps(node: ast.Call) -> str:
    """Return the name of what a call steps; empty for other calls."""
    match node:
        case ast.Call(func=ast.Attribute(value=owner, attr="step")):
            return dotted(owner) or ""
    return ""
