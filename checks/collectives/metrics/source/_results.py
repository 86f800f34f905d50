"""What becomes of what a call returns: whether the ranks' parts of it are put together where the call stands."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.check import dotted

from ._derived import derived, reads
from ._reducing import assigned, calls_reduction, is_reducing, puts_together

if TYPE_CHECKING:
    from ddpdoctor.check import Script, Tree


def places_of(script: Script, function: ast.FunctionDef, names: set[str]) -> set[int] | None:
    """Return which parts of the tuple that a function returns hold one of these; None where one is not like another."""
    returned = [each.value for each in script.inside(function) if isinstance(each, ast.Return)]
    tuples = [each for each in returned if isinstance(each, ast.Tuple)]
    if len(tuples) < len(returned) or len({len(each.elts) for each in tuples}) != 1:
        return None
    return {at for each in tuples for at, part in enumerate(each.elts) if reads(part, names)} or None


def reduces_result(script: Script, tree: Tree, site: ast.Call) -> bool:
    """Whether what a call returns can be put together where it is called."""
    statement = tree.statement(site)
    if isinstance(statement, ast.Expr) and _is_shown(tree, site):
        return False
    if not isinstance(statement, (ast.Assign, ast.Expr)) or statement.value is not site:
        return True
    names = {each.id for each in ast.walk(statement) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    around = tree.function(site) or tree.module
    for made in sorted(assigned(around), key=lambda each: each.lineno):  # totals = torch.tensor([loss, accuracy])
        read = {each.id for each in ast.walk(made.value) if isinstance(each, ast.Name)}
        if made.lineno > site.lineno and names & read:
            names |= {each.id for target in made.targets for each in ast.walk(target) if isinstance(each, ast.Name)}
    for node in ast.walk(around):
        if not isinstance(node, ast.Call) or node is site:
            continue
        given = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
        if isinstance(statement, ast.Assign) and names & given:
            found = script.defined_in(tree, node.func)
            if calls_reduction(node) or (found is not None and is_reducing(script, *found)):
                return True
    return isinstance(statement, ast.Assign) and not names


def reduces_part(script: Script, tree: Tree, site: ast.Call, places: set[int]) -> bool:
    """Whether one of these parts of the tuple that a call returns can be put together where the call stands.

    Not where the tuple is taken apart at once, and what is made of the part goes nowhere that reduces, nor farther on.
    """
    match tree.statement(site):
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=value) if value is site:
            parts = [dotted(each) for at, each in enumerate(targets) if at in places]
        case _:
            return True
    if not all(parts) or len(targets) <= max(places) or any(each is not None and "." in each for each in parts):
        return True
    around = tree.function(site) or tree.module
    names = derived(script, around, {each for each in parts if each is not None})
    if any("." in each for each in names):
        return True  # kept in an object, of which another can take it
    return any(
        reads(each, names)
        for each in ast.walk(around)
        if isinstance(each, (ast.Return, ast.Yield)) or puts_together(script, tree, each)
    )


SHOWING = frozenset({"print", "format", "round", "float", "str", "info", "debug"})


def _is_shown(tree: Tree, site: ast.Call) -> bool:
    """Whether what a call returns is printed at once, and goes nowhere else: ``print("accuracy", evaluate(net))``."""
    above = [each for each in tree.above(site) if isinstance(each, ast.expr)]
    calls = [each for each in above if isinstance(each, ast.Call)]
    return bool(calls) and all(ast.unparse(each.func).rpartition(".")[2] in SHOWING for each in calls)
