"""The backward of an autograd function that gathers: what it does with the gradients of all ranks."""

from __future__ import annotations

import ast
import re

from ddpdoctor.check import (
    StepFingerprinted,
    last_name,
    tree_of,
)

WORLD = re.compile(r"world|n_?ranks|num_ranks|replicas|n_?gpus|num_gpus|nprocs|num_processes|get_size", re.IGNORECASE)
TALKS = re.compile(r"reduce|gather|scatter|all_to_all|broadcast|psum|^send$|^recv$|sync")
SCALED = re.compile(r"(^|_|\.)lr($|_)|learning_rate|batch_?size|epoch|step", re.IGNORECASE).search
"""What is multiplied by the number of ranks, and is no gradient."""
PLAIN = {"tuple", "list", "range", "len", "zip", "enumerate", "int", "isinstance", "slice", "sum"}


def handed_on(file: str, line: int, event: StepFingerprinted) -> int:
    """Return the last line of a backward that communicates nothing, where forward adds up; 0 where it does."""
    tree = tree_of(file).module
    owner = next((each for each in ast.walk(tree) if isinstance(each, ast.ClassDef) and _gathers_at(each, line)), None)
    backward = _method(owner, "backward") if owner is not None else None
    steps = tree_of(event.site.file).module if event.site is not None else tree
    if owner is None or backward is None or _multiplies_by_world(owner) or _multiplies_by_world(steps):
        return 0
    calls = [each for each in ast.walk(backward) if isinstance(each, ast.Call)]
    if any(TALKS.search(last_name(each.func) or "") for each in calls) or not all(map(_is_plain, calls)):
        return 0
    ends = [each for each in ast.walk(backward) if isinstance(each, ast.Return) and each.value is not None]
    return ends[-1].lineno if ends else 0


def wrong(file: str, line: int) -> tuple[str, int] | None:
    """Return what the backward of the function around a line does wrong, and where; None where it is right."""
    tree = tree_of(file).module
    owner = next((each for each in ast.walk(tree) if isinstance(each, ast.ClassDef) and _gathers_at(each, line)), None)
    backward = _method(owner, "backward") if owner is not None else None
    if backward is None or _multiplies_by_world(tree):
        return None
    calls = [each for each in ast.walk(backward) if isinstance(each, ast.Call)]
    talks = [each for each in calls if TALKS.search(last_name(each.func) or "")]
    if not talks:
        ends = [each for each in ast.walk(backward) if isinstance(each, ast.Return) and each.value is not None]
        known = all(_is_plain(each) for each in calls)
        return ("hands on what its own rank's loss says alone", ends[-1].lineno) if known and ends else None
    if divided := next(
        (each.lineno for each in ast.walk(backward) if isinstance(each, (ast.stmt, ast.expr)) and _divides(each)), 0
    ):
        return "divides the sum by the number of ranks, as DDP does again", divided
    if any("AVG" in ast.unparse(each) for each in talks):
        return "averages over the ranks, as DDP does again", talks[0].lineno
    if all("all_reduce" in ast.unparse(each.func) for each in talks) and (at := _fixed_place(backward, talks)):
        return "hands on the part of one and the same rank", at
    return None


def _gathers_at(owner: ast.ClassDef, line: int) -> bool:
    """Whether a line is in the forward of a function of autograd's, and gathers from all ranks."""
    forward = _method(owner, "forward")
    if forward is None or not any("Function" in ast.unparse(base) for base in owner.bases):
        return False
    inside = forward.lineno <= line <= (forward.end_lineno or 0)
    return inside and not any(each.arg == "group" for each in ast.walk(owner) if isinstance(each, ast.keyword))


def _method(owner: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    return next((each for each in owner.body if isinstance(each, ast.FunctionDef) and each.name == name), None)


def _is_plain(call: ast.Call) -> bool:
    """Whether a call can bring nothing of another rank: a method of a tensor, or a function of torch or Python."""
    if isinstance(call.func, ast.Name):
        return call.func.id in PLAIN or call.func.id.startswith("get_")
    owner = ast.unparse(call.func).partition(".")[0]
    return isinstance(call.func, ast.Attribute) and owner not in {"self", "cls"}


def _divides(node: ast.AST) -> bool:
    match node:
        case ast.BinOp(op=ast.Div(), right=divisor) | ast.AugAssign(op=ast.Div(), value=divisor):
            pass
        case ast.Call(func=ast.Attribute(attr="div" | "div_"), args=[divisor, *_]):
            pass
        case _:
            return False
    return bool(WORLD.search(ast.unparse(divisor)))


def _multiplies_by_world(tree: ast.AST) -> bool:
    """Whether anything in the file is multiplied by the number of ranks, but a learning rate or a number of samples."""
    for node in ast.walk(tree):
        match node:
            case ast.BinOp(op=ast.Mult(), left=left, right=right):
                parts = [left, right]
            case ast.AugAssign(op=ast.Mult(), value=value):
                parts = [value]
            case ast.Call(func=ast.Attribute(attr="mul" | "mul_"), args=[value, *_]):
                parts = [value]
            case _:
                continue
        texts = [ast.unparse(each) for each in parts]
        if any(map(WORLD.search, texts)) and not any(map(SCALED, texts)):
            return True
    return False


def _fixed_place(backward: ast.FunctionDef, talks: list[ast.Call]) -> int:
    """Return the line that hands on a fixed place of what was added up; 0 where there is none."""
    added = {ast.unparse(each.args[0]) for each in talks if each.args}
    for node in ast.walk(backward):
        match node:
            case ast.Return(value=ast.Subscript(value=value, slice=ast.Constant(value=int()))):
                if ast.unparse(value) in added:
                    return node.lineno
    return 0
