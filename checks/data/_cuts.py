"""Where a script takes a rank's part of its samples, as the source says it: what is given to a model, followed back."""

from __future__ import annotations

import ast

from ddpdoctor.check import DataSeen, EpochStarted, Site, Training, last_name, spans, statement_at, tree_of

from .._evaluation.rank_parts import NO_GRADIENTS
from ._lines import SEEDS, given_out

FOLLOWED = 6  # assignments one after the other
CALLERS = 3  # one around the other
DRAWS = {"randperm", "permutation", "shuffle", "sample", "choice"}
Function = (ast.FunctionDef, ast.AsyncFunctionDef)


def taken_at(site: Site, training: Training, pid: int) -> Site:
    """Return the line that takes a rank's part of what a call at a line is given; that line itself without one.

    Where one stream feeds the training, it is where its data set gives its samples out.
    """
    cut = _cut(site)
    if cut is not None:
        return cut
    streams = {each.loader for each in training.of(EpochStarted, pid=pid) if each.iterable and each.training}
    seen = [each for each in training.of(DataSeen, pid=pid) if each.loader in streams and each.reader is not None]
    readers = {each.reader for each in seen if each.reader is not None}
    return given_out(readers.pop()) if len(readers) == 1 else site


def cut_at(site: Site) -> Site | None:
    """Return the assignment by which a rank's part of what a call at a line is given was cut; None without one."""
    found = _cut(site)
    statement = statement_at(tree_of(site.file), found.line) if found is not None else None
    return found if isinstance(statement, ast.Assign) and _speaks_of_ranks(statement.value) else None


def _cut(site: Site, climbs: int = CALLERS) -> Site | None:
    """Return the nearest assignment that speaks of ranks, else of a draw, else the farthest part, or other name.

    Where neither is there, the generator that is seeded for them; where a function was given the samples, the same at
    the lines that call it in training.
    """
    tree = tree_of(site.file).module
    functions = [each for each in ast.walk(tree) if isinstance(each, Function) and spans(each, site.line)]
    around: ast.AST = max(functions, key=lambda each: each.lineno, default=tree)
    found = _followed(around, site.line)
    found += [each for _, value in found for each in _made_by(value, tree)]
    line = next((at for kind in (_speaks_of_ranks, _draws, _seeds) for at, value in found if kind(value)), None)
    if line is None and climbs and isinstance(around, Function):
        calls = [each for each in ast.walk(tree) if isinstance(each, ast.Call) and last_name(each.func) == around.name]
        sites = [site._replace(line=each.lineno) for each in calls]
        trained = (each for each in sites if not _is_without_gradients(each, tree))
        above = next((cut for each in trained if (cut := _cut(each, climbs - 1))), None)
        if above is not None:
            return above
    parts = [at for at, value in found if isinstance(value, (ast.Subscript, ast.Name))]
    line = line or (min(parts) if parts else None)
    return None if line is None else site._replace(line=line)


def _is_without_gradients(site: Site, tree: ast.AST) -> bool:
    """Whether a line stands in a function, or a block, in which the gradients are switched off."""
    around = [each for each in ast.walk(tree) if isinstance(each, (*Function, ast.With)) and spans(each, site.line)]
    said = [part for each in around for part in (each.items if isinstance(each, ast.With) else each.decorator_list)]
    return any(NO_GRADIENTS.search(ast.unparse(each)) for each in said)


def _followed(around: ast.AST, line: int) -> list[tuple[int, ast.expr]]:
    """Return what a function's names were assigned, or go through, that the calls of a line are given."""
    calls = [each for each in ast.walk(around) if isinstance(each, ast.Call) and each.lineno <= line
             and spans(each, line)]  # fmt: skip
    names = {name for each in calls for given in each.args for name in _names(given)}
    found: list[tuple[int, ast.expr]] = []
    for _ in range(FOLLOWED):
        more = [each for each in _given(around, names, line) if each not in found]
        if not more:
            break
        found += more
        names = {name for _, value in more for name in _names(value)}
    return found


def _made_by(value: ast.expr, tree: ast.AST) -> list[tuple[int, ast.expr]]:
    """Return what the one generator of the file assigns that an expression calls, the last first."""
    name = last_name(value.func) if isinstance(value, ast.Call) else ""
    functions = [each for each in ast.walk(tree) if isinstance(each, Function) and each.name == name]
    if len(functions) != 1 or not any(isinstance(each, (ast.Yield, ast.YieldFrom)) for each in ast.walk(functions[0])):
        return []
    made = [(each.lineno, each.value) for each in ast.walk(functions[0]) if isinstance(each, ast.Assign)]
    return sorted(made, key=lambda each: -each[0])


def _given(around: ast.AST, names: set[str], line: int) -> list[tuple[int, ast.expr]]:
    """Return what these names were assigned, or go through, before a line."""
    found: list[tuple[int, ast.expr]] = []
    for node in ast.walk(around):
        match node:
            case ast.Assign(targets=targets, value=value) if node.lineno <= line:
                if any(names & set(_names(each)) for each in targets):
                    found.append((node.lineno, value))
            case ast.For(target=target, iter=value) if node.lineno <= line and names & set(_names(target)):
                found.append((value.lineno, value))
    return sorted(found, key=lambda each: -each[0])


def _names(node: ast.AST) -> list[str]:
    return [each.id for each in ast.walk(node) if isinstance(each, ast.Name)]


def _speaks_of_ranks(value: ast.expr) -> bool:
    """Whether a part is taken, or something is made, by a rank or a number of ranks; a generator is no part.

    Nor is the rank itself.
    """
    parts = value.elts if isinstance(value, ast.Tuple) else [value]
    asks = [isinstance(each, ast.Call) and last_name(each.func) in {"get_rank", "get_world_size"} for each in parts]
    if all(asks) or (isinstance(value, ast.Call) and _seeds(value)):
        return False
    said = (*_names(value), *(each.attr for each in ast.walk(value) if isinstance(each, ast.Attribute)))
    return any("rank" in each.lower() or "world" in each.lower() for each in said)


def _seeds(value: ast.expr) -> bool:
    return any(last_name(each.func) in SEEDS for each in _calls(value))


def _draws(value: ast.expr) -> bool:
    return any(last_name(each.func) in DRAWS for each in _calls(value))


def _calls(value: ast.expr) -> list[ast.Call]:
    return [each for each in ast.walk(value) if isinstance(each, ast.Call)]
