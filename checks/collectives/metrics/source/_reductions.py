"""Who can put together what a source sums over one rank's share: its function, what that calls, or who calls it."""

from __future__ import annotations

import ast
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

from ddpdoctor.check import dotted

from ...._scripts.source import OF_THE_MODEL
from ._derived import derived, reads, stored
from ._reducing import is_reducing, puts_together
from ._results import places_of, reduces_part, reduces_result

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script


def is_of_known_code(script: Script, project: Around, loop: ast.For, *, known: AbstractSet[str] = frozenset()) -> bool:
    """Whether no code that is not there to be read is handed what a loop has summed, or what is made of that.

    Such code could put the ranks' parts together; where a file of the project itself is missing, nobody can tell.
    """
    unknown = project.unknown() - OF_THE_MODEL - known
    if any(each.startswith(".") for each in unknown):
        return False
    around = script.function(loop) or script.module
    roots = {each.partition(".")[0] for each in unknown}
    called = [each for each in script.inside(around) if isinstance(each, ast.Call)]
    strange = [each for each in called if (script.resolve(each.func) or "").partition(".")[0] in roots]
    if not strange:
        return True
    names = derived(script, around, stored(script, loop))
    return not any(reads(part, names) for each in strange for part in (*each.args, *each.keywords))


def can_be_reduced(script: Script, loop: ast.For, held: str | None = None) -> bool:
    """Whether somebody can put together what a loop has summed: its function, what it calls, or who calls it.

    ``held``: of all that it sums, this alone is asked for.
    """
    function = script.function(loop)
    if function is None:
        return _is_reduced_at_top(script, stored(script, loop) if held is None else {held})
    if not isinstance(function, ast.FunctionDef) or _is_reduced_in(script, loop, function, held):
        return True
    places = None
    if held is not None:
        names = derived(script, function, {held})
        if _is_kept_for_another(script, function, names):
            return True
        if not _leaves(script, function, names):
            return False
        places = places_of(script, function, names)
    sites = [(script.tree, each) for each in script.sites(function)]
    sites += script.tree.callers(function) if script.tree.callers is not None else []
    return not sites or any(
        reduces_result(script, tree, site) and (places is None or reduces_part(script, tree, site, places))
        for tree, site in sites
    )


def reductions(script: Script, around: ast.AST) -> list[ast.AST]:
    """Return the calls in a function that put the ranks' parts together."""
    return [each for each in ast.walk(around) if puts_together(script, script.tree, each)]


def _is_reduced_in(script: Script, loop: ast.For, function: ast.FunctionDef, held: str | None) -> bool:
    """Whether a function puts together what a loop of it gives a value, or what is made of that; or nobody can tell."""
    reducing = reductions(script, function)
    if not reducing:
        return False
    within = [each for each in script.inside(*loop.body) if each in reducing]
    added = _added(script, loop, held) if within and held is not None else set()
    if any(held is None or _takes_part(script, each, added) for each in within):
        return True
    names = derived(script, function, stored(script, loop) if held is None else {held})
    local = stored(script, function) - names if held is not None else set()
    return any(reads(each, names) or _works_on_unseen(script, each, local) for each in reducing)


def _is_reduced_at_top(script: Script, summed: set[str]) -> bool:
    """Whether something puts together what stands outside of all functions, or what is made of that there.

    That can be a function which is told nothing: it reads what is there.
    """
    names = derived(script, script.module, summed)
    functions = [each for each in script.nodes(ast.FunctionDef) if is_reducing(script, script.tree, each)]
    return any(reads(each, names) for each in (*reductions(script, script.module), *functions))


def _works_on_unseen(script: Script, call: ast.AST, local: set[str]) -> bool:
    """Whether a call is handed nothing that can be followed: it works on what an object holds, or a module.

    An object that the function makes, one of ``local``, holds what it was told, which is another thing.
    """
    if _has_names(call) or not isinstance(call, ast.Call):
        return not isinstance(call, ast.Call)
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    if owner is None:
        return not local or script.names_class(call.func) is None
    return dotted(owner) not in local


def _added(script: Script, loop: ast.For, held: str) -> set[str]:
    """Return a sum of a loop, and the names of what its body makes it of: ``part`` of ``total += part``."""
    names = {held}
    while True:
        made = {
            name
            for each in script.inside(*loop.body)
            if isinstance(each, (ast.Assign, ast.AugAssign, ast.Expr)) and _stores_one(script, each, names)
            for part in ast.walk(each)
            if isinstance(part, (ast.Name, ast.Attribute)) and (name := dotted(part)) is not None
        }
        if made <= names:
            return names
        names |= made


def _stores_one(script: Script, statement: ast.stmt, names: set[str]) -> bool:
    return bool(stored(script, statement) & names)


def _takes_part(script: Script, call: ast.AST, names: set[str]) -> bool:
    """Whether a call puts together what goes into a sum: it is handed that itself, or what it returns goes into it.

    What is made of it on the way (``meter.update(loss(output))``) is another thing.
    """
    given = [*call.args, *(each.value for each in call.keywords)] if isinstance(call, ast.Call) else []
    if not given or any(dotted(part) in names for each in given for part in (each, *ast.iter_child_nodes(each))
                        if not isinstance(each, ast.Call)):  # fmt: skip
        return True
    statement = script.tree.statement(call)
    return statement is None or (not isinstance(statement, ast.Expr) and _stores_one(script, statement, names))


def _leaves(script: Script, function: ast.FunctionDef, names: set[str]) -> bool:
    """Whether a function hands out one of these: it returns it, or changes what it was given or what others read."""
    nodes = list(script.inside(function))
    shared = {name for each in nodes if isinstance(each, (ast.Global, ast.Nonlocal)) for name in each.names}
    given = {each.arg for each in (*function.args.args, *function.args.kwonlyargs)} - {"self"}
    handing = (ast.Return, ast.Yield, ast.YieldFrom)
    return bool(names & (shared | given)) or any(isinstance(each, handing) and reads(each, names) for each in nodes)


def _is_kept_for_another(script: Script, function: ast.FunctionDef, names: set[str]) -> bool:
    """Whether a function keeps one of these in an attribute that another one reads which puts parts together."""
    kept = {held for each in script.inside(function) if (held := _kept_in(each, names))}
    if not kept:
        return False
    others = [each for each in script.nodes(ast.FunctionDef) if each is not function]
    return any(
        any(isinstance(part, ast.Attribute) and part.attr in kept for part in ast.walk(each))
        and is_reducing(script, script.tree, each)
        for each in others
    )


def _kept_in(node: ast.AST, names: set[str]) -> str | None:
    """Return the name of the attribute that a node keeps one of these in."""
    match node:
        case ast.Assign(targets=[target], value=value) | ast.AugAssign(target=target, value=value):
            given: list[ast.expr] = [value]
        case ast.Call(func=ast.Attribute(value=target, attr="append" | "extend" | "update" | "add"), args=given):
            pass
        case _:
            return None
    while isinstance(target, ast.Subscript):
        target = target.value
    if not isinstance(target, ast.Attribute):
        return None
    return target.attr if any(reads(each, names) for each in given) else None


def _has_names(call: ast.AST) -> bool:
    """Whether a call is handed something that can be followed: none that works on what an object holds."""
    given = [*call.args, *(each.value for each in call.keywords)] if isinstance(call, ast.Call) else []
    return any(isinstance(each, (ast.Name, ast.Attribute)) for part in given for each in ast.walk(part))
