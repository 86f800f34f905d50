"""Functions of other files of the project that write a file anew whose path they are given."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import by_parameter, given

from .._shared_path import depends_on_rank
from ._files_written import METHODS, OPENERS, OPTIONS, WRITERS, is_anew, is_caught, is_named, opened_by_itself

if TYPE_CHECKING:
    from ddpdoctor.check import Script, Tree


def written_abroad(script: Script) -> Iterator[tuple[ast.Call, ast.expr, str]]:
    """Yield the calls of such functions, the argument that names the file, the same on all ranks, and what it is."""
    for call in script.nodes(ast.Call):
        found = script.defined(call.func)
        if found is None or found[0] is script.tree or isinstance(found[1], ast.Lambda) or is_caught(script, call):
            continue
        handed = by_parameter(found[1], call)
        for path in _paths(script, found[0], found[1]):
            names = {each.id for each in ast.walk(path) if isinstance(each, ast.Name)} & set(handed)
            parts = [handed[each] for each in sorted(names)]
            named = next((each for each in parts if is_named(script, each)), None)
            if named is not None and not any(depends_on_rank(script, each) for each in parts):
                code = script.code(named)
                yield call, named, code if isinstance(path, ast.Name) else f"{ast.unparse(path)} of {code}"
                break


def _paths(script: Script, tree: Tree, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.expr]:
    """Yield the paths of what a function writes on every way, where they are made of its parameters alone."""
    known = {each.arg for each in (*function.args.args, *function.args.kwonlyargs)}
    if function.decorator_list:
        return  # it can let one rank alone pass
    for call in script.inside(*function.body):
        if not isinstance(call, ast.Call) or not _writes(script, tree, call):
            continue
        path = opened_by_itself(call) or given(call, 0, "file")
        if path is None or script.guards_in(tree, call) or any(isinstance(each, ast.Try) for each in tree.above(call)):
            continue
        read = [each for each in ast.walk(path) if isinstance(each, ast.Name)]
        of_call = [each.id in known for each in read if script.names_in(tree, each) is None]
        statement = tree.statement(call)
        if of_call and all(of_call) and statement is not None and not OPTIONS.search(ast.unparse(statement)):
            yield path


def _writes(script: Script, tree: Tree, call: ast.Call) -> bool:
    name = script.names_in(tree, call.func) or ""
    if name in WRITERS or name in OPENERS:
        return is_anew(call, name)
    if opened_by_itself(call) is not None:
        return True
    is_method = isinstance(call.func, ast.Attribute) and call.func.attr in METHODS
    return is_method and not any(each.arg == "mode" for each in call.keywords)
