"""Whether code runs in the process that starts the ranks."""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from typing import TYPE_CHECKING

from ddpdoctor.source.text.names import resolve
from ddpdoctor.source.values.sites import PROCESSES, SPAWN, STARTS, process_of, some_sites

if TYPE_CHECKING:
    from ddpdoctor.source.text.tree import Tree


def runs_in_parent(tree: Tree, node: ast.AST, seen: frozenset[ast.AST] = frozenset()) -> bool:
    """Whether a node can run in a process that is no rank: one that starts the ranks, and where it is not in them."""
    calls = [each for each in tree.of(ast.Call) if not _is_idle(tree, each)]
    if any(_starts_unseen(tree, each) for each in calls):
        return True  # who is started, and with what, is not followed
    if any(_starts_python(tree, each) for each in calls):
        return True
    if not any(resolve(tree, each.func) in STARTS or _is_started_abroad(tree, each) for each in calls):
        return False
    function = tree.function(node)
    if function is None or function in seen:
        return function is None
    sites = some_sites(tree, function)
    started = [each for each in sites if resolve(tree, each.func) in STARTS]
    for site in sites:
        if site in started or any(_are_alternatives(tree, site, each) for each in started):
            continue
        if runs_in_parent(tree, site, seen | {function}):
            return True
    return False


def _is_idle(tree: Tree, call: ast.Call) -> bool:
    """Whether a call that starts something stands in a function of a program whose name nobody writes."""
    function = tree.function(call)
    if not isinstance(function, ast.FunctionDef) or tree.parents.get(function) is not tree.module:
        return False
    is_program = any(isinstance(each, ast.If) and "__main__" in ast.unparse(each.test) for each in tree.module.body)
    reads = tree.read.get(function.name, ())
    is_named = any(each.node is function for read in reads for each in tree.lookup(function.name, read))
    is_handed_on = bool(function.decorator_list) or (tree.callers is not None and bool(tree.callers(function)))
    return is_program and not is_named and not is_handed_on


def _is_started_abroad(tree: Tree, call: ast.Call) -> bool:
    """Whether a call hands a function of the file to a helper of another file, which starts ranks that run it."""
    handed = [each.id for each in call.args if isinstance(each, ast.Name)]
    if tree.abroad is None or not any(
        isinstance(each.node, ast.FunctionDef) for name in handed for each in tree.lookup(name, call)
    ):
        return False
    found = tree.abroad(resolve(tree, call.func) or "")
    there, helper = found if found is not None else (tree, None)
    if not isinstance(helper, ast.FunctionDef):
        return False
    names = {each.arg for each in helper.args.args}
    spawns = [each for each in ast.walk(helper) if isinstance(each, ast.Call) and resolve(there, each.func) in SPAWN]
    return any(isinstance(each.args[0], ast.Name) and each.args[0].id in names for each in spawns if each.args)


def _are_alternatives(tree: Tree, one: ast.AST, other: ast.AST) -> bool:
    """Whether two nodes stand in the two branches of one ``if``."""
    above = [one, *tree.above(one)]
    way = [other, *tree.above(other)]
    for branch in above:
        if isinstance(branch, ast.If) and branch in way:
            sides = [{id(each) for each in block} for block in (branch.body, branch.orelse)]
            found = [[bool(side & {id(each) for each in nodes}) for side in sides] for nodes in (above, way)]
            return sorted(found) == [[False, True], [True, False]]
    return False


def _starts_unseen(tree: Tree, call: ast.Call) -> bool:
    """Whether a call starts a process, other than one for each pass of a loop that runs a function of the file."""
    path = resolve(tree, call.func) or ""
    if not path.endswith("Process") or path.startswith("psutil."):
        return False
    target = next((each.value for each in call.keywords if each.arg == "target"), None)
    return target is None or path not in PROCESSES or process_of(tree, target) is None


def _starts_python(tree: Tree, call: ast.Call) -> bool:
    """Whether a call starts Python anew, as a launcher does; another module, by its name, is none."""
    if not (resolve(tree, call.func) or "").startswith("subprocess."):
        return False
    if not any(resolve(tree, each) == "sys.executable" for each in ast.walk(call) if isinstance(each, ast.expr)):
        return False
    words = [each.value for each in ast.walk(call) if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    modules = [after for word, after in pairwise(words) if word == "-m"]
    return not modules or any(LAUNCHERS.search(each) for each in modules)


LAUNCHERS = re.compile("torch|launch|accelerate|deepspeed|train|run")
