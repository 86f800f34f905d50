"""Which variables hold a wrapped model, at which lines."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddpdoctor.source.reach.alone import is_alone
from ddpdoctor.source.reach.guards import guards
from ddpdoctor.source.text.names import resolve
from ddpdoctor.source.text.tree import FUNCTIONS
from ddpdoctor.source.training.wraps.settled import settled
from ddpdoctor.source.values.arguments import argument, passed
from ddpdoctor.source.values.bound import function_named, returned, values
from ddpdoctor.source.vocabulary import DATA_PARALLEL, DDP

if TYPE_CHECKING:
    from ddpdoctor.source.text.bindings import Binding
    from ddpdoctor.source.text.tree import Tree

KINDS = {
    DDP: "DistributedDataParallel",
    DATA_PARALLEL: "DataParallel",
}
SAME_OBJECT = {"to", "cuda", "cpu", "train", "eval", "half", "float", "bfloat16", "double"}
"""Methods of a module that return the module itself."""
DEPTH = 6


@dataclass(frozen=True, slots=True)
class Wrap:
    """A call that wraps a model; ``sure`` where every way to the line that was asked about goes through it.

    ``in_ranks`` where every way does that ranks take: it stands behind a flag that holds where there are several.
    """

    kind: str
    call: ast.Call
    sure: bool
    in_ranks: bool = False

    @property
    def line(self) -> int:
        """The line of the call."""
        return self.call.lineno


def made(tree: Tree, node: ast.expr) -> Wrap | None:
    """Return the wrap that an expression itself is: ``DDP(model)`` or ``DDP(model).to(device)``."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in SAME_OBJECT:
        node = node.func.value
    if isinstance(node, ast.Call) and node.args and resolve(tree, node.func) == "torch.compile":
        return made(tree, node.args[0])
    if isinstance(node, ast.Call) and (kind := KINDS.get(resolve(tree, node.func) or "")):
        return Wrap(kind, node, sure=True, in_ranks=True)
    return None


def wrap_at(tree: Tree, node: ast.expr, depth: int = DEPTH) -> Wrap | None:
    """Return how the model is wrapped that an expression holds, where the node stands; None where it is not."""
    if (wrap := made(tree, node)) is not None or depth == 0:
        return wrap
    bindings = values(tree, node)
    if bindings and all(isinstance(each.node, ast.arg) for each in bindings):
        return _passed(tree, bindings[0], depth)
    in_force = possible(tree, bindings, node)
    if len(in_force) == 1 and isinstance(in_force[0].node, ast.arg):
        return _passed(tree, in_force[0], depth)
    found = [_of_binding(tree, each, depth) for each in in_force]
    wraps = [each for each in found if each is not None]
    if not wraps:
        return None
    kinds = [each for each in wraps if each.kind == "DistributedDataParallel"] or wraps
    if _is_denied(tree, node, kinds[0].kind):
        return None
    is_sure = all(each is not None and each.sure for each in found)
    in_ranks = is_sure or (found[0] is not None and found[0].in_ranks and _is_by_flag(tree, in_force[0], node))
    return Wrap(kinds[0].kind, kinds[0].call, is_sure, in_ranks)


def _is_by_flag(tree: Tree, binding: Binding, node: ast.expr) -> bool:
    """Whether every rank passes a binding before a node: what stands before it holds where there are several."""
    shared = {id(each.test) for each in guards(tree, node)}
    own = [each for each in guards(tree, binding.node) if id(each.test) not in shared]
    return all(is_alone(tree, each.test, holds=not each.holds) for each in own)


def _is_denied(tree: Tree, node: ast.expr, kind: str) -> bool:
    """Whether a node is reached only where a test has said that what it holds is not wrapped."""
    text = ast.unparse(node)
    for guard in guards(tree, node) if isinstance(node, (ast.Name, ast.Attribute)) else ():
        match guard.test:
            case ast.Call(func=ast.Name(id="isinstance"), args=[asked, named]) if not guard.holds:
                words = {(resolve(tree, each) or "").rpartition(".")[2] for each in ast.walk(named) if _is_name(each)}  # type: ignore[arg-type]
            case ast.Call(func=ast.Name(id="hasattr"), args=[asked, ast.Constant(value="module")]) if not guard.holds:
                words = {kind}
            case _:
                continue
        if kind in words and ast.unparse(asked) == text:
            return True
    return False


def _is_name(node: ast.AST) -> bool:
    return isinstance(node, (ast.Name, ast.Attribute))


def _of_binding(tree: Tree, binding: Binding, depth: int) -> Wrap | None:
    if binding.value is None:
        return _by_helper(tree, binding.whole, depth, binding.part) if binding.whole is not None else None
    if isinstance(binding.value, (ast.Name, ast.Attribute)) or made(tree, binding.value):
        return wrap_at(tree, binding.value, depth - 1)
    if isinstance(binding.value, ast.Call) and resolve(tree, binding.value.func) == "torch.compile":
        return wrap_at(tree, binding.value.args[0], depth - 1) if binding.value.args else None
    if isinstance(binding.value, ast.Call) and (handed := _handed_back(tree, binding.value)) is not None:
        return wrap_at(tree, handed, depth - 1)
    return _by_helper(tree, binding.value, depth) if isinstance(binding.value, ast.Call) else None


def _by_helper(tree: Tree, call: ast.Call, depth: int, part: int | None = None) -> Wrap | None:
    """Return the wrap that a function of the file returns on all its ways, or as a part of what it returns.

    ``model = wrapped(model)``, and ``model, optimizer = build()``.
    """
    function = function_named(tree, call.func)
    if not isinstance(function, ast.FunctionDef):
        return None
    answers = [each if part is None else part_of(each, part) for each in returned(tree, function)]
    found = [wrap_at(tree, each, depth - 1) if each is not None else None for each in answers]
    wraps = [each for each in found if each is not None and each.kind == "DistributedDataParallel"]
    if not wraps or len(wraps) < len(found):
        return None
    return Wrap(wraps[0].kind, wraps[0].call, all(each.sure for each in wraps), all(each.in_ranks for each in wraps))


def part_of(answer: ast.expr, part: int) -> ast.expr | None:
    """Return a part of a tuple that a function returns."""
    parts = answer.elts if isinstance(answer, ast.Tuple) else []
    return parts[part] if part < len(parts) and not any(isinstance(each, ast.Starred) for each in parts) else None


def _handed_back(tree: Tree, call: ast.Call) -> ast.expr | None:
    """Return the argument that a function of the file returns as it was given: ``model = train(model, loader)``."""
    function = function_named(tree, call.func)
    if not isinstance(function, ast.FunctionDef):
        return None
    names = {each.id if isinstance(each, ast.Name) else "" for each in returned(tree, function)}
    bound = tree.bindings.get(function, {}).get(next(iter(names), ""), [])
    if len(names) != 1 or len(bound) != 1 or not isinstance(bound[0].node, ast.arg):
        return None
    return argument(call, function, bound[0].node.arg, spawned=False)


def _passed(tree: Tree, parameter: Binding, depth: int) -> Wrap | None:
    """Return the wrap that all callers pass; None where one passes something else, or callers are not all seen."""
    handed = passed(tree, parameter) or ()
    several = [each for each in handed if not _is_of_one_process(tree, each)]
    found = [wrap_at(tree, given, depth - 1) for given in several]
    if not found or any(each is None for each in found):
        return None
    first = found[0]
    assert first is not None  # noqa: S101 - just asked
    is_sure = len(several) == len(handed) and all(each is not None and each.sure for each in found)
    in_ranks = all(each is not None and each.in_ranks for each in found)
    return Wrap(first.kind, first.call, is_sure, in_ranks)


def _is_of_one_process(tree: Tree, node: ast.expr) -> bool:
    """Whether a node is reached only where there is one process alone, in its function."""
    return any(each.is_alone(tree) for each in guards(tree, node))


def possible(tree: Tree, bindings: list[Binding], node: ast.expr) -> list[Binding]:
    """Return the bindings that can be in force at a node, the last one first."""
    function = tree.function(node)
    here = [each for each in bindings if tree.function(each.node) is function]
    if here and isinstance(node, ast.Attribute) and len(here) != len(bindings):
        return settled(tree, bindings, node)  # another method changes it as well
    if not here:
        homes = {tree.function(each.node) for each in bindings}
        if len(homes) != 1:
            return settled(tree, bindings, node) if isinstance(node, ast.Attribute) else []
        return _until_certain(tree, bindings, None)
    before = [each for each in here if each.line <= node.lineno and not _holds(each.node, node, tree)]
    return _until_certain(tree, [each for each in before if not exclusive(tree, each.node, node)], node)


def _holds(statement: ast.AST, node: ast.AST, tree: Tree) -> bool:
    """Whether a node is part of the statement that binds it."""
    return any(each is statement for each in tree.above(node)) and not isinstance(statement, (*FUNCTIONS, ast.For))


def _until_certain(tree: Tree, bindings: list[Binding], node: ast.expr | None) -> list[Binding]:
    """Return the last bindings, back to one that is passed on every way."""
    found: list[Binding] = []
    for binding in sorted(bindings, key=lambda each: each.line, reverse=True):
        if any(exclusive(tree, binding.node, each.node) and not each.value for each in found):
            continue
        found.append(binding)
        if is_passed(tree, binding.node, node):
            break
    return found


def is_passed(tree: Tree, statement: ast.AST, node: ast.AST | None) -> bool:
    """Whether the block of a statement is one that a later node stands in as well; of no node, a whole function."""
    here = tree.statement(statement) or statement
    parent = tree.parents.get(here)
    while isinstance(parent, ast.If) and _ends_otherwise(parent, here):
        here, parent = parent, tree.parents.get(parent)
    if node is None:
        return isinstance(parent, (*FUNCTIONS, ast.Module))
    holders = set(tree.above(node))
    if isinstance(parent, (ast.With, ast.AsyncWith)):
        return True
    return parent in holders


def _ends_otherwise(branch: ast.If, statement: ast.AST) -> bool:
    """Whether the other branch of an ``if`` than that of a statement ends in an exception."""
    other = branch.orelse if statement in branch.body else branch.body
    return bool(other) and isinstance(other[-1], ast.Raise)


def exclusive(tree: Tree, first: ast.AST, second: ast.AST) -> bool:
    """Whether two nodes stand in different branches of one ``if``, so that only one of them is reached."""
    above = {parent: child for child, parent in _ways(tree, first)}
    for child, parent in _ways(tree, second):
        if isinstance(parent, ast.If) and parent in above:
            one, two = above[parent], child
            if (one in parent.body and two in parent.orelse) or (one in parent.orelse and two in parent.body):
                return True
    return False


def _ways(tree: Tree, node: ast.AST) -> list[tuple[ast.AST, ast.AST]]:
    found = []
    for parent in tree.above(node):
        found.append((node, parent))
        node = parent
    return found
