"""Sets whose order can decide something: where a source makes them, and the loops that go through them."""

from __future__ import annotations

import ast
from pathlib import Path

from ddpdoctor.source.text.syntax import parsed

ORDERLESS = {"sorted", "len", "min", "max", "sum", "any", "all", "set", "frozenset", "isinstance"}
MAKERS = {"set", "frozenset"}
LARGEST = 500_000  # bytes of a file


def has_sets(file: str) -> bool:
    """Whether a file makes a set that is more than asked what it contains, itself or by the name that it is given."""
    if not _is_small(file):
        return False
    tree = parsed(file)
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    asked = _asked_names(tree, parents)
    return any(
        _is_set(node) and not _is_asked(parents.get(node)) and _name_of(parents.get(node)) not in asked
        for node in ast.walk(tree)
    )


def loops_through_sets(file: str) -> list[ast.For]:
    """Return the loops over a set, or over a name that was assigned one in the same file."""
    tree = parsed(file) if _is_small(file) else ast.Module([], [])
    names = {
        ast.unparse(target)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and _makes_set(node.value)
        for target in node.targets
    }
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.For)]
    return [each for each in loops if _makes_set(each.iter) or ast.unparse(each.iter) in names]


def _makes_set(node: ast.expr) -> bool:
    operators = (ast.Sub, ast.BitOr, ast.BitAnd, ast.BitXor)
    if isinstance(node, ast.BinOp) and isinstance(node.op, operators):
        return _makes_set(node.left) or _makes_set(node.right)
    return _is_set(node)


def _is_set(node: ast.AST) -> bool:
    called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MAKERS
    return called or isinstance(node, (ast.Set, ast.SetComp))


def _is_asked(parent: ast.AST | None) -> bool:
    """Whether what this has is only asked what it contains, or is brought into an order at once."""
    if isinstance(parent, ast.Compare):
        return True
    return isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name) and parent.func.id in ORDERLESS


def _name_of(parent: ast.AST | None) -> str:
    """Return the one name that a value is assigned to; empty where it is another expression's."""
    match parent:
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name
    return ""


def _asked_names(tree: ast.Module, parents: dict[ast.AST, ast.AST]) -> frozenset[str]:
    """Return the names that are only asked what they contain, wherever the file reads them."""
    read = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
    more = {node.id for node in read if not _is_asked(parents.get(node))}
    return frozenset({node.id for node in read} - more)


def _is_small(file: str) -> bool:
    try:
        return Path(file).stat().st_size <= LARGEST
    except OSError:
        return False
