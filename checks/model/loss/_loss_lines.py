"""The line that computes a loss, as the source says it, and whether its function speaks of the number of ranks."""

from __future__ import annotations

import ast
import re

from ddpdoctor.check import Site

from ..._evaluation.metrics import part_around
from ..._evaluation.quotients import WORLD

WORLDS = re.compile(r"world|ranks|num_processes|num_gpus|n_gpu|replicas", re.IGNORECASE)
KINDS = (ast.Mult, ast.Div, ast.FloorDiv)
IN_PLACE = {"div", "div_", "mul", "mul_", "true_divide"}


def scales_by_ranks(file: str, line: int, until: int = 0) -> bool:
    """Whether the function around a line multiplies or divides by the number of ranks, up to another of its lines.

    Until is 0 for the whole function; behind what calls backward() a loss is scaled no more.
    """
    around = ast.walk(part_around(Site(file, line, "")))
    return any(_scales(each) for each in around if not until or getattr(each, "lineno", 0) <= until)


def line_that_scales_by_ranks(file: str, line: int) -> int:
    """Return the line of the statement at a line, or of one it is made of, that multiplies by the number of ranks.

    0 where none does.
    """
    around = part_around(Site(file, line, ""))
    assigned = [each for each in ast.walk(around) if isinstance(each, ast.Assign)]
    own = [each for each in ast.walk(around) if isinstance(each, (ast.Assign, ast.Expr)) and each.lineno == line]
    names = {node.id for each in own for node in ast.walk(each.value) if isinstance(node, ast.Name)}
    parts = [each for each in assigned if any(isinstance(to, ast.Name) and to.id in names for to in each.targets)]
    return next((each.lineno for each in (*own, *parts) for part in ast.walk(each) if _scales(part)), 0)


def _scales(node: ast.AST) -> bool:
    match node:
        case ast.BinOp(op=op, left=left, right=right) if isinstance(op, KINDS):
            parts = [left, right]
        case ast.AugAssign(op=op, value=value) if isinstance(op, KINDS):
            parts = [value]
        case ast.Call(func=ast.Attribute(attr=name), args=[value, *_]) if name in IN_PLACE:
            parts = [value]
        case _:
            return False
    words = {word for each in parts for word in re.findall(r"\w+", ast.unparse(each))}
    return bool(words & WORLD) or any(map(WORLDS.search, words))


def loss_line(file: str, line: int) -> tuple[str, int] | None:
    """Return the line that computes what a line calls backward() of."""
    around = part_around(Site(file, line, ""))
    calls = [
        node.func.value
        for node in ast.walk(around)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "backward"
        and node.lineno <= line <= (node.end_lineno or 0)
    ]
    for _ in range(2):
        names = {each.id for call in calls for each in ast.walk(call) if isinstance(each, ast.Name)}
        assigned = [
            node
            for node in ast.walk(around)
            if isinstance(node, ast.Assign)
            and node.lineno <= line
            and any(isinstance(each, ast.Name) and each.id in names for each in node.targets)
        ]
        last = max(assigned, key=lambda node: node.lineno, default=None)
        if last is None:
            return None
        if any(isinstance(each, ast.Call) for each in ast.walk(last.value)):
            return file, last.lineno
        calls, line = [last.value], last.lineno
    return None
