"""Whether all ranks come to a line."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from ddpdoctor.source.callers.literal import is_closed_to
from ddpdoctor.source.callers.parents import runs_in_parent
from ddpdoctor.source.callers.together import is_of_all
from ddpdoctor.source.callers.turns import is_in_turn, one_is_waited_for
from ddpdoctor.source.callers.ways import is_of_one_process, is_without_group
from ddpdoctor.source.reach.alone import is_alone
from ddpdoctor.source.reach.guards import Guard, guards
from ddpdoctor.source.reach.parts import unconverted
from ddpdoctor.source.reach.rankish import is_rankish
from ddpdoctor.source.text.bindings import last_name
from ddpdoctor.source.text.names import resolve
from ddpdoctor.source.text.tree import FUNCTIONS
from ddpdoctor.source.values.bound import definition, returned, values
from ddpdoctor.source.values.sites import SPAWN, some_sites

if TYPE_CHECKING:
    from ddpdoctor.source.text.bindings import Binding
    from ddpdoctor.source.text.tree import Function, Tree


def all_ranks_reach(tree: Tree, node: ast.AST, seen: frozenset[ast.AST] = frozenset()) -> bool:
    """Whether every rank is shown to come to a node: no guard on the way to it can depend on the rank.

    False wherever that cannot be seen: in methods that others call and functions that nobody here calls, unless a
    rank that came there alone would wait for the others in the same call; in handlers of exceptions.
    """
    if any(_lets_some(tree, guard) for guard in guards(tree, node)):
        return False
    for parent in tree.above(node):
        if isinstance(parent, (ast.ExceptHandler, ast.Match)):
            return False
        items = parent.items if isinstance(parent, (ast.With, ast.AsyncWith)) else ()
        if any(is_rankish(tree, each.context_expr) and not _is_of_torch(tree, each.context_expr) for each in items):
            return False
        if isinstance(parent, FUNCTIONS):
            break
    function = tree.function(node)
    if function is None or function in seen:
        return function is None and tree.class_of(node) is None
    seen |= {function}
    sites = [each for each in some_sites(tree, function) if not is_in_turn(tree, each) and _takes(function, each)]
    is_called = any(all_ranks_reach(tree, site, seen) for site in sites if not is_closed_to(tree, node, tree, site))
    return is_called or _is_called_abroad(tree, node, function, seen) or is_of_all(tree, function)


RARE = re.compile(r"\bis_?(?:nan|inf)\(|\bnot [\w.]*isfinite\(", re.IGNORECASE)
"""What asks whether a number of this rank has gone wrong, as it does on one of them first."""


def _lets_some(tree: Tree, guard: Guard) -> bool:
    """Whether a test can keep ranks away, is about one process alone, or asks for what some ranks alone are given."""
    if guard.is_rankish(tree) or is_alone(tree, guard.test, holds=guard.holds):
        return True
    if guard.holds and RARE.search(ast.unparse(guard.test)):
        return True
    if is_without_group(tree, guard) or is_of_one_process(tree, guard):
        return True
    names = [each for each in ast.walk(guard.test) if isinstance(each, ast.Name)]
    held = [(name.id, each) for name in names for each in values(tree, name) if not _comes_later(tree, name, each)]
    given = [each.node for name, each in held if each.value is not None and not _is_itself(tree, each, name)]
    if any(above.is_rankish(tree) for each in given for above in guards(tree, each)):
        return True
    return any(_is_answered_by_rank(tree, each) for _, each in held)


def _comes_later(tree: Tree, name: ast.Name, binding: Binding) -> bool:
    """Whether a variable is given something below a line that reads it, to which no loop leads back."""
    if binding.line <= name.lineno or tree.function(binding.node) is not tree.function(name):
        return False
    loops = (each for each in tree.above(name) if isinstance(each, (ast.For, ast.While)))
    return not any(binding.line <= (each.end_lineno or 0) for each in loops)


def _is_answered_by_rank(tree: Tree, binding: Binding) -> bool:
    """Whether a variable is given what a function returns or fills behind a test that can depend on the rank."""
    call = binding.value if binding.value is not None else binding.whole
    found = definition(tree, call.func) if isinstance(call, ast.Call) else None
    if found is None:
        return False
    there, function = found
    for answer in returned(there, function):
        names = {each.id for each in ast.walk(answer) if isinstance(each, ast.Name)}
        stored = [
            each
            for each in ast.walk(function)
            if isinstance(each, ast.Name) and each.id in names and isinstance(each.ctx, ast.Store)
        ]
        if any(guard.is_rankish(there) for each in (answer, *stored) for guard in guards(there, each)):
            return True
    return False


def _is_itself(tree: Tree, binding: Binding, name: str) -> bool:
    """Whether a variable is given what it holds already, elsewhere or in another form: ``best = best.to(gpu)``."""
    made = unconverted(tree, binding.value) if binding.value is not None else None
    return made is not binding.value and isinstance(made, ast.Name) and made.id == name


def _is_of_torch(tree: Tree, context: ast.expr) -> bool:
    """Whether a context is one of torch's own (``torch.cuda.device(rank)``), which every rank goes into."""
    return isinstance(context, ast.Call) and (resolve(tree, context.func) or "").startswith(("torch.", "contextlib."))


def ranks_of_others_reach(
    tree: Tree, node: ast.AST, seen: frozenset[ast.AST] = frozenset(), *, relayed: bool = False
) -> bool:
    """Whether every rank of a training in another file of the project comes to a node, through calls of this file.

    ``relayed``: a third file calls it, and the training that.
    """
    function = tree.function(node)
    if function is None or function in seen:
        return False
    if any(_lets_some(tree, guard) for guard in guards(tree, node)):
        return False
    seen |= {function}
    if _is_called_abroad(tree, node, function, seen, relayed=relayed):
        return True
    sites = [each for each in some_sites(tree, function) if not is_closed_to(tree, node, tree, each)]
    return any(ranks_of_others_reach(tree, site, seen, relayed=relayed) for site in sites)


def _is_called_abroad(
    tree: Tree, node: ast.AST, function: Function, seen: frozenset[ast.AST], *, relayed: bool = False
) -> bool:
    """Whether all ranks of a training in another file call a function, with what lets them come to a node of it."""
    if tree.callers is None or not isinstance(function, ast.FunctionDef):
        return False
    if any(
        all_ranks_reach(there, site, seen)
        and _takes(function, site)
        and not is_in_turn(there, site)
        and not is_closed_to(tree, node, there, site)
        and (resolve(there, site.func) in SPAWN or not runs_in_parent(there, site))
        and not (relayed and _waits_before(there, site))
        for there, site in tree.callers(function)
    ):
        return True
    if tree.relays is None or len(seen) > FURTHEST:
        return False
    return any(
        not is_in_turn(there, site)
        and not is_closed_to(tree, node, there, site)
        and _all_come(there, site)
        and ranks_of_others_reach(there, site, seen, relayed=True)
        for there, site in tree.relays(function)
    )


def _takes(function: Function, site: ast.Call) -> bool:
    """Whether a function takes the keywords of a call of it, which raises else; where they are another's, it does."""
    if isinstance(function, ast.Lambda) or function.decorator_list:
        return True
    if last_name(site.func) != function.name:
        return True
    given = function.args
    known = {each.arg for each in (*given.args, *given.kwonlyargs)}
    return given.kwarg is not None or {each.arg for each in site.keywords if each.arg} <= known


def _waits_before(tree: Tree, node: ast.Call) -> bool:
    """Whether a barrier stands before a node in its function: one rank can have done alone what all do then."""
    if one_is_waited_for(tree, node):
        return True
    function = tree.function(node)
    calls = [each for each in tree.of(ast.Call) if each.lineno < node.lineno and tree.function(each) is function]
    return any((resolve(tree, each.func) or "").endswith(".barrier") for each in calls)


FURTHEST = 4  # functions that call each other, of files that do not train


def _all_come(tree: Tree, node: ast.AST) -> bool:
    """Whether nothing around a node within its function keeps ranks away, nor waits for a failure."""
    above = list(tree.above(node))
    held = [each for each in above if isinstance(each, (ast.ExceptHandler, ast.Match, ast.With, ast.AsyncWith))]
    return not held
