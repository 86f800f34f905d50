"""Lines of the user's that a fault of the data stands at, as the source says it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpdoctor.check import EpochStarted, Site, last_name, tree_of

from .._evaluation.metrics import part_around
from .._evaluation.rank_parts import is_untrained

SEEDS = {"manual_seed", "seed", "default_rng", "RandomState", "Random", "seed_everything", "set_seed", "SeedSequence"}
GLOBAL = {"manual_seed", "seed", "seed_everything", "set_seed", "manual_seed_all"}
Loop = (ast.For, ast.While, ast.AsyncFor)
Function = (ast.FunctionDef, ast.AsyncFunctionDef)


def epoch_loop(started: EpochStarted) -> Site | None:
    """Return the loop over epochs around a pass: the innermost one that the pass itself is not."""
    for at, site in enumerate(Site(*each) for each in started.callers):
        inside = [each for each in _around(site, Loop) if at or each.lineno != site.line]
        inside = [each for each in inside if at or not _iterates_at(each, site.line)]
        if inside:
            return site._replace(line=max(each.lineno for each in inside))
    return None


def _iterates_at(loop: ast.AST, line: int) -> bool:
    """Whether what a loop goes through stands at a line, of several that its head has."""
    iterated = getattr(loop, "iter", None)
    return iterated is not None and iterated.lineno <= line <= (iterated.end_lineno or 0)


def given_out(reader: Site) -> Site:
    """Return where a method of an iterable data set says last what it goes through; its own line where it does not."""
    function = min(_around(reader, Function), key=lambda each: abs(each.lineno - reader.line), default=None)
    loops = [each for each in ast.walk(function) if isinstance(each, ast.For)] if function is not None else []
    if function is None or not loops:
        return reader
    loop = min(loops, key=lambda each: each.lineno)
    names = {each.id for each in ast.walk(loop.iter) if isinstance(each, ast.Name)}
    assigned = [
        each.lineno
        for each in ast.walk(function)
        if isinstance(each, ast.Assign)
        and each.lineno < loop.lineno
        and names & {target.id for target in each.targets if isinstance(target, ast.Name)}
    ]
    return reader._replace(line=max(assigned, default=loop.lineno))


def seeded_alike(site: Site | None) -> Site | None:
    """Return the last line before a step that seeds a generator with what is no rank's own; None without one."""
    if site is None:
        return None
    training = [each for each in _seeds(site) if not is_untrained(part_around(site._replace(line=each.lineno)))]
    return _alike([each for each in training if each.lineno <= site.line], site)


def process_seeded_alike(site: Site | None) -> Site | None:
    """Return the last line of a file that seeds the process's own generators, if none does so by the rank."""
    if site is None:
        return None
    return _alike(
        [each for each in _seeds(site) if last_name(each.func) in GLOBAL and not _is_of_an_object(each)], site
    )


def seeded_in(loop: Site | None) -> Site | None:
    """Return the last line that seeds the process's own generators in a loop, or in one around it; None without one."""
    if loop is None:
        return None
    seeds = [each for each in _seeds(loop) if last_name(each.func) in GLOBAL and not _is_of_an_object(each)]
    for around in sorted(_around(loop, Loop), key=lambda each: -each.lineno):
        inside = [each.lineno for each in seeds if around.lineno < each.lineno <= (around.end_lineno or 0)]
        if inside:
            return loop._replace(line=max(inside))
    return None


def _seeds(site: Site) -> list[ast.Call]:
    calls = (each for each in ast.walk(tree_of(site.file).module) if isinstance(each, ast.Call) and each.args)
    return [each for each in calls if last_name(each.func) in SEEDS]


def _is_of_an_object(call: ast.Call) -> bool:
    """Whether a generator of the script's own is seeded: ``torch.Generator().manual_seed(0)``."""
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    return isinstance(owner, ast.Call) or (isinstance(owner, ast.Name) and owner.id not in {"torch", "random"})


def _alike(calls: list[ast.Call], site: Site) -> Site | None:
    tree = tree_of(site.file).module
    if not calls or any(_says_rank(name, tree) for each in calls for name in each.args):
        return None
    return site._replace(line=max(each.lineno for each in calls))


def _says_rank(given: ast.expr, tree: ast.Module) -> bool:
    """Whether an expression speaks of a rank, or of a name that was given one."""
    names = set(_names(given))
    values = [
        each.value
        for each in ast.walk(tree)
        if isinstance(each, ast.Assign)
        and names & {target.id for target in each.targets if isinstance(target, ast.Name)}
    ]
    return any("rank" in each.lower() for value in (given, *values) for each in _names(value))


def _names(node: ast.AST) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            yield each.id
        elif isinstance(each, ast.Attribute):
            yield each.attr


def _around(site: Site, kinds: tuple[type[ast.AST], ...]) -> list[ast.stmt]:
    """Return the statements of these kinds that hold a line."""
    nodes = ast.walk(tree_of(site.file).module)
    found = [each for each in nodes if isinstance(each, ast.stmt) and isinstance(each, kinds)]
    return [each for each in found if each.lineno <= site.line <= (each.end_lineno or 0)]
