"""One rank alone leaves the loop, and the others go on without it.

## What happens

`break` or `return` under `if rank == 0` ends the training of rank 0. The others begin the next step and wait in its
first collective, mostly the reduction of the gradients, until it times out. Early stopping that is decided on rank 0 is
the usual case.

## How to be sure

`ddpdoctor run` names the rank that has ended. In a source (`ddpdoctor lint`): the loop trains a wrapped model or calls
a collective, and the statement stands where one rank alone comes.

## How to mend it

Tell all ranks, and let all of them leave:

    stop = torch.tensor(int(early_stop), device=device)
    dist.broadcast(stop, src=0)
    if stop.item():
        break

## Versions and sources

Source: torch.distributed documentation, "Collective functions"; holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import COLLECTIVES, OTHER_RANKS, Ailment, Finding, Fix, Severity, by_parameter, lint

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP761", Severity.ERROR)
LOOPS = (ast.For, ast.AsyncFor, ast.While)


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for a way out of a training loop that one rank alone takes."""
    for node in (*script.nodes(ast.Break, ast.Return), *_ends(script)):
        loop = next((each for each in script.tree.above(node) if isinstance(each, LOOPS)), None)
        if isinstance(loop, ast.While) or loop is None or script.function(loop) is not script.function(node):
            continue
        guard = next((each for each in script.guards(node) if each.who(script.tree) is not None), None)
        if guard is None or not _stands_in(script, guard.test, loop) or _others_leave(script, loop, node):
            continue
        met = _meeting(script, loop)
        if met is not None:
            yield Finding(
                "one rank alone leaves this loop: the others wait for it in the next step",
                (script.seen(node, "all ranks leave"), script.seen(guard.test), script.seen(met)),
                Fix("tell all ranks whether to leave, and let them leave together", diff=MEND),
                script.place(node),
            )


def _ends(script: Script) -> Iterator[ast.Call]:
    """Yield the calls that end the process as one that has done its work; a launcher ends the others after an error."""
    for call in script.calls("sys.exit", "exit", "quit"):
        match call.args:
            case [] | [ast.Constant(value=0)]:
                yield call


MEND = (
    "+stop = torch.tensor(int(early_stop), device=device)\n+dist.broadcast(stop, src=0)\n+if stop.item():\n+    break"
)


def _stands_in(script: Script, test: ast.expr, loop: ast.AST) -> bool:
    return any(each is loop for each in script.tree.above(test))


def _others_leave(script: Script, loop: ast.AST, own: ast.AST) -> bool:
    """Whether the loop has another way out, which the other ranks can take."""
    away = (ast.Break, ast.Return, ast.Raise)
    others = [node for node in script.inside(loop) if isinstance(node, away) and node is not own]
    return any(not _is_of_all(script, loop, each) for each in others) or any(
        each.who(script.tree) == OTHER_RANKS for each in script.guards(own)
    )


TOLD = re.compile(r"broadcast|scatter|gather|recv|\.(?:get|wait)\(|stop|flag|early|done|finish", re.IGNORECASE)
"""What can tell the other ranks that one of them leaves."""


def _is_of_all(script: Script, loop: ast.AST, way: ast.AST) -> bool:
    """Whether all ranks leave by a way together, and not because one of them has left: by what is known to each."""
    tests = [guard.test for guard in script.guards(way) if _stands_in(script, guard.test, loop)]
    names = {each.id for test in tests for each in ast.walk(test) if isinstance(each, ast.Name)}
    is_rankish = any(guard.is_rankish(script.tree) for guard in script.guards(way))
    if not tests or (is_rankish and not names <= _reduced(script, loop)):
        return False
    if TOLD.search(" ".join(map(script.code, tests))) or any(TOLD.search(each) for each in _collected(script, loop)):
        return False
    return not names & _kept_by_some(script, loop)


def _reduced(script: Script, loop: ast.AST) -> set[str]:
    """Return the variables that hold the same on all ranks in a loop, since they are reduced there."""
    calls = [each for each in script.calls("torch.distributed.all_reduce") if _stands_in(script, each, loop)]
    return {each.args[0].id for each in calls if each.args and isinstance(each.args[0], ast.Name)}


def _collected(script: Script, loop: ast.AST) -> list[str]:
    return [script.code(each.func) for each in ast.walk(loop) if isinstance(each, ast.Call)]


def _kept_by_some(script: Script, loop: ast.AST) -> set[str]:
    """Return the variables that some ranks alone write in a loop, or change in place."""
    found = set()
    for node in ast.walk(loop):
        if not isinstance(node, ast.Name) or not any(each.is_rankish(script.tree) for each in script.guards(node)):
            continue
        parent = script.tree.parents[node]
        changed = isinstance(parent, ast.Attribute) and parent.attr.endswith("_")
        stored = isinstance(parent, ast.Subscript) and isinstance(parent.ctx, ast.Store)
        if isinstance(node.ctx, ast.Store) or changed or stored:
            found.add(node.id)
    return found


def _meeting(script: Script, loop: ast.For | ast.AsyncFor) -> ast.Call | None:
    """Return what all ranks do together in each round of a loop: a collective, or a step of a wrapped model."""
    for node in script.inside(*loop.body):
        if not isinstance(node, ast.Call) or any(each.who(script.tree) for each in script.guards(node)):
            continue
        if script.resolve(node.func) in COLLECTIVES:
            return node
        if _is_wrapped(script, node.func) or _trains(script, node):  # unwrapped, there is one process alone
            return node
    return None


def _trains(script: Script, call: ast.Call) -> bool:
    """Whether a call of a function of the project hands it a wrapped model, which it calls, and goes backward."""
    found = script.defined(call.func)
    if found is None or not isinstance(found[1], ast.FunctionDef):
        return False
    wrapped = {name for name, each in by_parameter(found[1], call).items() if _is_wrapped(script, each)}
    called = [each.func for each in ast.walk(found[1]) if isinstance(each, ast.Call)]
    return any(isinstance(each, ast.Name) and each.id in wrapped for each in called) and any(
        isinstance(each, ast.Attribute) and each.attr == "backward" for each in called
    )


def _is_wrapped(script: Script, node: ast.expr) -> bool:
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return False
    wrap = script.wrap(node)
    return script.is_wrapped_abroad(node) if wrap is None else wrap.kind == "DistributedDataParallel"
