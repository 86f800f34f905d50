"""Classes that inherit from another: which of its methods run in their objects."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddpdoctor.source.text.tree import Tree


def passes_on(tree: Tree, heir: ast.ClassDef, method: str) -> bool:
    """Whether a call of this method on an object of a class runs that of the class it inherits from.

    It does where the class has none of its own, or one whose first level calls ``super().method(...)``.
    """
    own = [each.node for each in tree.bindings.get(heir, {}).get(method, [])]
    return not own or any(_calls_super(each, method) for node in own for each in getattr(node, "body", ()))


def _calls_super(statement: ast.stmt, method: str) -> bool:
    match statement:
        case ast.Expr(value=ast.Call(func=called)) | ast.Return(value=ast.Call(func=called)):
            return (
                isinstance(called, ast.Attribute)
                and called.attr == method
                and isinstance(called.value, ast.Call)
                and isinstance(called.value.func, ast.Name)
                and called.value.func.id == "super"
            )
    return False
