"""Divisions by the number of ranks of what no rank has added up, as the source says it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ddpdoctor.check import last_name

WORLD = {"world_size", "get_world_size", "world", "ddp_world_size", "nprocs", "num_processes"}
SHARED_OUT = re.compile(
    r"batch|size|worker|\blr\b|rate|step|len|total|num|count|iter|epoch|sample|accum|seed|budget|tokens|memory|shard"
    r"|chunk|per_|param|index|rank|start|end|grad|bucket|fut",
    re.IGNORECASE,
)
"""Names of what is shared out among the ranks, and of gradients, which hooks can have exchanged."""
OWN = {"item", "detach", "clone", "float", "double", "cpu", "mean", "sum", "to", "tolist", "norm", "tensor", "zeros",
       "as_tensor", "stack", "abs", "max", "min"}  # fmt: skip
"""What computes with a rank's own numbers alone."""
LOSSES = re.compile(r"loss|criterion|cross_entropy|softplus|entropy|norm\b|nll|bce|mse", re.IGNORECASE)
COLLECTS = re.compile(r"reduce|gather|sync|broadcast|collect|all_|across|world|dist\.", re.IGNORECASE)
REDUCES = re.compile(r"(^|_)(all_?)?reduce|average_across|mean_across|sync_value|reduce_mean", re.IGNORECASE)
Function = (ast.FunctionDef, ast.AsyncFunctionDef)
DEEPEST = 4  # names
HARMLESS = {"print", "float", "int", "len", "zip", "sorted", "dict", "list", "tuple", "range", "enumerate", "round",
            "lerp", "append", "items", "keys", "values", "format", "dim", "isfinite", "isnan", "scale",
            "backward", "info", "debug", "warning", "write", "add_scalar", "set_postfix",
            "set_description"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Division:
    """One such division: its line and code, what is divided, and the line that has computed that."""

    line: int
    code: str
    value: str
    computed: int


def divisions(module: ast.Module) -> Iterator[Division]:
    """Find them in the functions of a file, and in its own statements."""
    for around in (module, *(each for each in ast.walk(module) if isinstance(each, Function))):
        yield from _Scope(around).divisions()


class _Scope:
    """The statements of one function, or of the file without its functions."""

    def __init__(self, around: ast.Module | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """List them once."""
        self.around = around
        self.nodes = list(_own(around))
        self.calls = [each for each in self.nodes if isinstance(each, ast.Call)]

    def divisions(self) -> Iterator[Division]:
        """Yield what they divide by the number of ranks, of this rank's own."""
        for node in self.nodes:
            divided = _divided(node)
            if divided is None:
                continue
            line = node.lineno  # type: ignore[attr-defined]
            computed = self._own_line(divided, line)
            if computed:
                yield Division(line, ast.unparse(node), ast.unparse(_bare(divided)), computed)

    def _own_line(self, divided: ast.expr, line: int) -> int:
        """Return the line that has computed a value from this rank's own numbers; 0 where others can be in it."""
        names = self._known(divided, line)
        if not names or any(SHARED_OUT.search(each) for each in names):
            return 0
        if any(_says(each.args, names) and not self._is_harmless(each) for each in self.calls) or self._learns(names):
            return 0
        origin = self._origin(names, line)
        return origin or (self.around.lineno if self._is_reducer(names) else 0)  # type: ignore[union-attr]

    def _known(self, divided: ast.expr, line: int) -> set[str]:
        """Return the names that a value consists of, and what those were computed from in turn."""
        names = set(_names(_bare(divided)))
        for _ in range(DEEPEST):
            for each in self._assigned(names, line):
                if not _is_loss(each):
                    names |= set(_names(each)) & self._values()
        return names - WORLD

    def _values(self) -> set[str]:
        """Return what the function assigns, or is given."""
        stored = {each.id for each in self.nodes if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
        arguments = getattr(self.around, "args", None)
        return stored | {each.arg for each in arguments.args} if arguments is not None else stored

    def _assigned(self, names: set[str], line: int) -> list[ast.expr]:
        """Return what the names are given, or have added to them, up to a line."""
        return [
            each.value
            for each in self.nodes
            if isinstance(each, (ast.Assign, ast.AugAssign))
            and each.lineno <= line
            and any(isinstance(target, ast.Name) and target.id in names for target in _targets(each))
        ]

    def _origin(self, names: set[str], line: int) -> int:
        """Return the line of a loss, or of its value, that the names were computed from; 0 where there is none."""
        values = self._assigned(names, line)
        lines = [each.lineno for each in values if _is_loss(each) or _is_mean(each)]
        rest = [value for value in values if not _is_loss(value)]
        calls = [each for value in rest for each in ast.walk(value) if isinstance(each, ast.Call)]
        other = [each for each in calls if not self._is_of_one_rank(each) and _says(each.args, names)]
        return max(lines, default=0) if not other else 0

    def _is_of_one_rank(self, call: ast.Call) -> bool:
        """Whether what a call returns is computed on this rank alone: by tensors, or by what a variable holds."""
        held = isinstance(call.func, ast.Name) and call.func.id in self._values()
        return last_name(call.func) in OWN or (held and not COLLECTS.search(ast.unparse(call.func)))

    def _is_reducer(self, names: set[str]) -> bool:
        """Whether this is a function that is named for reducing what it is given, and the names are of that."""
        arguments = getattr(self.around, "args", None)
        if arguments is None or not REDUCES.search(self.around.name):  # type: ignore[union-attr]
            return False
        return bool(names & {each.arg for each in arguments.args})

    def _is_harmless(self, call: ast.Call) -> bool:
        """Whether a call can put nothing of another rank into what it is given."""
        name = last_name(call.func) or ""
        return name in OWN | HARMLESS or bool(LOSSES.search(name))

    def _learns(self, names: set[str]) -> bool:
        """Whether a backward is computed from one of the names."""
        called = [each for each in self.calls if last_name(each.func) == "backward"]
        losses = [part for each in called for part in (each.func, *each.args)]  # accelerator.backward(loss)
        held = {each.id for loss in losses for each in ast.walk(loss) if isinstance(each, ast.Name)}
        return bool(held & names) and not self._is_detached(names, held)

    def _is_detached(self, names: set[str], held: set[str]) -> bool:
        """Whether the divided value is a copy of what goes into backward, and not that itself."""
        first = names - held
        values = [each for each in self.nodes if isinstance(each, ast.Assign)
                  and any(isinstance(target, ast.Name) and target.id in first for target in each.targets)]  # fmt: skip
        words = {part.attr for each in values for part in ast.walk(each.value) if isinstance(part, ast.Attribute)}
        return bool(first) and bool(words & {"detach", "item", "clone"})


def _targets(statement: ast.Assign | ast.AugAssign) -> list[ast.expr]:
    """Return what a statement assigns to; nothing where it does other than add to what is there."""
    if isinstance(statement, ast.Assign):
        return statement.targets
    return [statement.target] if isinstance(statement.op, ast.Add) else []


def _names(value: ast.AST) -> Iterator[str]:
    """Yield the names that a value is computed from; not of what it is divided by, which is a number of them."""
    if isinstance(value, ast.Name):
        yield value.id
    inner = (
        [value.left] if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div) else ast.iter_child_nodes(value)
    )
    for each in inner:
        yield from _names(each)


def _is_loss(value: ast.expr) -> bool:
    """Whether an expression computes a loss, or a norm, or takes the mean of losses."""
    return any(isinstance(each, ast.Call) and LOSSES.search(ast.unparse(each.func)) for each in ast.walk(value))


def _is_mean(value: ast.expr) -> bool:
    """Whether an expression is the mean of what is computed in it, on one rank."""
    is_mean = isinstance(value, ast.Call) and last_name(value.func) == "mean"
    return is_mean and not COLLECTS.search(ast.unparse(value))


def _own(around: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function, or of a file, without those of functions within it."""
    waiting = list(ast.iter_child_nodes(around))
    while waiting:
        node = waiting.pop()
        if not isinstance(node, (*Function, ast.ClassDef, ast.Lambda)):
            yield node
            waiting.extend(ast.iter_child_nodes(node))


def _divided(node: ast.AST) -> ast.expr | None:
    """Return what a node divides by the number of ranks."""
    match node:
        case ast.BinOp(op=ast.Div(), left=divided, right=divisor):
            pass
        case ast.AugAssign(op=ast.Div(), target=divided, value=divisor):
            pass
        case ast.Call(func=ast.Attribute(attr="div" | "div_", value=divided), args=[divisor]):
            pass
        case _:
            return None
    if isinstance(divisor, ast.Call):
        divisor = divisor.func
    is_world = isinstance(divisor, (ast.Name, ast.Attribute)) and last_name(divisor) in WORLD
    return divided if is_world else None


def _bare(value: ast.expr) -> ast.expr:
    """Return what a value is of: ``loss`` of ``loss.item()``."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and not value.args:
        value = value.func.value
    return value


def _says(given: list[ast.expr], names: set[str]) -> bool:
    return any(isinstance(each, ast.Name) and each.id in names for value in given for each in ast.walk(value))
