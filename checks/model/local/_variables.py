"""What the source says of a variable that holds a statistic: what it is made of, and what it meets."""

from __future__ import annotations

import ast
import linecache
import re

from ddpdoctor.check import last_name, tree_of, variables_in

from ..._scripts.own_files import own_files
from ._communicating import exchanges
from ._statements import REDUCES, calls

FURTHER = {"clamp", "clamp_min", "clip", "sqrt", "add", "to", "float", "item", "squeeze", "unsqueeze", "maximum"}
"""Methods that compute further with what was reduced."""
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
            if any(isinstance(each, ast.Call) and makes_few(file, each) for each in ast.walk(value)):
                return file, min(line for line, _ in assigned[name])
            more = variables_in(value) & assigned.keys() - seen
            seen |= more
            waiting += sorted(more)
    return None


def makes_few(file: str, call: ast.Call) -> bool:
    """Whether a call makes of many samples a few numbers: a function such as ``mean``, or one of the script's own.

    That one returns what it has reduced, or computed from that; it communicates nothing.
    """
    name = last_name(call.func)
    if REDUCES.match(name):
        return True
    own = (
        next((each for each in _functions(file) if each.name == name), None)
        if isinstance(call.func, ast.Name)
        else None
    )
    if own is None or own.decorator_list or any(map(exchanges, calls(own))):
        return False
    if any(isinstance(each, (ast.For, ast.While, ast.With)) for each in ast.walk(own)):
        return False  # an evaluation, say
    reduced: set[str] = set()
    for each in sorted((part for part in ast.walk(own) if isinstance(part, ast.Assign)), key=lambda part: part.lineno):
        if _is_few(each.value, reduced):
            reduced |= {part.id for to in each.targets for part in ast.walk(to) if isinstance(part, ast.Name)}
    returned = [each.value for each in ast.walk(own) if isinstance(each, ast.Return) and each.value is not None]
    parts = [part for each in returned for part in (each.elts if isinstance(each, ast.Tuple) else [each])]
    return bool(parts) and all(_is_few(each, reduced) for each in parts)


def _is_few(value: ast.expr, reduced: set[str]) -> bool:
    """Whether an expression is a reduction, or computed from such with numbers alone."""
    match value:
        case ast.Call(func=called):
            inner = called.value if isinstance(called, ast.Attribute) else None
            further = inner is not None and last_name(called) in FURTHER and _is_few(inner, reduced)
            return further or REDUCES.match(last_name(called)) is not None
        case ast.Name(id=name):
            return name in reduced
        case ast.BinOp(left=left, right=right):
            sides = [each for each in (left, right) if not isinstance(each, ast.Constant)]
            return bool(sides) and all(_is_few(each, reduced) for each in sides)
    return False


def _functions(file: str) -> list[ast.FunctionDef]:
    """Return the functions of a file, and of those of its folder that it imports."""
    return [each for one in own_files(file) for each in tree_of(one).module.body if isinstance(each, ast.FunctionDef)]


def from_all_ranks(file: str, line: int) -> str:
    """Return the line, computed from the samples of all ranks; empty where it does not reduce one name that is seen.

    Rank 0's result given to all would make the ranks alike, and be one share's all the same.
    """
    made = next((each for each in tree_of(file).of(ast.Assign) if each.lineno == line == each.end_lineno), None)
    made_by = [] if made is None else calls(made.value)
    reduced = [_reduces(each) for each in made_by if makes_few(file, each)]
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
        case ast.Call(func=ast.Name(), args=[ast.Name(id=name)], keywords=[]):
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
