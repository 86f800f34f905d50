"""Evaluations of a rank's share to which one rank alone comes: nothing can be put together there."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddpdoctor.check import ONE_RANK, Evidence

from .source._reductions import is_of_known_code, reductions
from .source._sums import by_names, shared_loops, sums

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Guard, Script, Tree

HIGHEST = 3  # functions that call each other


@dataclass(frozen=True, slots=True)
class Alone:
    """A loop, what it sums, who shares its samples out, and what lets one rank alone come to it."""

    loop: ast.For
    held: str
    sampler: Evidence
    guard: Evidence


def evaluated_alone(script: Script, project: Around) -> Iterator[Alone]:
    """Yield the loops that evaluate a rank's share on one rank alone, with each sum that they keep.

    Not with Accelerate, whose loaders exchange something when they begin: one process alone waits there.
    """
    found: list[tuple[ast.For, str, Evidence, AbstractSet[ast.AST]]] = [
        *((*each, frozenset()) for each in by_names(script, framework=False)),
        *(
            (each.loop, held, each.sampler, each.handed)
            for each in shared_loops(script, project)
            for held in sums(script, each.loop)
        ),
    ]
    for loop, held, sampler, handed in found:
        guard = _guard(script, (script.tree, loop), handed, HIGHEST)
        if guard is None or reductions(script, script.function(loop) or script.module):
            continue  # a reduction on one rank alone is another fault
        if is_of_known_code(script, project, loop):
            yield Alone(loop, held, sampler, _seen(script, project, *guard))


def _seen(script: Script, project: Around, tree: Tree, guard: Guard) -> Evidence:
    others = project.trees("rank|main|master") if tree is not script.tree else ()
    path = next((path for path, other in others if other is tree), script.path)
    return Evidence(f"one rank alone comes there, {guard.words}", "", f"{path}:{guard.test.lineno}")


def _is_of_one_process(script: Script, tree: Tree, node: ast.AST) -> bool:
    return any(each.is_alone(tree) for each in script.guards_in(tree, node))


def _guard(
    script: Script, place: tuple[Tree, ast.AST], handed: AbstractSet[ast.AST], depth: int
) -> tuple[Tree, Guard] | None:
    """Return the test that lets one rank alone come to a place, by its function or by all calls of that, and its tree.

    Where some of them are handed what the loop goes through, those alone count.
    """
    tree, node = place
    own = next((each for each in script.guards_in(tree, node) if each.who(tree) == ONE_RANK), None)
    function = tree.function(node)
    if own is not None or depth == 0 or not isinstance(function, ast.FunctionDef):
        return (tree, own) if own is not None else None
    sites = [each for each in script.sites_in(tree, function) if not _is_of_one_process(script, *each)]
    found = [_guard(script, each, handed, depth - 1) for each in sites if each[1] in handed or not handed]
    return found[0] if found and all(found) else None
