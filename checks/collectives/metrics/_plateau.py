"""Steps of ReduceLROnPlateau by a number that a rank has summed over its own share of the data."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Evidence, variables_in

from ..._scripts.source import SAMPLER, is_own
from .source._reducing import REDUCED
from .source._reductions import is_of_known_code
from .source._sums import by_names, sums

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script

PLATEAU = "torch.optim.lr_scheduler.ReduceLROnPlateau"
LEVELS = 2  # functions that hand the number on


def own_steps(script: Script, project: Around) -> Iterator[tuple[ast.Call, ast.For, Evidence]]:
    """Yield the steps, the loop that has summed what they are given, and the sampler of its loader."""
    steps = [each for each in script.nodes(ast.Call) if _is_step(script, each)]
    if not steps or not is_own(script) or project.does(REDUCED):
        return
    told: set[ast.AST] = set()
    summed = list(_summed(script, project))
    known = {loop for loop in {loop for loop, _, _ in summed} if is_of_known_code(script, project, loop)}
    for loop, held, sampler in summed:
        if loop not in known:
            continue
        for step in steps:
            if step in told or script.one_rank_guard(step) is not None:
                continue
            names = {held} if held else _learned(script, loop)
            inside = any(each is loop for each in script.tree.above(step))
            if (inside and variables_in(step.args[0]) & names) or (held and _comes_to(script, loop, names, step)):
                told.add(step)
                yield step, loop, sampler


def _is_step(script: Script, call: ast.Call) -> bool:
    match call:
        case ast.Call(func=ast.Attribute(value=ast.Name() | ast.Attribute() as owner, attr="step"), args=[_, *_]):
            made = script.can_hold(owner)
            return any(isinstance(each, ast.Call) and script.resolve(each.func) == PLATEAU for each in made)
    return False


def _summed(script: Script, project: Around) -> Iterator[tuple[ast.For, str, Evidence]]:
    """Yield the loops over a rank's share, and what each adds up; empty for the loss that it learns from."""
    yield from by_names(script, framework=False)
    for path, tree in ((script.path, script.tree), *project.trees("DistributedSampler")):
        for call in tree.of(ast.Call):
            if script.names_in(tree, call.func) != SAMPLER:
                continue
            seen = Evidence(" ".join(ast.unparse(call).split()), "", f"{path}:{call.lineno}")
            for there, loop in script.passes(tree, call):
                if there is script.tree:
                    yield from ((loop, held, seen) for held in (*sums(script, loop), ""))


def _learned(script: Script, loop: ast.For) -> set[str]:
    """Return the names whose backward a loop runs."""
    called = [each.func for each in script.inside(*loop.body) if isinstance(each, ast.Call)]
    return {
        each.value.id
        for each in called
        if isinstance(each, ast.Attribute) and each.attr == "backward" and isinstance(each.value, ast.Name)
    }


def _comes_to(script: Script, loop: ast.AST, names: set[str], step: ast.Call, levels: int = LEVELS) -> bool:
    """Whether what is named behind a loop comes to a step: in its function, or in one that is returned it."""
    function, end = script.function(loop), getattr(loop, "end_lineno", 0)
    is_here = script.function(step) is function
    own = [each for each in script.nodes(ast.Assign, ast.Return) if script.function(each) is function]
    for each in sorted(own, key=lambda each: each.lineno):
        if each.lineno <= end or (is_here and each.lineno > step.lineno):
            continue
        if isinstance(each, ast.Assign):
            names = _after(names, each)
        elif isinstance(each, ast.Return) and levels:
            handed = [*_handed_on(script, each, names)]
            if any(_comes_to(script, site, taken, step, levels - 1) for site, taken in handed):
                return True
    return is_here and step.lineno > end and bool(variables_in(step.args[0]) & names)


def _handed_on(script: Script, statement: ast.Return, names: set[str]) -> Iterator[tuple[ast.Assign, set[str]]]:
    """Yield the assignments of what a function returns, with the variables that take what is named."""
    function, returned = script.function(statement), statement.value
    for site in script.sites(function) if function is not None and returned is not None else ():
        match script.tree.parents.get(site):
            case ast.Assign(targets=[ast.Tuple(elts=takers)]) as taking if isinstance(returned, ast.Tuple):
                parts = returned.elts
            case ast.Assign(targets=[taker]) as taking if returned is not None:
                takers, parts = [taker], [returned]
            case _:
                continue
        if len(takers) == len(parts):
            pairs = zip(takers, parts, strict=True)
            taken = {each.id for each, part in pairs if isinstance(each, ast.Name) and variables_in(part) & names}
            if taken:
                yield taking, taken


def _after(names: set[str], statement: ast.Assign) -> set[str]:
    """Return which names hold the sum, or what is made of it, behind an assignment."""
    stored = {each.id for target in statement.targets for each in ast.walk(target) if isinstance(each, ast.Name)}
    return names | stored if variables_in(statement.value) & names else names - stored
