"""Which functions of a project make the process group, and what a call of one runs."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from ddpdoctor.source.reach.guards import guards
from ddpdoctor.source.text.bindings import dotted
from ddpdoctor.source.text.names import resolve
from ddpdoctor.source.values.bound import definition, returned, values
from ddpdoctor.source.values.sites import SPAWN

if TYPE_CHECKING:
    from ddpdoctor.source.text.tree import Defined, Tree

JOINS = re.compile(
    r"\b(?:init_process_group|DistributedDataParallel)(?:\s*\(| as (?P<alias>\w+))|\b(?:spawn|start_processes)\s*\("
    r"|import[^\n]*\bspawn\b"
    r"|\bAccelerator\("
)
"""What a training of several ranks says, beyond an import that it can leave unused.

`set_start_method("spawn")` is about the workers of a loader.
"""


def says_it_joins(text: str) -> bool:
    """Whether a file says that it trains in several ranks; an import under another name counts where that is called."""
    names = (each["alias"] for each in JOINS.finditer(text))
    return any(name is None or re.search(rf"\b{name}\s*\(", text) for name in names)


def run_by(tree: Tree, called: Defined) -> ast.FunctionDef | None:
    """Return the function that a call of something runs: of a class, its ``__init__``."""
    if isinstance(called, ast.FunctionDef):
        return called
    made = [each.node for each in tree.bindings.get(called, {}).get("__init__", [])]
    return made[0] if len(made) == 1 and isinstance(made[0], ast.FunctionDef) else None


LEVELS = 2  # helpers that call each other before the group is made


def makes_group(tree: Tree, function: ast.AST, levels: int = LEVELS) -> bool:
    """Whether a function makes the process group, itself or through others of the project."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            if resolve(tree, node.func) == "torch.distributed.init_process_group":
                return True
            there = definition(tree, node.func) if levels else None
            if there is not None and there[1] is not function and makes_group(*there, levels - 1):
                return True
    return False


def called(tree: Tree, call: ast.Call) -> ast.expr:
    """Return what a call calls: of one that starts ranks, the function that they run."""
    return call.args[0] if call.args and resolve(tree, call.func) in SPAWN else call.func


def meanings(tree: Tree, node: ast.expr) -> list[str]:
    """Return the full names of what an expression can name: several where imports under other tests bind it.

    Imports under a test that can depend on the rank are left out.
    """
    if (name := resolve(tree, node)) is not None:
        return [name]
    bindings = tree.lookup(node.id, node) if isinstance(node, ast.Name) else []
    if not all(each.path for each in bindings):
        return []
    plain = [each for each in bindings if not any(guard.is_rankish(tree) for guard in guards(tree, each.node))]
    return sorted({each.path for each in plain})


def factories(tree: Tree, owner: ast.ClassDef) -> list[ast.FunctionDef]:
    """Return the functions of a file that return a new object of a class of it, and nothing else."""
    made = [each for each in tree.of(ast.Return) if isinstance(each.value, ast.Call)]
    found = {tree.function(each) for each in made if _makes(tree, each.value, owner)}
    return [
        each
        for each in found
        if isinstance(each, ast.FunctionDef)
        and tree.class_of(each) is None
        and all(_makes(tree, answer, owner) for answer in returned(tree, each))
    ]


def _makes(tree: Tree, node: ast.expr | None, owner: ast.ClassDef) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return False
    return [each.node for each in tree.lookup(node.func.id, node)] == [owner]


def asked(tree: Tree, made: ast.Call, method: str) -> list[ast.Call]:
    """Return the calls of a method of what a call makes: at once, or by the variable that holds nothing else.

    But for what is made of the variable itself, which it takes: ``net = net.to(device)``, ``net = wrap(net)``.
    """
    found = []
    for node in tree.members.get(method, ()):
        call = tree.parents[node]
        held = node.value
        if isinstance(held, ast.Name | ast.Attribute):
            name = dotted(held)
            bindings = [each for each in values(tree, held) if not _is_made_of(each.value, name)]
            held = bindings[0].value or held if len(bindings) == 1 else held
        if held is made and isinstance(call, ast.Call) and call.func is node:
            found.append(call)
    return found


def _is_made_of(value: ast.expr | None, name: str | None) -> bool:
    """Whether a value is what a call makes of a variable: by a method of it, or of it as the first argument."""
    match value:
        case ast.Call(func=ast.Attribute(value=owner)) if dotted(owner) == name:
            return True
        case ast.Call(args=[first, *_]):
            return dotted(first) == name
    return False
