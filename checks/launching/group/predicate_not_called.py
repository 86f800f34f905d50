"""A function is asked for its answer without being called.

## What happens

`if dist.is_initialized:` is always true, and `dist.get_rank == 0` never: the name of a function without parentheses
is the function itself. The branch for rank 0 is taken by no rank, or by all. Where it is calculated with or handed to
torch (`100 // dist.get_world_size`, `num_replicas=dist.get_world_size`), Python ends with a TypeError about a function.

## How to be sure

`print(dist.get_rank == 0)`. Reported only for functions of torch that are compared, negated or tested by
themselves, and where a TypeError about a function comes out of such a line.

## How to mend it

Add the parentheses: `dist.get_rank() == 0`.

## Versions and sources

Holds for torch 2.2 to 2.13; seen with torch 2.13 CPU. Source: Python's truth value testing; the functions of
torch/distributed/distributed_c10d.py.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, lint, log_pattern

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP461", Severity.ERROR)


FUNCTIONS = {
    *(
        f"torch.distributed.{name}"
        for name in "get_rank get_world_size is_initialized is_available is_nccl_available".split()
    ),
    *(f"torch.cuda.{name}" for name in "is_available device_count current_device".split()),
    "torch.distributed.is_torchelastic_launched",
}


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for such a function where its answer is meant: in a test, a comparison, a calculation."""
    nodes: list[ast.Name | ast.Attribute] = [*script.nodes(ast.Name), *script.nodes(ast.Attribute)]
    for node in nodes:
        if not isinstance(node.ctx, ast.Load):
            continue
        if (script.resolve(node) in FUNCTIONS or _is_helper(script, node)) and _is_asked(script, node):
            right = f"{script.code(node)}()"
            yield Finding(
                f"{script.code(node)} is a function, and is not called here",
                (script.seen(node, right),),
                Fix("call it", edits=(script.replaced(node, right),)),
                script.place(node),
            )


@lint
def never_holds(script: Script) -> Iterator[Finding]:
    """Look for a barrier behind ``not evaluate`` where that is a function of the file, and no option."""
    told = set()
    for barrier in script.calls("torch.distributed.barrier"):
        for guard in script.guards(barrier):
            function = _function_denied(script, guard.test) if guard.holds else None
            around = script.function(barrier)
            if function is None or around in told:
                continue
            told.add(around)
            name = function.id
            yield Finding(
                f"{name} is a function, so that not {name} never holds: nobody waits at this barrier",
                (script.seen(guard.test, f"an option in the place of {name}"), script.seen(barrier)),
                Fix(
                    f"ask for an option of the function: {name} is none of its parameters",
                    diff=f"+def {getattr(around, 'name', 'load')}(..., {name}=False):",
                ),
                script.place(guard.test),
            )


def _function_denied(script: Script, test: ast.expr) -> ast.Name | None:
    """Return the function of the file that a test wants to be false, beside something else."""
    for each in test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else ():
        match each:
            case ast.UnaryOp(op=ast.Not(), operand=ast.Name() as name) if not HELPER.match(name.id):
                found = script.defined(name)
                if found is not None and found[0] is script.tree and isinstance(found[1], ast.FunctionDef):
                    return name
    return None


HELPER = re.compile(
    r"^(?:is_(?:main|master|primary|dist|distributed|rank|local_main|global)\w*|(?:get_)?(?:local_)?rank|get_world_size"
    r"|world_size)$"
)
"""Names that projects give to functions of their own for the same."""


def _is_helper(script: Script, node: ast.Name | ast.Attribute) -> bool:
    """Whether it names a function of the project that takes nothing, and answers from the rank or the group."""
    if not HELPER.match(node.id if isinstance(node, ast.Name) else node.attr):
        return False
    found = script.defined(node)
    if found is None or found[0].class_of(found[1]) is not None:
        return False
    function = found[1]
    takes = function.args
    if isinstance(function, ast.Lambda) or function.decorator_list or takes.args or takes.vararg or takes.kwarg:
        return False
    said = [each for each in ast.walk(function) if isinstance(each, ast.Return)]
    called = [each for each in ast.walk(function) if isinstance(each, ast.Call)]
    return bool(said) and any(RANKS.search(ast.unparse(each.func)) for each in called)


RANKS = re.compile(r"rank|world_size|is_initialized|is_available", re.IGNORECASE)


@log_pattern(
    r"TypeError: [^\n]{0,120}?(?:'(?:function|builtin_function_or_method)'|invalid combination of arguments - got"
    r" \([^)\n]{0,80}function)"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Find it in the lines of the user's own code that the traceback shows."""
    if found := UNCALLED.search(record.text, 0, match.start()):
        yield Finding(
            f"{found[0]} is a function, and is not called here",
            (record.proof(match, f"{found[0]}()"),),
            Fix("call it", diff=f"-{found[0]}\n+{found[0]}()"),
            record.place,
        )


UNCALLED = re.compile(
    r"\b(?:(?:torch\.)?distributed|dist|torch\.cuda)\.(?:get_rank|get_world_size|device_count|current_device)\b"
    r"(?![\w.]|\s*\()"
)


def _is_asked(script: Script, node: ast.expr) -> bool:
    match script.tree.parents.get(node):
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) | ast.Assert(test=test):
            return test is node
        case ast.UnaryOp(op=ast.Not()) | ast.BinOp() | ast.FormattedValue():
            return True
        case ast.BoolOp(values=values):
            return node in values
        case ast.Compare(ops=operators, comparators=others):
            is_identity = any(isinstance(each, (ast.Is, ast.IsNot)) for each in operators)
            return not is_identity and not any(
                isinstance(each, (ast.Name, ast.Attribute)) for each in others if each is not node
            )
    return False
