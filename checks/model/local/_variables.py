"""What the source says of a variable that holds a statistic: what it is made of, and what it meets."""

from __future__ import annotations

import ast

from ddpdoctor.check import last_name, tree_of, variables_in

from ._statements import REDUCES

NAMES = 16  # that are followed
ARITHMETIC = (ast.Sub, ast.Div, ast.Mult)


def made_of_many(file: str, name: str) -> tuple[str, int] | None:
    """Return the line that first gives a name what a function such as ``mean`` made of many; None without."""
    assigned: dict[str, list[tuple[int, ast.expr]]] = {}
    for node in ast.walk(tree_of(file).module):
        if isinstance(node, (ast.Assign, ast.AugAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for each in targets:
                for part in each.elts if isinstance(each, ast.Tuple) else [each]:
                    if isinstance(part, ast.Name):
                        assigned.setdefault(part.id, []).append((node.lineno, node.value))
    waiting, seen = [name], {name}
    while waiting and len(seen) <= NAMES:
        for _, value in assigned.get(waiting.pop(0), ()):
            if any(isinstance(each, ast.Call) and REDUCES.match(last_name(each.func)) for each in ast.walk(value)):
                return file, min(line for line, _ in assigned[name])
            more = variables_in(value) & assigned.keys() - seen
            seen |= more
            waiting += sorted(more)
    return None


def meets_samples(file: str, name: str) -> bool:
    """Whether an expression shifts or scales something else by it."""
    for node in ast.walk(tree_of(file).module):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ARITHMETIC):
            sides = [variables_in(node.left), variables_in(node.right)]
            if any(name in ours and others - {name} for ours, others in (sides, sides[::-1])):
                return True
    return False
