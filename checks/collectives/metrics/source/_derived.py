"""What is made of names within a function: calculated from them, filled with them, or set behind a test of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ddpdoctor.check import dotted

if TYPE_CHECKING:
    from ddpdoctor.check import Script

TELLING = re.compile(
    r"^(?:print|torch\.|dist\.)|(?:log|logger|logging|writer|wandb|bar|pbar)\.|\.(?:write|info|debug)$"
)
"""What is given something to show it or to write it: it holds none of it."""


def derived(script: Script, around: ast.AST, names: Iterable[str], *, arguments: bool = True) -> set[str]:
    """Return names and attributes of a function that hold any of these, or what is made of them, on any way.

    ``arguments``: a call on a line of its own is taken to fill what it is handed, and not only what it belongs to.
    """
    found, statements = set(names), list(script.inside(around))
    while True:
        made = {each for statement in statements for each in _made(script, statement, found, arguments=arguments)}
        if made <= found:
            return found
        found |= made


def stored(script: Script, node: ast.AST) -> set[str]:
    """Return the names and attributes that a node gives a value, or fills by a call of its own line."""
    return {name for each in script.inside(node) for name in _targets(script, each, arguments=True)}


def reads(node: ast.AST, names: set[str]) -> bool:
    """Whether any of these is read in a node."""
    return any(isinstance(each, (ast.Name, ast.Attribute)) and dotted(each) in names for each in ast.walk(node))


def _made(script: Script, statement: ast.AST, names: set[str], *, arguments: bool) -> set[str]:
    match statement:
        case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value) | ast.NamedExpr(value=value):
            return _targets(script, statement, arguments=arguments) if reads(value, names) else set()
        case ast.AugAssign():
            return _targets(script, statement, arguments=arguments) if reads(statement.value, names) else set()
        case ast.For(iter=iterated):
            return _names_of(statement.target) if reads(iterated, names) else set()
        case ast.If(test=test) | ast.While(test=test):
            inner = script.inside(statement) if reads(test, names) else ()
            return {name for each in inner for name in _targets(script, each, arguments=arguments)}
        case ast.Expr(value=ast.Call() as call):
            given = [*call.args, *(each.value for each in call.keywords)]
            return (
                _targets(script, statement, arguments=arguments) if any(reads(each, names) for each in given) else set()
            )
    return set()


def _targets(script: Script, statement: ast.AST, *, arguments: bool) -> set[str]:
    """Return what a statement gives a value; of a call on a line of its own the object that it belongs to."""
    match statement:
        case ast.Assign(targets=targets):
            return {name for each in targets for name in _names_of(each)}
        case ast.AnnAssign(target=target) | ast.AugAssign(target=target) | ast.NamedExpr(target=target):
            return _names_of(target)
        case ast.Expr(value=ast.Call(func=function, args=args)) if not TELLING.search(ast.unparse(function)):
            owner = function.value if isinstance(function, ast.Attribute) else function
            filled = (owner, *args) if arguments else (owner,)
            return {name for each in filled if (name := dotted(each)) and name != "self" and _can_hold(script, each)}
    return set()


def _can_hold(script: Script, node: ast.expr) -> bool:
    """Whether something can be kept in it: not in a module, or a function, that is called by its name."""
    while isinstance(node, ast.Attribute):
        node = node.value
    bindings = script.tree.lookup(node.id, node) if isinstance(node, ast.Name) else []
    return not any(each.path or isinstance(each.node, ast.FunctionDef) for each in bindings)


def _names_of(target: ast.expr) -> set[str]:
    """Return the names and attributes that are stored in; of ``seen[0]`` the list itself."""
    match target:
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return {name for each in parts for name in _names_of(each)}
        case ast.Starred(value=inner) | ast.Subscript(value=inner):
            return _names_of(inner)
    name = dotted(target)
    return {name} if name else set()
