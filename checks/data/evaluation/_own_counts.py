"""What a sum over all ranks is divided by, as the source says it, where it was added up or where it is returned to."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ddpdoctor.check import Site, last_name

from ..._evaluation.counts import PUT_TOGETHER, SIZES, WORLDS, bare, counts_ranks
from ..._evaluation.metrics import part_around
from ..._evaluation.rank_parts import listed_by_rank

LOADERS = re.compile(r"loader|batches|sampler|(^|_)dl$|^iter", re.IGNORECASE)
MEANS = re.compile(
    r"loss|acc|correct|hits|right|err|nll|score|running|metric|mse|mae|dice|iou|ppl|avg|mean", re.IGNORECASE
)
"""In the name of a sum of which a mean is wanted: tokens by the step are a number of their own."""


@dataclass(frozen=True, slots=True)
class OwnCount:
    """A count of one rank by which a sum over all ranks is divided, and where."""

    count: str
    counted: str
    site: Site


def own_count(callers: tuple[tuple[str, int, str], ...]) -> OwnCount | None:
    """Find what a sum is divided by, in the function that adds it up, or in those that it is returned to."""
    sites = [Site(*each) for each in callers]
    names: set[str] = set()
    for at, site in enumerate(sites):
        around = part_around(site)
        names = added_up(around, site.line) if not at else returned(around, site)
        if not names or counts_ranks(around, names, site):
            return None
        wants_mean = any(map(MEANS.search, names))
        found = [
            each
            for node, divisor in quotients(around, names, site.line)
            if (each := _own(divisor, node, site, steps=wants_mean))
        ]
        if found:
            return found[0]
        if not _returns(around, names, site.line):
            return None
    return None


def _own(divisor: ast.expr, node: ast.AST, site: Site, *, steps: bool) -> OwnCount | None:
    """Return what a divisor counts of this rank's own: samples, or steps where these can be meant."""
    there = Site(site.file, getattr(node, "lineno", site.line), site.function)
    if isinstance(divisor, ast.Call) and ast.unparse(divisor.func) == "len" and divisor.args:
        return _own_length(divisor, site, there, steps=steps)
    if isinstance(divisor, ast.Call) and ast.unparse(divisor.func) in {"max", "float", "int"}:
        parts = [each for each in divisor.args if not isinstance(each, ast.Constant)]
        return _own(parts[0], node, site, steps=steps) if len(parts) == 1 else None
    if steps and isinstance(divisor, ast.BinOp) and (line := _enumerated(part_around(site), divisor)):
        return OwnCount(f"({ast.unparse(divisor)})", f"line {line} counts this rank's batches", there)
    if not isinstance(divisor, ast.Name | ast.Attribute):
        return None
    name = ast.unparse(divisor)
    whole = _class_around(site) if name.startswith("self.") else part_around(site)
    if whole is None or _is_put_together(whole, name):
        return None
    line = _counted_in(whole, name, steps=steps)
    return OwnCount(name, f"line {line} counts this rank's alone", there) if line else None


def _own_length(divisor: ast.Call, site: Site, there: Site, *, steps: bool) -> OwnCount | None:
    """Return a length that is of a list of this rank's part, or of its loader where steps can be meant."""
    name, text = ast.unparse(divisor.args[0]), ast.unparse(divisor)
    if line := listed_by_rank(part_around(site), name):
        return OwnCount(text, f"line {line} goes through this rank's part alone", there)
    own = steps and LOADERS.search(name.rpartition(".")[2]) and "dataset" not in name
    return OwnCount(text, f"{text} is of one rank's loader", there) if own else None


def _enumerated(around: ast.AST, divisor: ast.BinOp) -> int:
    """Return the line of the loop whose batches ``i + 1`` counts; 0 for anything else."""
    match divisor:
        case ast.BinOp(op=ast.Add(), left=ast.Name(id=name), right=ast.Constant(value=1)):
            pass
        case _:
            return 0
    for node in ast.walk(around):
        match node:
            case ast.For(
                target=ast.Tuple(elts=[ast.Name(id=counted), *_]), iter=ast.Call(func=ast.Name(id="enumerate"))
            ) if counted == name:
                return node.lineno
    return 0


def _counted_in(whole: ast.AST, name: str, *, steps: bool) -> int:
    """Return the line that adds a batch to a count; 0 where the name means anything else."""
    lines = [
        node.lineno
        for node in ast.walk(whole)
        if isinstance(node, ast.AugAssign)
        and isinstance(node.op, ast.Add)
        and ast.unparse(node.target) == name
        and not WORLDS.search(value := ast.unparse(node.value))
        and (SIZES.search(value) or (steps and value == "1"))
    ]
    others = [
        part
        for node in ast.walk(whole)
        if isinstance(node, ast.Assign)
        for target in node.targets
        for part in _given(target, node.value, name)
    ]
    return lines[0] if lines and all(map(_is_nothing, others)) else 0


def _given(target: ast.expr, value: ast.expr, name: str) -> list[ast.expr]:
    """Return what an assignment gives to a name: of a tuple the same part, or the whole where it has no parts."""
    if not isinstance(target, ast.Tuple):
        return [value] if ast.unparse(target) == name else []
    places = [at for at, each in enumerate(target.elts) if ast.unparse(each) == name]
    alike = isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts)
    return [value.elts[at] if alike else value for at in places]  # type: ignore[attr-defined]


def _is_nothing(value: ast.expr) -> bool:
    """Whether a count begins with it: 0, or a tensor of zeros."""
    if isinstance(value, ast.Call):
        name = last_name(value.func)
        return name == "zeros" or (
            name in {"tensor", "float", "int"} and bool(value.args) and _is_nothing(value.args[0])
        )
    return isinstance(value, ast.Constant)


def _is_put_together(whole: ast.AST, name: str) -> bool:
    """Whether a count is given to something that could make it one of all ranks."""
    calls = (node for node in ast.walk(whole) if isinstance(node, ast.Call))
    return any(
        PUT_TOGETHER.search(ast.unparse(call.func))
        and any(ast.unparse(each) == name for given in call.args for each in ast.walk(given))
        for call in calls
    )


def added_up(around: ast.AST, line: int) -> set[str]:
    """Return the name that a line gives to an all_reduce."""
    return {
        ast.unparse(node.args[0])
        for node in ast.walk(around)
        if isinstance(node, ast.Call)
        and node.lineno <= line <= (node.end_lineno or 0)
        and "reduce" in ast.unparse(node.func)
        and node.args
        and isinstance(node.args[0], ast.Name | ast.Attribute)
    }


def returned(around: ast.AST, site: Site) -> set[str]:
    """Return what a line calls, or the name that it gives to the result."""
    for node in ast.walk(around):
        at = isinstance(node, ast.Assign | ast.Expr | ast.Return | ast.AugAssign) and (
            node.lineno <= site.line <= (node.end_lineno or 0)
        )
        if at and isinstance(node, ast.Assign) and len(node.targets) == 1:
            value = bare(node.value)
            if isinstance(value, ast.Call) and isinstance(node.targets[0], ast.Name | ast.Attribute):
                return {ast.unparse(node.targets[0])}
    return set()


def quotients(around: ast.AST, names: set[str], line: int) -> Iterator[tuple[ast.AST, ast.expr]]:
    """Yield where a number, by one of its names, is divided after a line, and by what; new names are followed."""
    known = set(names)
    nodes = [node for node in ast.walk(around) if getattr(node, "lineno", 0) >= line]
    for node in sorted(nodes, key=lambda each: (each.lineno, each.col_offset)):  # type: ignore[attr-defined]
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                is_same = ast.unparse(bare(value)) in known
                known = known | {name} if is_same else known - ({name} if node.lineno > line else set())
            case ast.BinOp(op=ast.Div(), left=left, right=right) if ast.unparse(bare(left)) in known:
                yield node, right
            case ast.BinOp(op=ast.Div(), left=ast.BinOp(op=ast.Mult(), left=one, right=other), right=right):
                if {ast.unparse(bare(one)), ast.unparse(bare(other))} & known:
                    yield node, right
            case ast.AugAssign(op=ast.Div(), target=target, value=right) if ast.unparse(target) in known:
                yield node, right


def _returns(around: ast.AST, names: set[str], line: int) -> bool:
    """Whether a function gives the sum back as it is."""
    return any(
        isinstance(node, ast.Return)
        and node.lineno >= line
        and node.value is not None
        and ast.unparse(bare(node.value)) in names
        for node in ast.walk(around)
    )


def _class_around(site: Site) -> ast.ClassDef | None:
    tree = part_around(Site(site.file, 0, ""))
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and node.lineno <= site.line <= (node.end_lineno or 0)
    ]
    return max(found, key=lambda node: node.lineno, default=None)
