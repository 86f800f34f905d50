"""Ends of a training that each rank decides for itself, by what it has summed over its share of an evaluation."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..._scripts.source import is_own
from ..metrics.source._derived import derived, reads
from ..metrics.source._reductions import reductions
from ..metrics.source._sums import unreduced

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Evidence, Script

LOOPS = (ast.For, ast.While)


def left_by_own_sums(script: Script, project: Around) -> Iterator[tuple[ast.stmt, ast.expr, ast.For, Evidence]]:
    """Yield the ways out of a loop over epochs, the test before each, the loop that has summed, and its sampler."""
    if not is_own(script):
        return
    told = set[ast.stmt]()
    for loop, held, sampler in unreduced(script, project):
        for epochs, names in _epochs(script, loop, held):
            for way, test in _ways(script, epochs, names):
                if way not in told:
                    told.add(way)
                    yield way, test, loop, sampler


def _epochs(script: Script, loop: ast.For, held: str) -> Iterator[tuple[ast.stmt, set[str]]]:
    """Yield the loops over epochs that an evaluation is in, or is called in, with the names that have its sum there."""
    if (around := _learning(script, loop)) is not None:
        yield around, {held}
        return
    function = script.function(loop)
    if not isinstance(function, ast.FunctionDef) or not _is_returned(script, function, held):
        return
    for site in script.sites(function):
        statement, around = script.tree.statement(site), _learning(script, site)
        if around is not None and isinstance(statement, ast.Assign) and statement.value is site:
            stored = [each for target in statement.targets for each in ast.walk(target)]
            yield around, {each.id for each in stored if isinstance(each, ast.Name)}


def _learning(script: Script, node: ast.AST) -> ast.stmt | None:
    """Return the loop of the same function around a node in which a model learns."""
    function = script.function(node)
    loops = [each for each in script.tree.above(node) if isinstance(each, LOOPS)]
    return next((each for each in loops if script.function(each) is function and script.learns(each)), None)


def _is_returned(script: Script, function: ast.FunctionDef, held: str) -> bool:
    names = derived(script, function, {held}, arguments=False)
    returns = [each.value for each in script.inside(*function.body) if isinstance(each, ast.Return)]
    return any(each is not None and reads(each, names) for each in returns)


def _ways(script: Script, epochs: ast.stmt, names: set[str]) -> Iterator[tuple[ast.stmt, ast.expr]]:
    """Yield the ways out of a loop that are taken by a test of these names, or of what is made of them."""
    around = script.function(epochs) or script.module
    anything = derived(script, around, names)
    if any(reads(each, anything) for each in reductions(script, around)):
        return
    made = derived(script, around, names, arguments=False)
    for node in script.inside(epochs):
        if not isinstance(node, (ast.Break, ast.Return)):
            continue
        inner = next((each for each in script.tree.above(node) if isinstance(each, (*LOOPS, ast.FunctionDef))), None)
        tests = [each for each in script.guards(node) if any(above is epochs for above in script.tree.above(each.test))]
        if inner is not epochs or any(each.is_rankish(script.tree) for each in tests):
            continue
        if (test := next((each.test for each in tests if reads(each.test, made)), None)) is not None:
            yield node, test
