"""What an evaluation divides its sums by, and the curves that no quotient of sums gives."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ddpdoctor.check import Site, tree_of

from .metrics import part_around, words_in

CURVED = re.compile(
    r"(^|_)(f1|fbeta|auc|auroc|roc_auc|average_precision|rmse|ppl|perplexity|bleu|mcc|matthews|r2|kappa|corrcoef"
    r"|spearmanr?|pearsonr?|median|exp|sqrt)(_score|_coef|_corrcoef)?$"
)
"""Functions of all samples that are no mean over them."""
FOLLOWED = 4  # names
WORLD = {"world_size", "get_world_size", "world", "num_replicas", "num_processes", "nprocs", "ngpus", "num_gpus"}


def divides(site: Site) -> tuple[bool, bool]:
    """Whether what a line reduces is divided by the length of something, and whether by the number of ranks.

    Followed is the name that is given to the communication, until it is given to something else.
    """
    around = part_around(site)
    name = next(
        (
            ast.unparse(node.args[0])
            for node in ast.walk(around)
            if isinstance(node, ast.Call)
            and node.lineno == site.line
            and "reduce" in ast.unparse(node.func)
            and node.args
        ),
        "",
    )
    said = [words_in(divisor) for divisor in _divisors(_after(around, site.line, name), name)] if name else []
    return any("len" in names for names in said), any(WORLD & names for names in said)


def is_divisor(site: Site) -> bool:
    """Whether what a line reduces divides something in its function, and is itself divided by nothing."""
    around = part_around(site)
    calls = (node for node in ast.walk(around) if isinstance(node, ast.Call) and node.lineno == site.line)
    names = {ast.unparse(each.args[0]) for each in calls if "reduce" in ast.unparse(each.func) and each.args}
    quotients = [each for each in ast.walk(around) if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Div)]
    below = any(names & {ast.unparse(part) for part in ast.walk(each.right)} for each in quotients)
    above = any(names & {ast.unparse(part) for part in ast.walk(each.left)} for each in quotients)
    return below and not above


def computed_by(site: Site) -> str:
    """Return the function that computes the number that a line reduces, if a mean of its results is not its result.

    Followed is the name that is given to the communication, through assignments and through one parameter.
    """
    around = part_around(site)
    given = [node.args[0] for node in ast.walk(around) if isinstance(node, ast.Call) and node.lineno == site.line
             and "reduce" in ast.unparse(node.func) and node.args]  # fmt: skip
    return next((found for each in given if (found := _curved(each, around, site, FOLLOWED))), "")


def _curved(value: ast.expr, around: ast.AST, site: Site, depth: int) -> str:
    """Return the name of such a function in an expression, or in what its name was assigned last."""
    for node in ast.walk(value):
        if isinstance(node, ast.Call) and CURVED.search(name := ast.unparse(node.func).rpartition(".")[2].lower()):
            return name
        match node:
            case ast.BinOp(op=ast.Pow(), right=ast.Constant(value=0.5)):
                return "sqrt"
    names = [node.id for node in ast.walk(value) if isinstance(node, ast.Name)]
    if not depth or len(set(names) - {"torch", "device", "self"}) != 1:
        return ""
    name = next(each for each in names if each not in {"torch", "device", "self"})
    assigned = [node for node in ast.walk(around) if isinstance(node, ast.Assign) and node.lineno < site.line
                and name in map(ast.unparse, node.targets)]  # fmt: skip
    if assigned:
        last = max(assigned, key=lambda node: node.lineno)
        return _curved(last.value, around, site._replace(line=last.lineno), depth - 1)
    if isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef)):
        places = [at for at, each in enumerate(around.args.args) if each.arg == name]
        for call in ast.walk(tree_of(site.file).module) if places else ():
            of_it = isinstance(call, ast.Call) and ast.unparse(call.func) == around.name
            if of_it and len(call.args) > places[0]:  # type: ignore[attr-defined]
                called = Site(site.file, call.lineno, "")  # type: ignore[attr-defined]
                if found := _curved(call.args[places[0]], part_around(called), called, depth - 1):  # type: ignore[attr-defined]
                    return found
    return ""


def _after(around: ast.AST, line: int, name: str) -> Iterator[ast.AST]:
    """Yield what a function says from a line on, up to where the name is given another meaning."""
    statements = [each for each in ast.walk(around) if isinstance(each, ast.stmt) and each.lineno >= line]
    for each in sorted(statements, key=lambda each: (each.lineno, each.col_offset)):
        if isinstance(each, ast.Assign) and name in map(ast.unparse, each.targets) and name not in words_in(each.value):
            return
        yield each


def _divisors(statements: Iterator[ast.AST], name: str) -> Iterator[ast.AST]:
    """Yield what the name is divided by."""
    for node in (node for each in statements for node in ast.walk(each)):
        match node:
            case ast.BinOp(op=ast.Div(), left=divided, right=divisor):
                pass
            case ast.AugAssign(op=ast.Div(), target=divided, value=divisor):
                pass
            case ast.Call(func=ast.Attribute(attr="div" | "div_", value=divided), args=[divisor, *_]):
                pass
            case _:
                continue
        if name in words_in(divided) or name == ast.unparse(divided):
            yield divisor
