"""What the source says of a variable that holds a statistic: what it is made of, and what it meets."""

from __future__ import annotations

import ast
import linecache
import re

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


def from_all_ranks(file: str, line: int) -> str:
    """Return the line, computed from the samples of all ranks; empty where it does not reduce one name that is seen.

    Rank 0's result given to all would make the ranks alike, and be one share's all the same.
    """
    made = next((each for each in tree_of(file).of(ast.Assign) if each.lineno == line == each.end_lineno), None)
    calls = [] if made is None else [each for each in ast.walk(made.value) if isinstance(each, ast.Call)]
    reduced = [_reduces(each) for each in calls if REDUCES.match(last_name(each.func))]
    code = linecache.getline(file, line).strip()
    name = reduced[0] if len(set(reduced)) == 1 else ""
    mended, times = re.subn(rf"\b{name}\b", "every", code)
    if not name or times != len(reduced):
        return ""
    return (
        f"+parts = [None] * dist.get_world_size()\n+dist.all_gather_object(parts, {name})   # each rank's share\n"
        f"+every = {joins(code)}(parts)\n-{code}\n+{mended}"
    )


def joins(code: str) -> str:
    """Return the function that joins what the ranks have, of arrays or of tensors, as code has them."""
    return "np.concatenate" if re.search(r"\b(?:np|numpy)\.", code) else "torch.cat"


def _reduces(call: ast.Call) -> str:
    """Return the name whose values a call such as ``x.mean(0)``, or ``torch.mean(x)``, reduces; empty for another."""
    match call:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="torch" | "np" | "numpy")), args=[ast.Name(id=name), *_]):
            return name
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name))) if name not in {"torch", "np", "numpy"}:
            return name
    return ""


def meets_samples(file: str, name: str) -> bool:
    """Whether an expression shifts or scales something else by it."""
    for node in ast.walk(tree_of(file).module):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ARITHMETIC):
            sides = [variables_in(node.left), variables_in(node.right)]
            if any(name in ours and others - {name} for ours, others in (sides, sides[::-1])):
                return True
    return False
