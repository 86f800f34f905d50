"""Parsers that know ``--local_rank`` alone, and how they come to know both spellings."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import dotted, keyword

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Edit, Script


def declarations(script: Script, project: Around) -> Iterator[ast.Call]:
    """Yield the calls by which a parser in use comes to know ``--local_rank`` and no other spelling."""
    for call in script.nodes(ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument":
            names = [each.value for each in call.args if isinstance(each, ast.Constant)]
            if "--local_rank" not in names or "--local-rank" in names:
                continue
            if not _is_idle(script, project, call):
                yield call


def is_strict(script: Script, declaration: ast.Call) -> bool:
    """Whether the parser ends the script where it is passed ``--local-rank``, which it does not know."""
    owner = declaration.func.value if isinstance(declaration.func, ast.Attribute) else None
    return _insists(declaration) or owner is None or not _is_lenient(script, owner)


def outcome(script: Script, declaration: ast.Call) -> str:
    """Return what becomes of the local rank in a script that has it from the option alone."""
    launched = "torch.distributed.launch of torch 2 passes --local-rank"
    if _insists(declaration):
        return f"--local_rank is required: torchrun does not pass it, and {launched}; either ends the script"
    if is_strict(script, declaration):
        return (
            "the local rank is read from --local_rank alone: torchrun does not pass it, so that every process gets the "
            f"default; {launched}, which ends the script"
        )
    return (
        "the local rank is read from --local_rank alone, and every process gets the default: torchrun does not pass "
        f"it, and {launched}, which the parser passes over"
    )


def _insists(declaration: ast.Call) -> bool:
    required = keyword(declaration, "required")
    return isinstance(required, ast.Constant) and required.value is True


def is_calculated(declaration: ast.Call) -> bool:
    """Whether the default is no number, but made of something else."""
    default = keyword(declaration, "default")
    return default is not None and not _is_number(default)


def mended(script: Script, declaration: ast.Call) -> str:
    """Return the change of the line, as a diff: both spellings, and a default from the environment."""
    return (
        f"-{script.code(declaration)}\n+{script.code(declaration.func)}"
        '("--local-rank", "--local_rank", type=int, default=int(os.environ.get("LOCAL_RANK", 0)))'
    )


def _is_lenient(script: Script, parser: ast.expr) -> bool:
    """Whether a parser passes over options that it does not know; one of another name that does is no matter."""
    lenient = [
        each.func.value
        for each in script.nodes(ast.Call)
        if isinstance(each.func, ast.Attribute)
        and each.func.attr in {"parse_known_args", "parse_known_intermixed_args"}
    ]
    named = {dotted(each) for each in lenient}
    made = script.held(parser)
    is_known = isinstance(made, ast.Call) and script.resolve(made.func) == "argparse.ArgumentParser"  # and no group
    if not lenient or (is_known and None not in named and dotted(parser) not in named):
        return any(script.held(each) is made for each in lenient)  # of two names
    return True


def _is_idle(script: Script, project: Around, option: ast.Call) -> bool:
    """Whether a function adds the option to a parser that it is handed, and nobody calls it, here or elsewhere."""
    function, parser = script.function(option), getattr(option.func, "value", None)
    bound = script.tree.lookup(parser.id, parser) if isinstance(parser, ast.Name) else []
    if not isinstance(function, ast.FunctionDef) or not any(isinstance(each.node, ast.arg) for each in bound):
        return False
    name = function.name
    is_named = any(name in each for each in (script.tree.read, script.tree.members)) or function.decorator_list
    return not is_named and not project.others_say(rf"\b{name}\b")


def both_ways(script: Script, call: ast.Call) -> tuple[Edit, ...]:
    """Return the edits that let the option be passed by both spellings, and take its default from the environment."""
    if not script.has_module("os"):
        return ()
    default, required = keyword(call, "default"), keyword(call, "required")
    freed = (script.replaced(required, "False"),) if required is not None else ()
    number = script.code(default) if default is not None and script.code(default) != "None" else "0"
    right = f'int(os.environ.get("LOCAL_RANK", {number}))'
    if default is not None:
        return (hyphened(script, call), *freed, script.replaced(default, right))
    return (hyphened(script, call), *freed, script.keyword_added(call, f"default={right}"))


def hyphened(script: Script, call: ast.Call) -> Edit:
    """Return the edit that puts the spelling of torch 2 before the other: the attribute stays that of both."""
    option = next(each for each in call.args if isinstance(each, ast.Constant) and each.value == "--local_rank")
    return script.replaced(option, '"--local-rank", "--local_rank"')


def _is_number(node: ast.expr) -> bool:
    return isinstance(node.operand if isinstance(node, ast.UnaryOp) else node, ast.Constant)
