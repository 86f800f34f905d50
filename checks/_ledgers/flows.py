"""Which numbers of a function are of one rank, and which were added up over all, as the source says it."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field

from ddpdoctor.check import last_name

from .._evaluation.counts import KEPT, PUT_TOGETHER, SIZES

RANK = re.compile(r"rank", re.IGNORECASE)
COUNTED = re.compile(r"^(n|m|num|count|counts|total|size|seen|tokens|words|n_\w+|num_\w+|\w+_count|\w+_total)$")
FITS = {*KEPT, "clamp", "clamp_min", "unsqueeze", "view", "reshape"} - {"sum"}
TOTALS = re.compile(r"\.sum\(|\.item\(\)|sum\(")


@dataclass(slots=True)
class Flow:
    """The names of a function: what each is computed from, and those that are counts."""

    around: ast.AST
    roots: dict[str, set[str]] = field(default_factory=dict)
    values: dict[str, list[ast.expr]] = field(default_factory=dict)
    counts: set[str] = field(default_factory=set)
    totals: set[str] = field(default_factory=set)
    together: set[str] = field(default_factory=set)
    grown: set[str] = field(default_factory=set)
    anew: set[str] = field(default_factory=set)
    """Names that have grown, and were given something else after that."""

    def __post_init__(self) -> None:
        """Read all statements, in order."""
        nodes = [each for each in ast.walk(self.around) if isinstance(each, (ast.Assign, ast.AugAssign, ast.For))]
        for node in sorted(nodes, key=lambda each: each.lineno):
            if isinstance(node, ast.For):
                self._give(node.target, names_in(node.iter))
                continue
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                self._assign(target, node.value, grows=isinstance(node, ast.AugAssign))

    def _assign(self, target: ast.expr, value: ast.expr, *, grows: bool) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            for one, other in zip(target.elts, value.elts, strict=True):
                self._assign(one, other, grows=grows)
            return
        text = ast.unparse(value)
        grows = grows or _adds_to_itself(target, value)
        for name in self._give(target, names_in(value), grows=grows):
            self.values.setdefault(name, []).append(value)
            sized = _sized(getattr(value, "value", value)) or (SIZES.search(text) and COUNTED.match(name))
            if grows:
                self.anew.discard(name)
            elif name in self.grown and name not in names_in(value):
                self.anew.add(name)
                self.counts.discard(name)
            if grows:
                self.grown.add(name)
            if grows and sized:
                self.counts.add(name)
            if TOTALS.search(text) or grows:
                self.totals.add(name)
            if any(isinstance(each, ast.Call) and _puts_together(each) for each in ast.walk(value)):
                self.together.add(name)

    def _give(self, target: ast.expr, names: set[str], *, grows: bool = False) -> list[str]:
        parts = [each.id for each in ast.walk(target) if isinstance(each, ast.Name)]
        for name in parts:
            before = self.roots.get(name, set()) if grows else set()
            self.roots[name] = before | names | {root for each in names for root in self.roots.get(each, ())}
        return parts

    def counts_own(self, value: ast.expr, summed: set[str]) -> bool:
        """Whether a value is how many samples this rank has: counted batch by batch, or the length of its part."""
        value = shaped(value)
        if isinstance(value, ast.Name):
            given = self.values.get(value.id, [])
            built = [each for each in given if not isinstance(each, ast.Constant)]
            return value.id in self.counts or (len(built) == 1 and self.counts_own(built[0], summed))
        sized = [_sized(each) for each in ast.walk(value)]
        names = {each for each in sized if each}
        return len(names) == 1 and all(self._is_own(each, summed) for each in names)

    def _is_own(self, name: str, summed: set[str]) -> bool:
        """Whether a name holds a part that is cut by the rank, or all that is added up."""
        cut = any(RANK.search(ast.unparse(each)) for each in self.values.get(name, ()))
        below = any(
            RANK.search(ast.unparse(each)) for root in self.roots.get(name, ()) for each in self.values.get(root, ())
        )
        whole = [each for one in summed for each in self.values.get(one, ())]
        return cut or below or any(is_sum_of(each, name) for each in whole)

    def of(self, names: set[str]) -> set[str]:
        """Return all that these names are computed from."""
        return names | {root for each in names for root in self.roots.get(each, ())}


def _adds_to_itself(target: ast.expr, value: ast.expr) -> bool:
    """Whether a name is given what it was and something more: ``count = count + 1``."""
    match target, value:
        case ast.Name(id=name), ast.BinOp(left=ast.Name(id=added), op=ast.Add()):
            return name == added
    return False


def shaped(value: ast.expr) -> ast.expr:
    """Return what a count is made fit of: ``counts`` of ``counts.clamp(min=1)[:, None]``."""
    while True:
        match value:
            case ast.Call(func=ast.Attribute(value=held, attr=attr)) if attr in FITS:
                value = held
            case ast.Subscript(value=held, slice=ast.Tuple(elts=parts)) if any(map(_is_new, parts)):
                value = held
            case _:
                return value


def _is_new(part: ast.expr) -> bool:
    """Whether a part of a subscript is a new dimension."""
    return isinstance(part, ast.Constant) and part.value is None


def _sized(node: ast.AST) -> str:
    """Return the name of what an expression says the size of; empty for anything else."""
    match node:
        case ast.Call(func=ast.Name(id="len"), args=[ast.Name(id=name)]):
            return name
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="numel" | "size")):
            return name
        case ast.Attribute(value=ast.Name(id=name), attr="shape"):
            return name
        case ast.Call(func=ast.Attribute(attr="bincount"), args=[ast.Name(id=name), *_]):
            return name
    return ""


def is_sum_of(value: ast.expr, name: str) -> bool:
    """Whether an expression adds up all of what a name holds: ``points.sum(0)``."""
    match value:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=held), attr="sum")):
            return held == name
        case ast.Call(func=called, args=[ast.Name(id=held), *_]):
            return held == name and last_name(called) == "sum"
    return False


def _puts_together(call: ast.Call) -> bool:
    """Whether a call can return something of all ranks: not what builds a tensor of a rank's own numbers."""
    name = last_name(call.func)
    return bool(PUT_TOGETHER.search(name)) and name not in {"tensor", "stack", "cat", "as_tensor"}


def names_in(node: ast.AST) -> set[str]:
    called = {
        id(each.func) for each in ast.walk(node) if isinstance(each, ast.Call) and isinstance(each.func, ast.Name)
    }
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and id(each) not in called} - {"torch"}
