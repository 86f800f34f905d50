"""Which numbers of a function are of one rank, and which were added up over all, as the source says it."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field

from ddpdoctor.check import Site, last_name

from .._evaluation.counts import PUT_TOGETHER, SIZES, bare, counts_ranks
from .._evaluation.metrics import part_around

SUMS = {"all_reduce", "reduce"}
RANK = re.compile(r"rank", re.IGNORECASE)
COUNTED = re.compile(r"^(n|m|num|count|counts|total|size|seen|tokens|words|n_\w+|num_\w+|\w+_count|\w+_total)$")
TOTALS = re.compile(r"\.sum\(|\.item\(\)|sum\(")


@dataclass(frozen=True, slots=True)
class Mixed:
    """A quotient of what was added up over all ranks and what one rank has, or the other way round, and its line."""

    quotient: str
    summed: str
    own: str
    by_own_count: bool
    line: int


@dataclass(slots=True)
class Flow:
    """The names of a function: what each is computed from, and those that are counts."""

    around: ast.AST
    roots: dict[str, set[str]] = field(default_factory=dict)
    values: dict[str, list[ast.expr]] = field(default_factory=dict)
    counts: set[str] = field(default_factory=set)
    totals: set[str] = field(default_factory=set)
    together: set[str] = field(default_factory=set)

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
        for name in self._give(target, names_in(value), grows=grows):
            self.values.setdefault(name, []).append(value)
            sized = _sized(getattr(value, "value", value)) or (SIZES.search(text) and COUNTED.match(name))
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
        return cut or below or any(_is_sum_of(each, name) for each in whole)

    def of(self, names: set[str]) -> set[str]:
        """Return all that these names are computed from."""
        return names | {root for each in names for root in self.roots.get(each, ())}


def mixed(site: Site) -> Mixed | None:
    """Find a quotient of both kinds, after the line that adds something up; None where the number of ranks is known."""
    around = part_around(site)
    if not isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return None
    summed, parts = summed_in(around)
    if (not summed and not parts) or counts_ranks(around, summed | set(parts), around.lineno):
        return None
    flow = Flow(around)
    if _skips(around):
        return None
    flow.together |= _handed(around) - summed
    whole = {name for name in summed if name in flow.roots}
    for node in ast.walk(around):
        match node:
            case ast.BinOp(op=ast.Div(), left=left, right=right) if node.lineno > site.line:
                found = _parts_of_one(node, parts) or _both(node, bare(left), bare(right), whole, flow)
                if found is not None:
                    return found
    return None


def _skips(around: ast.AST) -> bool:
    """Whether a function leaves out what is other ranks', and counts beside that: it can be the whole."""
    grown = {each for each in ast.walk(around) if isinstance(each, ast.AugAssign)}
    for node in ast.walk(around):
        if isinstance(node, ast.If) and RANK.search(ast.unparse(node.test)):
            inside = {part for each in node.body for part in ast.walk(each)}
            if any(isinstance(each, ast.Continue) for each in inside):
                return True
            if "%" in ast.unparse(node.test) and not (grown and grown <= inside):
                return True
    return False


def _handed(around: ast.AST) -> set[str]:
    """Return the names that a call in a line of its own is given, which can change what they hold."""
    calls = [each.value for each in ast.walk(around) if isinstance(each, ast.Expr) and isinstance(each.value, ast.Call)]
    given = [part for each in calls if last_name(each.func) not in {"print", "info", *SUMS} for part in each.args]
    return {each.id for each in given if isinstance(each, ast.Name)}


def summed_in(around: ast.AST) -> tuple[set[str], dict[str, set[str]]]:
    """Return the names that are added up, and of those of which a part is: which one."""
    names: set[str] = set()
    parts: dict[str, set[str]] = {}
    loops = {
        each.target.id: each.iter
        for each in ast.walk(around)
        if isinstance(each, ast.For)
        and isinstance(each.target, ast.Name)
        and isinstance(each.iter, (ast.Tuple, ast.List))
    }
    for node in ast.walk(around):
        match node:
            case ast.Call(func=called, args=[given, *_]) if last_name(called) in SUMS:
                pass
            case _:
                continue
        match given:
            case ast.Name(id=name) if name in loops:
                names |= {each.id for each in ast.walk(loops[name]) if isinstance(each, ast.Name)}
            case ast.Name(id=name):
                names.add(name)
            case ast.Subscript(value=ast.Name(id=name), slice=at):
                parts.setdefault(name, set()).add(_place(at))
    return names, {name: each for name, each in parts.items() if name not in names}


def _place(at: ast.expr) -> str:
    """Return which part a subscript takes, by its first number: 0 of ``[0]`` and of ``[:1]``."""
    match at:
        case ast.Constant(value=int(place)):
            return str(place)
        case ast.Slice(lower=None, upper=ast.Constant(value=1)):
            return "0"
    return "?"


def _parts_of_one(node: ast.BinOp, parts: dict[str, set[str]]) -> Mixed | None:
    match bare(node.left), bare(node.right):
        case (
            ast.Subscript(value=ast.Name(id=one), slice=ast.Constant(value=int(first))),
            ast.Subscript(value=ast.Name(id=other), slice=ast.Constant(value=int(second))),
        ) if one == other and one in parts and "?" not in parts[one]:
            above, below = str(first) in parts[one], str(second) in parts[one]
            if above != below:
                texts = ast.unparse(bare(node.left)), ast.unparse(bare(node.right))
                return Mixed(ast.unparse(node), *(texts if above else texts[::-1]), above, node.lineno)
    return None


def _both(node: ast.BinOp, left: ast.expr, right: ast.expr, whole: set[str], flow: Flow) -> Mixed | None:
    above, below = names_in(left), names_in(right)
    if not above or not below or (above | below) & flow.together:
        return None
    shared = flow.of(above) & flow.of(below) - {"model", "self", "torch", "F", "nn"}
    if above <= whole and not below & whole and shared and flow.counts_own(right, above):
        return Mixed(ast.unparse(node), ast.unparse(left), ast.unparse(right), by_own_count=True, line=node.lineno)
    if (
        below <= whole
        and not above & whole
        and shared
        and above <= flow.totals
        and (all(flow.counts_own(ast.Name(id=each), above) for each in below))
    ):
        return Mixed(ast.unparse(node), ast.unparse(right), ast.unparse(left), by_own_count=False, line=node.lineno)
    return None


def _sized(node: ast.AST) -> str:
    """Return the name of what an expression says the size of; empty for anything else."""
    match node:
        case ast.Call(func=ast.Name(id="len"), args=[ast.Name(id=name)]):
            return name
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="numel" | "size")):
            return name
        case ast.Attribute(value=ast.Name(id=name), attr="shape"):
            return name
    return ""


def _is_sum_of(value: ast.expr, name: str) -> bool:
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
