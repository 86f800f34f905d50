"""Evaluations of Lightning Fabric: loops over a loader that it has shared out, whose sums nobody brings together."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import ONE_RANK, Finding, Fix, by_parameter, dotted, is_open, keyword

from ..._scripts.evaluation import is_evaluation
from .source._put_together import BY_FABRIC, named
from .source._sums import sums
from .source._told_sums import WITH_RANK, tells, told_after

if TYPE_CHECKING:
    from ddpdoctor.check import Script

FABRICS = ("lightning.Fabric", "lightning.fabric.Fabric", "lightning_fabric.Fabric")
FRAMEWORKS = {"lightning", "pytorch_lightning", "lightning_fabric"}
DEPTH = 4  # functions that hand a loader on
REDUCES = re.compile(
    r"all_?reduce|reduce_|_reduce\b|\breduce\b|gather|sync_and_compute|synchronize_between|Metric\b|Mean\b"
)
"""What puts the processes' parts together, by its name."""


def told_of_share(script: Script) -> Iterator[Finding]:
    """Find what is told of one process's share, in a file that makes a Fabric of several and reduces nothing.

    A metric of torchmetrics brings its parts together itself.
    """
    made = script.calls(*FABRICS)
    shared = [each for each in script.nodes(ast.Call) if _name(each) == "setup_dataloaders" and not _is_left(each)]
    if not made or not shared or script.frameworks - FRAMEWORKS or not any(map(_is_of_several, made)):
        return
    if any(REDUCES.search(dotted(each.func) or _name(each)) for each in script.nodes(ast.Call)):
        return
    for loop in script.nodes(ast.For):
        source = _shared_by(script, _iterated(loop.iter), shared, DEPTH)
        if source is None or _is_of_one_rank(script, loop) or not is_evaluation(script, "", loop):
            continue
        for held in dict.fromkeys(sums(script, loop)):
            use = told_after(script, loop, held)
            if isinstance(use, ast.Return):
                use = _told_by_callers(script, loop)
            if use is not None:
                yield Finding(
                    f"what is summed over {named(loop.iter)} is of one process's share, and is told as that of all",
                    (script.seen(loop, f"{held} of all processes"), script.seen(source), script.seen(use)),
                    Fix("bring the processes' means together behind the loop", diff=BY_FABRIC),
                    script.place(loop),
                )
                break


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _is_left(setup: ast.Call) -> bool:
    """Whether a loader is to keep its own sampler."""
    names = {"use_distributed_sampler", "replace_sampler"}
    return is_open(setup) or any(each.arg in names for each in setup.keywords)


def _is_of_several(fabric: ast.Call) -> bool:
    """Whether a Fabric is told of several devices, or of a way to use them."""
    devices, strategy = keyword(fabric, "devices"), keyword(fabric, "strategy")
    if is_open(fabric) or (isinstance(devices, ast.Constant) and devices.value in {1, "1"}):
        return False
    return devices is not None or (isinstance(strategy, ast.Constant) and strategy.value not in {"auto", "dp"})


def _iterated(given: ast.expr) -> ast.expr:
    while isinstance(given, ast.Call) and given.args:
        given = given.args[0]
    return given


def _shared_by(script: Script, given: ast.expr, shared: list[ast.Call], depth: int) -> ast.Call | None:
    """Return the call that has shared out what a variable holds: here, or where every call of its function has it."""
    match given:
        case ast.Attribute():
            code = script.code(given)
            return next((each for each in shared if code in _targets(script, each)), None)
        case ast.Name(id=name):
            bindings = script.tree.lookup(name, given)
            here = next((each for each in shared if any(each in {one.value, one.whole} for one in bindings)), None)
            if here is not None or len(bindings) != 1 or not isinstance(bindings[0].node, ast.arg) or not depth:
                return here
            function = script.function(bindings[0].node)
            if not isinstance(function, ast.FunctionDef):
                return None
            handed = [by_parameter(function, each).get(name) for each in script.sites(function)]
            found = [_shared_by(script, each, shared, depth - 1) if each is not None else None for each in handed]
            return found[0] if found and None not in found else None
    return None


def _targets(script: Script, call: ast.Call) -> set[str]:
    """Return the variables that take what a call returns, as they are written."""
    statement = script.tree.parents.get(call)
    if not isinstance(statement, ast.Assign):
        return set()
    targets = [part for each in statement.targets for part in (each.elts if isinstance(each, ast.Tuple) else [each])]
    return {script.code(each) for each in targets}


def _is_of_one_rank(script: Script, node: ast.AST) -> bool:
    """Whether one process alone comes to a node, or to a call of its function."""
    function = script.function(node)
    sites = script.sites(function) if isinstance(function, ast.FunctionDef) else []
    return any(each.who(script.tree) == ONE_RANK for place in (node, *sites) for each in script.guards(place))


def _told_by_callers(script: Script, loop: ast.For) -> ast.AST | None:
    """Return where a caller prints or logs what the function of a loop returns, as it is."""
    function = script.function(loop)
    for site in script.sites(function) if isinstance(function, ast.FunctionDef) else ():
        names = {
            each for each in _targets(script, site) if each.isidentifier() and _is_all_it_holds(script, each, site)
        }
        for each in script.inside(script.function(site) or script.module):
            if not isinstance(each, ast.Call) or not tells(each) or WITH_RANK.search(script.code(each)):
                continue
            read = {part.id for part in ast.walk(each) if isinstance(part, ast.Name)}
            if site in ast.walk(each) or (each.lineno > site.lineno and names & read):
                return each
    return None


def _is_all_it_holds(script: Script, name: str, site: ast.Call) -> bool:
    """Whether a variable is given what calls of this function return, and nothing that is made of it."""
    held = script.tree.lookup(name, site)
    called = {ast.unparse(each.value.func) for each in held if isinstance(each.value, ast.Call)}
    return called == {ast.unparse(site.func)} and all(isinstance(each.value, (ast.Call, ast.Constant)) for each in held)
