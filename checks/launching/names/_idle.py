"""Functions that a script defines, and neither it nor another file names: nobody comes to their lines."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script

BY_NAME = re.compile(r"\bsys\.modules\b|\b__main__\.|\bfire\b")
"""What can call a function of the file whose name is not written out."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def is_idle(script: Script, project: Around, node: ast.AST) -> bool:
    """Whether a line is in such a function of a script that runs by itself, and that no other file imports."""
    top = next((each for each in script.tree.above(node) if script.tree.parents.get(each) is script.tree.module), None)
    if not isinstance(top, FUNCTIONS) or top.decorator_list or not _runs(script):
        return False
    return not _is_named(script, top) and not project.is_imported()


def _runs(script: Script) -> bool:
    """Whether the file begins something when it is run, behind ``if __name__ == "__main__"``."""
    tests = (each.test for each in script.tree.module.body if isinstance(each, ast.If))
    return any("__name__" in script.code(each) for each in tests)


def _is_named(script: Script, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether the file names a function outside of it: in its code, or as a text by which it can be looked up."""
    name, own = function.name, {id(each) for each in ast.walk(function)}
    if any(id(each) not in own for each in script.tree.read.get(name, ())):
        return True
    return BY_NAME.search(script.text) is not None or any(each.value == name for each in script.nodes(ast.Constant))
