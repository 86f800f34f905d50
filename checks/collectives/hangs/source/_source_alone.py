"""A collective that one rank alone comes to, and that the others nowhere call: read off the source, for certain."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

from ddpdoctor.check import ACCELERATOR, COLLECTIVES, FSDP, FULLY_SHARD, NO_PYTHON, OTHER_RANKS, Script, keyword

from ...._frameworks.fsdp2 import OF_SHARDS, gathers

ALWAYS = r"(?:not )?(?:\w+\.)*(?:is_initialized|is_available)\(\)"
"""Tests that are the same on all ranks: whether there is a group at all."""
OF_FSDP = frozenset(
    f"{FSDP}.{name}"
    for name in (
        "summon_full_params optim_state_dict full_optim_state_dict sharded_optim_state_dict optim_state_dict_to_load"
    ).split()
)
ZERO = ("torch.distributed.optim.ZeroRedundancyOptimizer", "fairscale.optim.OSS", "fairscale.optim.oss.OSS")
PROJECT, NUMBERED = "accelerate.utils.ProjectConfiguration", "automatic_checkpoint_naming"


def _meetings(script: Script) -> frozenset[str]:
    """Return the functions in which all ranks meet."""
    sharded = any(True for _ in script.calls(FSDP, FULLY_SHARD))
    return COLLECTIVES | OF_FSDP | (OF_SHARDS if sharded else frozenset())


@functools.cache
def is_called_alone(file: str, line: int) -> bool:
    """Whether the call at a line is one that the other ranks do not make, however they are called."""
    try:
        text = Path(file).read_text(encoding="utf-8")
        script = Script(file, text, ast.parse(text))
    except (OSError, *NO_PYTHON):
        return False
    return any(call.lineno <= line <= (call.end_lineno or line) for call, _ in calls_of_one_rank(script))


def calls_of_one_rank(script: Script) -> Iterator[tuple[ast.Call, ast.expr]]:
    """Yield the calls, each with the test that lets one rank alone come there."""
    for call in (*script.calls(*_meetings(script)), *_methods(script)):
        if script.resolve(call.func) in OF_SHARDS and not gathers(script, call):
            continue
        guard = script.one_rank_guard(call)
        if guard is None or keyword(call, "group") is not None or any(map(_is_group, call.args)):
            continue
        if _is_met_by_those_that_stay(script, call):
            continue
        if not _has_counterpart(script, call) and not _others_call(script, call, guard.test):
            yield call, guard.test


def _methods(script: Script) -> Iterator[ast.Call]:
    """Yield the calls of methods in which all ranks meet, of objects that the file makes.

    Accelerate's ``save_state`` waits for all ranks where it numbers its folders by itself.
    """
    gathers = any(True for _ in script.calls(*ZERO))
    given = [each for call in script.calls(PROJECT) for each in call.keywords]
    waits = any(each.arg == NUMBERED and ast.unparse(each.value) == "True" for each in given)
    for call in script.nodes(ast.Call):
        match call.func:
            case ast.Attribute(attr="consolidate_state_dict"):
                found = gathers
            case ast.Attribute(attr="save_state", value=owner):
                found = waits and bool(script.made_by(owner, ACCELERATOR))
            case _:
                continue
        if found:
            yield call


def _is_met_by_those_that_stay(script: Script, call: ast.Call) -> bool:
    """Whether the one rank leaves behind its collective, and the others, which go on, come to one of the same name."""
    statement = script.tree.statement(call)
    block = script.tree.block(statement) if statement is not None else []
    if not block or not isinstance(block[-1], (ast.Break, ast.Return, ast.Continue)):
        return False
    around = script.function(call)
    return any(
        script.resolve(each.func) == script.resolve(call.func)
        and script.function(each) is around
        and each.lineno > call.lineno
        and script.one_rank_guard(each) is None
        for each in script.calls(*_meetings(script))
    )


def helpers_of_one_rank(script: Script) -> Iterator[tuple[ast.Call, ast.expr, str]]:
    """Yield calls of the project's functions in which all ranks meet: the call, the test, the collective in it."""
    for call in script.nodes(ast.Call) if script.joins or "transformers" in script.imported else ():
        inner = _meeting(script, call)
        guard = script.one_rank_guard(call) if inner is not None and _is_only(script, call) else None
        if inner is None or guard is None or _others_call(script, call, guard.test) or _has_counterpart(script, call):
            continue
        yield call, guard.test, inner


def _is_only(script: Script, call: ast.Call) -> bool:
    """Whether nothing else in the file calls the same function."""
    code = ast.dump(call.func)
    return sum(ast.dump(each.func) == code for each in script.nodes(ast.Call)) == 1


def _meeting(script: Script, call: ast.Call) -> str | None:
    """Return the collective that the function of a call comes to on each of its ways, where there is a group."""
    found = script.defined(call.func)
    if found is None or not isinstance(found[1], ast.FunctionDef) or found[1].decorator_list:
        return None
    tree, function = found
    meetings = _meetings(script)
    for node in tree.of(ast.Call):
        path = script.names_in(tree, node.func)
        if path not in meetings or tree.function(node) is not function or keyword(node, "group") is not None:
            continue
        tests = [ast.unparse(each.test) for each in script.guards_in(tree, node)]
        if all(re.fullmatch(ALWAYS, each) for each in tests) and not any(map(_is_group, node.args)):
            return ast.unparse(node.func)
    return None


def _is_group(node: ast.expr) -> bool:
    return "group" in ast.unparse(node)


def _others_call(script: Script, call: ast.Call, test: ast.expr) -> bool:
    """Whether the ranks that the test keeps out call something instead, in which the collective can be."""
    branch = script.tree.parents.get(test)
    while branch is not None and not isinstance(branch, (ast.If, ast.stmt)):
        branch = script.tree.parents.get(branch)
    if not isinstance(branch, ast.If):
        return False
    around = [*script.tree.above(call)]
    away = branch.orelse if any(each in branch.body for each in around) else branch.body
    return any(isinstance(node, ast.Call) and script.resolve(node.func) != "print" for node in script.inside(*away))


def _has_counterpart(script: Script, call: ast.Call) -> bool:
    """Whether a collective stands where only the other ranks come, or one that they can be in at the same time.

    One that all ranks reach later in the same function is no counterpart: the one rank calls it as well. Neither is
    one behind the same tests as the call, of a loop around both, say.
    """
    shared = script.guards(call)
    for other in script.calls(*COLLECTIVES):
        own = [guard for guard in script.guards(other) if guard not in shared]
        if any(guard.who(script.tree) == OTHER_RANKS for guard in own):
            return True
        if script.one_rank_guard(other) is None and any(guard.is_rankish(script.tree) for guard in own):
            return True
    return bool(script.function(call)) and any(
        isinstance(node, (ast.Yield, ast.YieldFrom)) and script.function(node) is script.function(call)
        for node in script.tree.nodes
    )
