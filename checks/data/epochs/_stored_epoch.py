"""Where a class of a source gives an attribute its value."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddpdoctor.check import last_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddpdoctor.check import Around, Script, Tree

RESUMES = re.compile(r"load|resume|restore|checkpoint")


@dataclass(frozen=True, slots=True)
class Store:
    """A statement that gives an attribute a value, its file, and the function and the class it stands in."""

    node: ast.stmt
    file: str
    function: str
    owner: str


def stores_of(script: Script, project: Around, call: ast.Call, name: str) -> list[Store]:
    """List where the class of a call, or one that it inherits from, gives the attribute a value; all others as well."""
    owner = script.tree.class_of(call)
    if owner is None:
        return []
    own = [each for each in _stores_in(script.tree, script.path, name) if each.owner == owner.name]
    bases = {last_name(each) for each in owner.bases}
    other = [each for path, tree in project.trees(rf"\bself\.{name}\b") for each in _stores_in(tree, path, name)]
    return own + other if own or any(each.owner in bases for each in other) else []


def _stores_in(tree: Tree, path: str, name: str) -> Iterator[Store]:
    """Yield the statements of a file that give an attribute of this name of `self` a value."""
    for node in tree.of(ast.Attribute):
        if node.attr == name and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            above = list(tree.above(node))
            statement = next((each for each in above if isinstance(each, ast.stmt)), None)
            function = next((each.name for each in above if isinstance(each, ast.FunctionDef)), "")
            owner = next((each.name for each in above if isinstance(each, ast.ClassDef)), "")
            if statement is not None:
                yield Store(statement, path, function, owner)


def is_at_the_beginning(store: Store) -> bool:
    """Whether a value is given once: where an object is made, or where it takes up a checkpoint."""
    once = store.function == "__init__" or RESUMES.search(store.function) is not None
    return once and isinstance(store.node, (ast.Assign, ast.AnnAssign))
