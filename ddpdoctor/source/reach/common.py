"""Folders that all ranks have in common, though nobody is seen who names them: the root of a data set, say."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from ddpdoctor.source.text.names import resolve
from ddpdoctor.source.values.arguments import placed_argument
from ddpdoctor.source.values.bound import at
from ddpdoctor.source.values.sites import is_spawn, seen_sites

if TYPE_CHECKING:
    from ddpdoctor.source.text.bindings import Binding
    from ddpdoctor.source.text.tree import Tree

OWN = re.compile(
    r"rank|gpu|device|local|worker|node|host|shard|process_?(?:id|index|num)|pid|te?mp|scratch|shm|uuid|rand|seed|time"
    r"|cwd|client|trial|replica",
    re.IGNORECASE,
)
"""Words of what a process, a host or a run can have for itself."""
PATHS = re.compile(r"os\.path\.(?:join|expanduser|expandvars|abspath|realpath|normpath)$|pathlib\.(?:\w+\.)*Path$|str$")
METHODS = frozenset("absolute expanduser format joinpath resolve rstrip".split())


def is_common_folder(tree: Tree, node: ast.expr, depth: int = 4) -> bool:
    """Whether a path is one folder for all ranks, as far as its parts, and what calls pass for them, say.

    A parameter that unseen code passes is taken for one by its name: nobody gives each rank a copy of a data set, and
    calls the place that.
    """
    if depth == 0 or OWN.search(ast.unparse(node)):
        return False
    match node:
        case ast.Name() | ast.Attribute():
            return all(_is_common(tree, binding, depth) for binding in at(tree, node))
        case ast.Subscript(slice=ast.Constant(value=str())):
            return True  # of a configuration, or of the environment
        case ast.Call(func=function):
            if not _names_path(tree, node):
                return False
            made_of = function.value if isinstance(function, ast.Attribute) and function.attr in METHODS else None
            within = [*([made_of] if made_of is not None else []), *node.args, *(each.value for each in node.keywords)]
            return all(is_common_folder(tree, each, depth) for each in within)
    within = [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr)]
    return all(is_common_folder(tree, each, depth) for each in within)


def _names_path(tree: Tree, call: ast.Call) -> bool:
    """Whether a call makes a path of what it is given, and of nothing else."""
    if isinstance(call.func, ast.Attribute) and call.func.attr in METHODS:
        return True
    return PATHS.match(resolve(tree, call.func) or "") is not None


def _is_common(tree: Tree, binding: Binding, depth: int) -> bool:
    """Whether a variable holds such a folder: of a parameter, whatever calls are seen to pass."""
    if binding.path:
        return True
    if not isinstance(binding.node, ast.arg):
        return binding.value is not None and is_common_folder(tree, binding.value, depth - 1)
    function = tree.function(binding.node)
    if not isinstance(function, ast.FunctionDef):
        return False
    name = binding.node.arg
    passed = [
        placed_argument(tree, (there, site), function, name, spawned=is_spawn(there, site))
        for there, site in seen_sites(tree, function)
    ]
    return all(is_common_folder(there, each, depth - 1) for there, each in passed if each is not None)
