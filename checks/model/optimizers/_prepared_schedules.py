"""Schedules that Accelerate has prepared, and that a script steps once an epoch."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import ACCELERATOR, is_open, keyword

from ..._frameworks.accelerate import is_of_several_processes, prepares

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script, Tree

OF_EPOCHS = frozenset(
    f"torch.optim.lr_scheduler.{name}"
    for name in (
        "StepLR", "MultiStepLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "ExponentialLR", "LinearLR",
        "PolynomialLR", "SequentialLR",
    )
)  # fmt: skip
"""Schedules that are laid out by numbers alone; a function of LambdaLR can do anything."""
OF_RANKS = re.compile(r"process|world|gpu|rank|replica|device", re.IGNORECASE)
"""Words of a schedule that is laid out for the steps of all processes."""
ONCE = ("split_batches", "step_scheduler_with_optimizer", "dataloader_config")
"""Arguments of an Accelerator by which a prepared schedule can make one step a call."""


def stepped_each_epoch(script: Script, project: Around) -> Iterator[tuple[ast.Call, ast.expr]]:
    """Yield the calls of ``step`` of a prepared schedule in a loop over epochs, each with what makes the schedule."""
    if "deepspeed" in script.text or project.says(r"split_batches|step_scheduler_with_optimizer"):
        return
    for call in script.nodes(ast.Call):
        match call:
            case ast.Call(func=ast.Attribute(attr="step", value=ast.Name() | ast.Attribute() as owner), args=[]):
                made = [*_prepared(script, owner)]
                if made and _is_each_epoch(script, call) and is_of_several_processes(script, project):
                    yield call, made[0]


def _prepared(script: Script, owner: ast.expr) -> Iterator[ast.expr]:
    """Yield what makes a schedule that a name can hold, and that goes through ``prepare``."""
    for there, made in script.origins(script.tree, owner):
        is_made = isinstance(made, ast.Call) and script.names_in(there, made.func) in OF_EPOCHS
        if is_made and not OF_RANKS.search(ast.unparse(made)) and _is_prepared(script, there, made):
            yield made


def _is_prepared(script: Script, tree: Tree, made: ast.expr) -> bool:
    """Whether the variable that a schedule is assigned to is given to ``prepare`` later, and takes what it returns."""
    assigned = tree.statement(made)
    if not isinstance(assigned, ast.Assign) or assigned.value is not made or len(assigned.targets) != 1:
        return False
    name = ast.unparse(assigned.targets[0])
    for call in prepares(script, tree):
        taken = tree.statement(call)
        targets = taken.targets if isinstance(taken, ast.Assign) else []
        is_taken = name in {ast.unparse(each) for one in targets for each in ast.walk(one)}
        is_behind = call.lineno > made.lineno and tree.function(call) is tree.function(made)
        if is_behind and is_taken and name in {ast.unparse(each) for each in call.args}:
            begun = [each for each in tree.of(ast.Call) if script.names_in(tree, each.func) == ACCELERATOR]
            return not any(_steps_once(each) for each in begun)
    return False


def _steps_once(accelerator: ast.Call) -> bool:
    return is_open(accelerator) or any(keyword(accelerator, name) is not None for name in ONCE)


def _is_each_epoch(script: Script, step: ast.Call) -> bool:
    """Whether a call stands in a loop that goes through the batches in another one, which is not around the call."""
    around = next((each for each in script.tree.above(step) if isinstance(each, (ast.For, ast.While))), None)
    if around is None or script.function(around) is not script.function(step) or not _counts_epochs(around):
        return False
    for node in ast.walk(around):
        if isinstance(node, ast.For) and node is not around and script.learns(node):
            return True
        found = script.defined(node.func) if isinstance(node, ast.Call) else None
        loops = [each for each in ast.walk(found[1]) if isinstance(each, ast.For)] if found is not None else []
        if any(".backward(" in ast.unparse(each) for each in loops):
            return True
    return False


def _counts_epochs(loop: ast.For | ast.While) -> bool:
    said = [loop.test] if isinstance(loop, ast.While) else [loop.target, loop.iter]
    return any("epoch" in ast.unparse(each).lower() for each in said)
