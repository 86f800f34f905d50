"""Classes of a project that are torch's DataLoader, or its DistributedSampler, but for how they hand out batches."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.source.arguments import default_of
from ddpdoctor.source.text.names import resolve
from ddpdoctor.source.values.arguments import argument
from ddpdoctor.source.values.sites import seen_sites

if TYPE_CHECKING:
    from ddpdoctor.source.text.tree import Tree

LOADER = "torch.utils.data.DataLoader"
SAMPLER = "torch.utils.data.DistributedSampler"
OWN = {"__init__", "__new__", "__call__"}
"""Methods by which a class takes its arguments in another way."""


def loader_kind(tree: Tree, called: ast.expr, path: str | None) -> str | None:
    """Return ``LOADER`` where a call makes an object of a class of the project that takes what a DataLoader takes."""
    if not path and _is_by_default(tree, called):
        return LOADER
    found = _class_of(tree, called, path, "Loader")
    if found is None:
        return None
    there, owner = found
    if len(owner.bases) != 1 or owner.keywords or resolve(there, owner.bases[0]) != LOADER:
        return None
    return LOADER if not OWN & set(there.bindings.get(owner, {})) else None


def _is_by_default(tree: Tree, called: ast.expr) -> bool:
    """Whether a parameter is called that is a DataLoader by default, for which no call that is seen passes another."""
    bindings = tree.lookup(called.id, called) if isinstance(called, ast.Name) else []
    parameter = bindings[0].node if len(bindings) == 1 else None
    function = tree.function(parameter) if isinstance(parameter, ast.arg) else None
    if not isinstance(function, ast.FunctionDef) or not isinstance(parameter, ast.arg):
        return False
    default = default_of(function, parameter.arg)
    if default is None or resolve(tree, default) != LOADER:
        return False
    sites = seen_sites(tree, function)
    return all(argument(each, function, parameter.arg, spawned=False) is default for _, each in sites)


def is_sampler(tree: Tree, called: ast.expr) -> bool:
    """Whether a call makes a DistributedSampler: torch's, or one of a class of the project that inherits from it."""
    return resolve(tree, called) == SAMPLER or sampler_class(tree, called) is not None


def sampler_class(tree: Tree, called: ast.expr) -> tuple[Tree, ast.ClassDef] | None:
    """Return the class of the project that a call makes a sampler of, and that inherits from torch's."""
    path = resolve(tree, called)
    found = _class_of(tree, called, path, "Sampler") if path != SAMPLER else None
    is_heir = found is not None and SAMPLER in {resolve(found[0], each) for each in found[1].bases}
    return found if is_heir else None


def _class_of(tree: Tree, called: ast.expr, path: str | None, word: str) -> tuple[Tree, ast.ClassDef] | None:
    if isinstance(called, ast.Name):
        bindings = tree.lookup(called.id, called)
        if len(bindings) == 1 and isinstance(bindings[0].node, ast.ClassDef):
            return tree, bindings[0].node
    if word not in (path or "").rpartition(".")[2] or tree.abroad is None or path is None or "." not in path:
        return None
    found = tree.abroad(path) if not path.startswith("torch.") else None
    return (found[0], found[1]) if found is not None and isinstance(found[1], ast.ClassDef) else None
