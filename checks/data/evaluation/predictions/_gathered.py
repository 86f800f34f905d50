"""Predictions that are gathered rank by rank, as the source says it: how they are joined, and what they meet."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ddpdoctor.check import Site, last_name

from ...._evaluation.metrics import part_around

JOINS = {"cat", "concat", "concatenate", "vstack", "hstack", "sum", "chain", "from_iterable"}
SORTS = re.compile(r"stack\(|zip|transpose|permute|sort|order|\bidx|indice|\w_ids?\b|\bid\b|::|scatter|\.T\b|swapaxes")
"""What can bring them into the order of the data set."""
METRICS = re.compile(
    r"accuracy|f1|auc|score|precision|recall|matthews|kappa|confusion|mean_squared|mean_absolute|pearson|spearman|compute"
    r"|r2|squared|mse|mae|rmse|loss|error|dice|iou|jaccard|ndcg|psnr|ssim|corr|evaluate|metric|report|wer|cer|bleu|rouge"
)
MAKES = {"array", "asarray", "tensor", "as_tensor", "list", "from_numpy"} | JOINS
SAME = {"numpy", "cpu", "tolist", "argmax", "flatten", "detach", "to", "long", "int", "float", "reshape", "squeeze"}
"""Functions, and methods, whose result has an entry for each prediction, in the same order."""


def cut_and_compared(file: str, line: int) -> tuple[str, int, int] | None:
    """Return how what a line gathers is joined and cut, the line that does so, and the one that compares the result."""
    around = part_around(Site(file, line, ""))
    call = next((node for node in ast.walk(around) if isinstance(node, ast.Call) and _is_at(node, line)), None)
    if call is None or not call.args or SORTS.search(ast.unparse(around)):
        return None
    known = {ast.unparse(call.args[0])}
    cut: ast.expr | None = None
    for node in _in_order(around, line):
        found = next((each for each in ast.walk(node) if _is_cut(each, known)), None)
        if found is not None:
            cut = found  # type: ignore[assignment]
        if isinstance(node, ast.Assign) and _keeps(node.value, known):
            known |= {each.id for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name)}
    if cut is None:
        return None
    returns = any(isinstance(node, ast.Return) and node.value is not None and _keeps(node.value, known)
                  for node in ast.walk(around))  # fmt: skip
    compared = _compared(around, known, cut.lineno) or (_by_callers(file, around) if returns else 0)
    return (ast.unparse(cut), cut.lineno, compared) if compared else None


def _is_at(node: ast.Call, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or 0) and "gather" in ast.unparse(node.func)


def _in_order(around: ast.AST, line: int) -> list[ast.stmt]:
    found = [node for node in ast.walk(around) if isinstance(node, ast.stmt) and node.lineno > line
             and not hasattr(node, "body")]  # fmt: skip
    return sorted(found, key=lambda node: node.lineno)


def _has(value: ast.AST, known: set[str]) -> bool:
    return any(isinstance(each, ast.Name) and each.id in known for each in ast.walk(value))


def _keeps(value: ast.AST, known: set[str]) -> bool:
    """Whether an expression still has an entry for each prediction."""
    match value:
        case ast.Name(id=name):
            return name in known
        case ast.Subscript(value=inner):
            return _keeps(inner, known)
        case ast.ListComp(generators=[ast.comprehension(iter=inner), *_]):
            return _keeps(inner, known)
        case ast.Call(func=ast.Attribute(attr=name, value=inner)) if name in SAME and _keeps(inner, known):
            return True
        case ast.Call(func=called, args=[inner, *_]):
            return last_name(called) in MAKES and _keeps(inner, known)
    return False


def _is_cut(node: ast.AST, known: set[str]) -> bool:
    """Whether an expression joins what was gathered and takes its first part: ``torch.cat(parts)[:n]``."""
    match node:
        case ast.Subscript(value=value, slice=ast.Slice(lower=None, upper=ast.expr(), step=None)):
            joined = isinstance(value, (ast.Name, ast.ListComp)) or any(
                isinstance(each, ast.Call) and last_name(each.func) in JOINS for each in ast.walk(value)
            )
            return joined and _has(value, known)
    return False


def _compared(around: ast.AST, names: set[str], line: int) -> int:
    """Return the line that compares the predictions with something else, one by one."""
    for node in ast.walk(around):
        if getattr(node, "lineno", 0) < line:
            continue
        match node:
            case ast.Compare(left=left, ops=[ast.Eq()], comparators=[other]):
                sides = [left, other]
            case ast.Call(func=ast.Attribute(attr="eq", value=left), args=[other]):
                sides = [left, other]
            case ast.BinOp(left=left, op=ast.Sub(), right=other):
                sides = [left, other]
            case ast.Call(func=called, args=[_, _, *_] as sides) if METRICS.search(ast.unparse(called)):
                pass
            case _:
                continue
        own = [_keeps(side, names) for side in sides]
        others = [side for side, mine in zip(sides, own, strict=True) if not mine]
        if any(own) and any(isinstance(each, ast.Name) for side in others for each in ast.walk(side)):
            return int(node.lineno)
    return 0


def _by_callers(file: str, around: ast.AST) -> int:
    """Return the line that compares what the function returns, where it is called in the same file."""
    name = getattr(around, "name", "")
    for caller in _functions(file) if name else ():
        for node in ast.walk(caller):
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq) and _meets(node, name):
                return node.lineno
            match node:
                case ast.Assign(targets=[ast.Name(id=target)], value=ast.Call(func=called)):
                    if last_name(called) == name:
                        return _compared(caller, {target}, node.lineno)
    return 0


def _meets(node: ast.Compare, name: str) -> bool:
    """Whether one side of a comparison is what a function of this name returns, and the other one something else."""
    called = [isinstance(side, ast.Call) and last_name(side.func) == name
              for side in (node.left, node.comparators[0])]  # fmt: skip
    return any(called) and not all(called)


def _functions(file: str) -> Iterator[ast.AST]:
    whole = part_around(Site(file, 0, ""))
    yield from (node for node in ast.walk(whole) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))
    yield whole
