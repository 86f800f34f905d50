"""What a source sums over an evaluation that is shared out: where, and what becomes of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddpdoctor.check import Evidence

from ...._frameworks.accelerate import prepared_loaders as prepared_abroad
from ...._scripts.evaluation import evaluations, is_evaluation
from ...._scripts.source import gives_all, is_own, prepared_loaders, sharded_loaders
from ._reducing import REDUCED
from ._reductions import can_be_reduced, is_of_known_code

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script, Tree


HOROVOD = {"horovod", "horovod.torch"}
"""Whose scripts make their loaders, and reduce what these have summed, by themselves."""


def unreduced(script: Script, project: Around, *, framework: bool = False) -> Iterator[tuple[ast.For, str, Evidence]]:
    """Yield the loops that evaluate a rank's share, what each sums, and the sampler, where nobody can reduce it."""
    found = [*by_names(script, framework=framework), *by_flow(script, project, framework=framework)]
    loops = {loop for loop, _, _ in found}
    known = {"accelerate"} if framework else HOROVOD
    left = {loop for loop in loops if not is_of_known_code(script, project, loop, known=known)}
    somewhere = project.does(REDUCED)
    for loop, held, sampler in found:
        if loop not in left and not (somewhere and can_be_reduced(script, loop, held)):
            yield loop, held, sampler


def by_names(script: Script, *, framework: bool) -> Iterator[tuple[ast.For, str, Evidence]]:
    """Yield the loops of evaluations whose loaders are found by their names, what they sum, and the sampler."""
    for name, sampler in (*sharded_loaders(script), *(prepared_loaders(script) if framework else ())):
        for loop, held in evaluations(script, name):
            yield loop, held, script.seen(sampler)


def by_flow(script: Script, project: Around, *, framework: bool = False) -> Iterator[tuple[ast.For, str, Evidence]]:
    """Yield those of this file that a sampler of the project comes to, or a loader that Accelerate has shared out."""
    for each in (*shared_loops(script, project), *prepared_loops(script, project, framework=framework)):
        for held in sums(script, each.loop):
            yield each.loop, held, each.sampler


@dataclass(frozen=True, slots=True)
class Shared:
    """A loop that evaluates a rank's share, the sampler, and the calls that hand its samples on to the loop."""

    loop: ast.For
    sampler: Evidence
    handed: AbstractSet[ast.AST]


def shared_loops(script: Script, project: Around) -> Iterator[Shared]:
    """Yield the loops of this file without gradients that a sampler of the project comes to."""
    if not is_own(script, known=HOROVOD) or not project.says("no_grad|inference_mode"):
        return
    for path, tree in ((script.path, script.tree), *project.trees("DistributedSampler")):
        for call in tree.of(ast.Call):
            if script.is_sampler(tree, call) and not gives_all(call):
                for loop in _evaluating(script, script.passes(tree, call)):
                    yield Shared(loop, _seen(path, call), script.handed(tree, call))


def prepared_loops(script: Script, project: Around, *, framework: bool) -> Iterator[Shared]:
    """Yield the loops of this file without gradients through a loader that Accelerate has shared out."""
    known = {"accelerate"} if framework else set()
    if (
        not is_own(script, known=known)
        or not project.says(r"\.prepare\(")
        or not project.says("no_grad|inference_mode")
    ):
        return
    for path, tree in ((script.path, script.tree), *project.trees(r"\.prepare\(")):
        for call, reads in prepared_abroad(script, tree):
            for loop in _evaluating(script, script.passes_of_part(tree, call, reads)):
                yield Shared(loop, _seen(path, call), frozenset())


def _evaluating(script: Script, passes: list[tuple[Tree, ast.For]]) -> Iterator[ast.For]:
    for there, loop in passes:
        is_here = there is script.tree and not script.learns(loop)
        if is_here and (is_evaluation(script, "", loop) or _has_no_gradients(script, loop)):
            yield loop


def _seen(path: str, call: ast.Call) -> Evidence:
    return Evidence(" ".join(ast.unparse(call).split()), "", f"{path}:{call.lineno}")


def sums(script: Script, loop: ast.For) -> Iterator[str]:
    """Yield what a loop adds up: numbers, also of a dict, lists, tensors that grow, and meters of the project."""
    for node in script.inside(*loop.body):
        match node:
            case ast.AugAssign(target=ast.Name(id=held) | ast.Subscript(value=ast.Name(id=held)), op=ast.Add()):
                yield held
            case ast.Assign(targets=[ast.Name(id=held)], value=value) if _grows(script, held, value):
                yield held
            case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=held) as kept, slice=ast.Name(id=turn))]):
                if turn == _counter(loop) and MADE.match(_maker(script, kept)):
                    yield held
            case ast.Expr(
                value=ast.Call(func=ast.Attribute(value=ast.Name(id=held) as kept, attr="update"), args=[_, *_])
            ):
                if _is_meter(script, kept) and "time" not in script.code(node):
                    yield held
            case ast.Call(func=ast.Attribute(value=ast.Name(id=held) as kept, attr="append" | "extend")):
                if isinstance(script.value(kept), ast.List):
                    yield held


MADE = re.compile(r"(?:torch|numpy)\.(?:zeros|empty|full|ones)$")
"""What makes the tensor that is filled by the number of the turn: ``losses[k] = loss.item()``."""


def _counter(loop: ast.For) -> str | None:
    """Return the variable that counts the turns of ``for k, batch in enumerate(loader)``."""
    match loop:
        case ast.For(target=ast.Tuple(elts=[ast.Name(id=name), *_]), iter=ast.Call(func=ast.Name(id="enumerate"))):
            return name
    return None


def _maker(script: Script, node: ast.Name) -> str:
    made = script.held(node)
    return (script.resolve(made.func) or "") if isinstance(made, ast.Call) else ""


def is_list(script: Script, loop: ast.For, held: str) -> bool:
    """Whether a loop puts something into a list of this name in each turn."""
    filled = [each.func for each in script.inside(*loop.body) if isinstance(each, ast.Call)]
    return any(
        isinstance(each, ast.Attribute) and each.attr in {"append", "extend"} and ast.unparse(each.value) == held
        for each in filled
    )


GROWN = re.compile(r"(?:torch|numpy)\.(?:cat|concat|concatenate|append|hstack|vstack)$")


def _grows(script: Script, held: str, value: ast.expr) -> bool:
    """Whether a variable is given what it holds and more: ``hits = hits + right``, ``torch.cat([all, part])``."""
    match value:
        case ast.BinOp(left=left, op=ast.Add(), right=right) if not isinstance(right, ast.Constant):
            return any(isinstance(each, ast.Name) and each.id == held for each in (left, right))
        case ast.Call(func=function, args=[ast.List(elts=parts) | ast.Tuple(elts=parts), *_] | [*parts]):
            is_one = any(isinstance(each, ast.Name) and each.id == held for each in parts)
            return is_one and GROWN.match(script.resolve(function) or "") is not None and _is_used(script, held, value)
    return False


def _is_used(script: Script, held: str, value: ast.AST) -> bool:
    """Whether the function calculates with a tensor behind the line that grows it, and does not only hand it out."""
    around = script.function(value) or script.module
    later = [each for each in script.inside(around) if getattr(each, "lineno", 0) > getattr(value, "lineno", 0)]
    sums = [each for each in later if isinstance(each, (ast.Call, ast.BinOp, ast.Compare))]
    return any(isinstance(part, ast.Name) and part.id == held for each in sums for part in ast.walk(each))


def _is_meter(script: Script, node: ast.Name) -> bool:
    """Whether a variable holds an object of a class of the project that adds up what it is told, for itself alone."""
    made = script.held(node)
    owner = script.names_class(made.func) if isinstance(made, ast.Call) else None
    if owner is None and isinstance(made, ast.Call) and script.tree.abroad is not None:
        found = script.tree.abroad(script.resolve(made.func) or "")
        owner = found[1] if found is not None and isinstance(found[1], ast.ClassDef) else None
    if owner is None or re.search(rf"{REDUCED}|dist|rank", ast.unparse(owner)):
        return False
    told = next((each for each in owner.body if isinstance(each, ast.FunctionDef) and each.name == "update"), None)
    added = [each.target for each in ast.walk(told) if isinstance(each, ast.AugAssign)] if told is not None else []
    return any(isinstance(each, ast.Attribute) for each in added) or (told is not None and _is_told_on(told))


def _is_told_on(update: ast.FunctionDef) -> bool:
    """Whether a meter is a set of meters: what it is told it tells one of those that it holds."""
    given = {each.arg for each in update.args.args}
    return any(
        isinstance(each, ast.Call)
        and isinstance(each.func, ast.Attribute)
        and each.func.attr == "update"
        and ast.unparse(each.func.value).startswith("self.")
        and any(isinstance(part, ast.Name) and part.id in given for part in each.args)
        for each in ast.walk(update)
    )


def _has_no_gradients(script: Script, loop: ast.For) -> bool:
    """Whether a loop computes within ``with torch.no_grad():``."""
    inner = [each for each in script.inside(*loop.body) if isinstance(each, ast.With)]
    words = [ast.unparse(item.context_expr) for each in inner for item in each.items]
    return any("no_grad" in each or "inference_mode" in each for each in words)
