"""The loss is divided by the steps of accumulation twice: by the framework, and by the script.

## What happens

`accelerator.backward(loss)`, `engine.backward(loss)` of DeepSpeed, and Lightning with `accumulate_grad_batches` divide
each loss by the number of batches whose gradients are added up. A script that does so as well, as it would have to with
plain torch, makes the gradients k times too small: with SGD the learning rate is a k-th of the one that was set, with
Adam clipping, weight decay and epsilon weigh differently. Nothing fails.

## How to be sure

In a running training (`ddpdoctor run`) the loss that Accelerate or DeepSpeed is handed was divided, last of all, by
just as many steps, and a line of the file divides by a number that is named for accumulation, or by what `Accelerator`
is given. In a source (`ddpdoctor lint`) the divisor is the framework's own attribute, or what its constructor is given.

## How to mend it

Hand the loss over as it is:

    loss = criterion(model(inputs), targets)
    accelerator.backward(loss)          # or engine.backward(loss); in Lightning: return loss

## Versions and sources

Sources: Accelerate documentation, "Performing gradient accumulation"; deepspeed/runtime/engine.py, `backward`
(`scale_wrt_gas`); Lightning documentation, `accumulate_grad_batches`. Seen with accelerate 1.15, DeepSpeed 0.19 and
torch 2.13 CPU; in a running training with torch 2.10 and later.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    ACCELERATOR,
    Ailment,
    Evidence,
    Finding,
    Fix,
    LossDivided,
    Place,
    Severity,
    keyword,
    lint,
    tree_of,
    watch,
)

if TYPE_CHECKING:
    from ddpdoctor.check import Edit, Script

AILMENT = Ailment("DDP1562", Severity.WARNING)
LOSS = re.compile(r"loss|cross_entropy|criterion|model\(|engine\(", re.IGNORECASE)
ACCUMULATION = re.compile(r"accum|grad\w*_steps|\bgas\b", re.IGNORECASE)
STEPS = "gradient_accumulation_steps"
BACKWARD = {"Accelerate": "accelerator.backward(loss)", "DeepSpeed": "engine.backward(loss)"}
OF_LIGHTNING = "self.trainer.accumulate_grad_batches"
MEND = "hand the loss over as it is"


@watch(LossDivided)
def while_training(event: LossDivided) -> Iterator[Finding]:
    """Name the line that divides a loss by the steps of accumulation, in the file that calls the backward."""
    file = event.site.file if event.site else ""
    steps = {ast.unparse(each.value) for each in tree_of(file).of(ast.keyword) if each.arg == STEPS}
    codes = [(each, ast.unparse(_divisor(each))) for each in _divisions(file)]
    found = [each for each, code in codes if ACCUMULATION.search(code) or (code in steps and not code.isdigit())]
    if event.rank == 0 and found:
        where = Place(file=file, line=found[0].lineno)
        yield Finding(
            f"the loss is divided by {event.steps}, the steps of accumulation, and {event.framework} divides it again",
            (
                Evidence(ast.unparse(found[0]), "the loss of the batch", str(where)),
                Evidence(f"{BACKWARD[event.framework]} divides by {event.steps}", "", str(event.site)),
            ),
            Fix(MEND, diff=f"-{ast.unparse(found[0])}\n+{_undivided(found[0])}"),
            where,
        )


def _divisions(file: str) -> list[ast.BinOp | ast.AugAssign]:
    """Return what divides a loss in a file."""
    tree = tree_of(file)
    found: list[ast.BinOp | ast.AugAssign] = [*tree.of(ast.BinOp), *tree.of(ast.AugAssign)]
    return [each for each in found if isinstance(each.op, ast.Div) and LOSS.search(ast.unparse(_divided(each)))]


def _divided(node: ast.BinOp | ast.AugAssign) -> ast.expr:
    return node.left if isinstance(node, ast.BinOp) else node.target


def _divisor(node: ast.BinOp | ast.AugAssign) -> ast.expr:
    return node.right if isinstance(node, ast.BinOp) else node.value


def _undivided(node: ast.BinOp | ast.AugAssign) -> str:
    return ast.unparse(_divided(node))


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for a division by the framework's own number of steps, of a loss that is handed to its backward."""
    quotients: list[ast.BinOp | ast.AugAssign] = [*script.nodes(ast.BinOp), *script.nodes(ast.AugAssign)]
    for node in quotients:
        if not isinstance(node.op, ast.Div) or not LOSS.search(ast.unparse(_divided(node))):
            continue
        owner = _owner(script, node)
        if owner and (owner == "Lightning" or _is_handed_over(script, node)):
            yield Finding(
                f"the loss is divided by the steps of accumulation, and {owner} divides it again",
                (script.seen(node, "the loss of the batch"),),
                Fix(MEND, diff=f"-{script.code(node)}\n+{_undivided(node)}", edits=(_without(script, node),)),
                script.place(node),
            )


def _without(script: Script, node: ast.BinOp | ast.AugAssign) -> Edit:
    """Return the edit after which the loss stays as it is."""
    if isinstance(node, ast.AugAssign):
        return script.removed(node, script.tree.block(node))
    return script.replaced(node, ast.get_source_segment(script.text, node.left) or ast.unparse(node.left))


def _owner(script: Script, node: ast.BinOp | ast.AugAssign) -> str:
    """Return the framework whose number of steps a loss is divided by; empty where that is not certain."""
    divisor = _divisor(node)
    code = ast.unparse(divisor)
    function = script.function(node)
    if code == OF_LIGHTNING:
        return "Lightning" if getattr(function, "name", "") == "training_step" and _is_returned(script, node) else ""
    match divisor:
        case ast.Attribute(attr="gradient_accumulation_steps", value=owner) if script.made_by(owner, ACCELERATOR):
            return "" if _is_one(script) else "Accelerate"
        case ast.Call(func=ast.Attribute(attr="gradient_accumulation_steps"), args=[]):
            return "DeepSpeed" if script.calls("deepspeed.initialize") else ""
    given = [steps for call in script.calls(ACCELERATOR) if (steps := keyword(call, STEPS))]
    named = bool(given) and isinstance(divisor, (ast.Name, ast.Attribute, ast.Subscript))
    return "Accelerate" if named and all(ast.unparse(each) == code for each in given) else ""


def _is_one(script: Script) -> bool:
    """Whether Accelerate is told, in figures, that nothing is accumulated: to divide by it changes nothing."""
    given = [keyword(call, STEPS) for call in script.calls(ACCELERATOR)]
    held = [script.constant(each) if each is not None else None for each in given]
    return bool(held) and all(each is not None and each.value == 1 for each in held)


def _is_handed_over(script: Script, node: ast.BinOp | ast.AugAssign) -> bool:
    """Whether what is divided goes into a framework's backward: at once, or by a name, later in the block."""
    name = _target(script, node)
    for call in script.nodes(ast.Call):
        match call:
            case ast.Call(func=ast.Attribute(attr="backward"), args=[given, *_]) if given is node or (
                isinstance(given, ast.Name) and given.id == name and call.lineno > node.lineno
            ):
                return script.function(call) is script.function(node)
    return False


def _is_returned(script: Script, node: ast.BinOp | ast.AugAssign) -> bool:
    """Whether a step returns what is divided, as it is or by its name."""
    name = _target(script, node)
    if isinstance(script.tree.parents.get(node), ast.Return):
        return True
    returns = [each for each in script.nodes(ast.Return) if script.function(each) is script.function(node)]
    return bool(name) and any(isinstance(each.value, ast.Name) and each.value.id == name for each in returns)


def _target(script: Script, node: ast.BinOp | ast.AugAssign) -> str:
    """Return the name that a quotient is given; empty where it has none."""
    if isinstance(node, ast.AugAssign):
        return node.target.id if isinstance(node.target, ast.Name) else ""
    match script.tree.parents.get(node):
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name
    return ""
