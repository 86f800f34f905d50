"""What a name of a source holds: what it was given, what a helper returns, what the command line says."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from ddpdoctor.source.text.bindings import Binding, dotted
from ddpdoctor.source.text.names import LONGEST, resolve
from ddpdoctor.source.text.tree import FUNCTIONS
from ddpdoctor.source.values.handed import handed
from ddpdoctor.source.values.sites import made_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddpdoctor.source.text.tree import Function, Tree

OPTIONS = re.compile(r"^(args?|opts?|options?|cfg|conf|config|hparams|flags|params|parser)$", re.IGNORECASE)
"""Names of what holds the options of a run."""
GETTERS = {"os.environ.get", "os.getenv", "os.environ.setdefault"}


def variable(tree: Tree, node: ast.expr) -> str | None:
    """Return the name of the environment variable that an expression reads, as the text that it is."""
    match node:
        case ast.Subscript(value=value, slice=ast.Constant(value=str(name))):
            return name if resolve(tree, value) == "os.environ" else None
        case ast.Call(func=function, args=[ast.Constant(value=str(name)), *_]):
            return name if resolve(tree, function) in GETTERS else None
    return None


def values(tree: Tree, node: ast.expr) -> list[Binding]:
    """Return what can stand in a variable or an attribute."""
    if isinstance(node, ast.Name):
        return tree.lookup(node.id, node)
    text = dotted(node)
    return tree.attributes.get((tree.owner(node, text), text), []) if text else []


def at(tree: Tree, node: ast.expr) -> list[Binding]:
    """Return what can stand in a variable where it is read: what the line above gave it, or any that gives it some."""
    held = values(tree, node)
    if len(held) == 1 or not isinstance(node, ast.Name):
        return held
    function = tree.function(node)
    above = [each for each in held if each.line < node.lineno and tree.function(each.node) is function]
    last = max(above, key=lambda each: each.line, default=None)
    if last is None or last.value is None or not isinstance(last.node, ast.Assign):
        return held
    blocks = [getattr(tree.parents[last.node], name, ()) for name in ("body", "orelse", "finalbody")]
    block = next((each for each in blocks if isinstance(each, list) and last.node in each), [])
    return [last] if any(each in block for each in tree.above(node)) else held


def given(tree: Tree, binding: Binding) -> list[tuple[Tree, ast.expr]] | None:
    """Return what a binding can hold, each with its tree; None where one of them cannot be seen.

    That is what all callers pass for a parameter, and what the function returns in this place of a tuple that
    ``rank, size = setup()`` takes apart.
    """
    if isinstance(binding.node, ast.arg):
        return handed(tree, binding)
    if binding.value is not None:
        return [(tree, binding.value)]
    parts: list[tuple[Tree, ast.expr]] = []
    for there, each in answers(tree, binding.whole.func) if binding.whole is not None else ():
        if not isinstance(each, ast.Tuple) or len(each.elts) <= binding.part:
            return None
        parts.append((there, each.elts[binding.part]))
    return parts or None


def origins(tree: Tree, node: ast.expr, depth: int = 4) -> Iterator[tuple[Tree, ast.expr]]:
    """Yield what a name can hold, each with its tree: through other names, and what callers pass for a parameter."""
    for binding in values(tree, node):
        for there, each in given(tree, binding) or ():
            if depth and isinstance(each, (ast.Name, ast.Attribute)) and values(there, each):
                yield from origins(there, each, depth - 1)
            else:
                yield there, each


def attribute(tree: Tree, base: ast.expr, name: str, depth: int = 4) -> list[tuple[Tree, ast.expr]] | None:
    """Return what an attribute of an object can hold: set where the object is known, by this name or by the callers'.

    None where one of them cannot be seen: ``config.rank`` in a function to which all callers pass a ``CFG`` of which
    the file has set ``CFG.rank``.
    """
    text = f"{dotted(base)}.{name}"
    bindings = tree.attributes.get((tree.owner(base, text), text), [])
    sources = [given(tree, each) for each in bindings]
    if not bindings and depth and isinstance(base, ast.Name):
        parameters = tree.lookup(base.id, base)
        if len(parameters) != 1 or not isinstance(parameters[0].node, ast.arg):
            return None
        sources = [attribute(there, each, name, depth - 1) for there, each in handed(tree, parameters[0]) or []]
    if not sources or any(each is None for each in sources):
        return None
    return [pair for each in sources if each is not None for pair in each]


def value(tree: Tree, node: ast.expr) -> ast.expr:
    """Return the expression that a variable was given, where it is given only one; else the node itself."""
    for _ in range(LONGEST):
        bindings = values(tree, node) if isinstance(node, (ast.Name, ast.Attribute)) else []
        if len(bindings) != 1 or bindings[0].value is None:
            break
        node = bindings[0].value
    return node


def is_of_options(node: ast.Attribute) -> bool:
    """Whether an attribute is one of the options of a run, by the names before it: ``args.x``, ``self.cfg.train.x``."""
    return any(OPTIONS.match(each) for each in (dotted(node.value) or "").split("."))


def function_named(tree: Tree, node: ast.expr) -> Function | None:
    """Return the function of the file that an expression calls: by its plain name, or as a method of ``self``."""
    match node:
        case ast.Name(id=name):
            found = [each.node for each in tree.lookup(name, node)]
        case ast.Attribute(value=ast.Name(id=base) as thing, attr=name):
            owner = tree.class_of(node) if base in {"self", "cls"} else made_of(tree, thing)
            found = [each.node for each in tree.bindings.get(owner, {}).get(name, [])] if owner else []
        case _:
            return None
    return found[0] if len(found) == 1 and isinstance(found[0], FUNCTIONS) else None


def definition(tree: Tree, node: ast.expr) -> tuple[Tree, Function] | None:
    """Return the function that an expression calls, of this file or of the project, and the tree that it stands in."""
    if (named := function_named(tree, node)) is not None:
        return tree, named
    if tree.abroad is None or (path := resolve(tree, node)) is None or "." not in path:
        return None
    found = tree.abroad(path)
    return (found[0], found[1]) if found is not None and isinstance(found[1], ast.FunctionDef) else None


def answers(tree: Tree, node: ast.expr) -> list[tuple[Tree, ast.expr]]:
    """Return what the function that an expression calls returns, each with the tree that it stands in."""
    found = definition(tree, node)
    return [(found[0], each) for each in returned(*found)] if found is not None else []


def returned(tree: Tree, function: Function) -> Iterator[ast.expr]:
    """Yield the expressions that a function returns."""
    if isinstance(function, ast.Lambda):
        yield function.body
        return
    for node in tree.of(ast.Return):
        if node.value is not None and tree.function(node) is function:
            yield node.value
