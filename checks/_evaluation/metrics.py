"""How the source computes what an evaluation tells: sums, quotients, roots."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ddpdoctor.check import Site, last_name, one_rank_only, spans, tree_of

SUMS = {"sum", "mean", "fmean", "average", "stack", "cat"}
REDUCES = re.compile(r"reduce|gather|sync", re.IGNORECASE)
DEVICE = re.compile(r"f['\"](?:cuda|xpu|npu|hpu|mlu|musa):\{")
PRINTS = {"print", "debug", "info", "warning", "error", "log", "write"}
SET_UP = re.compile(
    r"backend|device|epoch|world|host|node|\bseed|\bport|addr|path|file|len\(|batch_?(?:size|idx|index)|version",
    re.IGNORECASE,
)
"""What is told of a training beside its metrics."""


def adds_up(site: Site) -> bool:
    """Whether what goes through a loader at a line keeps sums: a metric, not predictions."""
    for node in ast.walk(tree_of(site.file).module):
        if isinstance(node, ast.For) and node.iter.lineno == site.line:
            return _keeps_sums(node, part_around(site), _adders(site.file))
        called = isinstance(node, ast.Call) and any(_at(each, site.line) for each in node.args)
        if called and last_name(node.func) in SUMS:  # type: ignore[attr-defined]
            return True
    return False


def adds_up_by_hand(callers: tuple[tuple[str, int, str], ...]) -> bool:
    """Whether one of the functions that lead to a forward keeps sums of what it returns: in a loop, or of all at once.

    A rank's part that is gathered, or kept sample by sample, is no metric.
    """
    return any(_adds_up_at(Site(*each)) for each in callers)


def _adds_up_at(site: Site) -> bool:
    around = part_around(site)
    inside = [node for node in ast.walk(around) if getattr(node, "lineno", 0)]
    loops = [each for each in inside if isinstance(each, (ast.For, ast.While)) and spans(each, site.line)]
    if loops:
        adders = _adders(site.file)
        return any(_keeps_sums(each, around, adders) for each in loops)
    calls = [each for each in inside if isinstance(each, ast.Call) and each.lineno >= site.line]
    return any(last_name(each.func) in SUMS - {"stack", "cat"} for each in calls)


def cuts_by_rank(callers: tuple[tuple[str, int, str], ...]) -> bool:
    """Whether one of these functions takes a rank's part of something: a slice, or a range, that speaks of the rank."""
    for each in callers:
        for node in ast.walk(part_around(Site(*each))):
            is_range = isinstance(node, ast.Call) and ast.unparse(node.func) in {"range", "islice", "itertools.islice"}
            if (is_range or isinstance(node, ast.Slice)) and any("rank" in name.lower() for name in words_in(node)):
                return True
    return False


def _at(node: ast.AST, line: int) -> bool:
    comprehensions = (ast.GeneratorExp, ast.ListComp)
    return isinstance(node, comprehensions) and any(each.iter.lineno == line for each in node.generators)


def _adders(file: str) -> set[str]:
    """Return the methods of the file's classes that add to what their object holds: those of its own meters."""
    methods = [
        each for kind in tree_of(file).of(ast.ClassDef) for each in kind.body if isinstance(each, ast.FunctionDef)
    ]
    return {each.name for each in methods if any(_adds_to_object(node) for node in ast.walk(each))}


def _adds_to_object(node: ast.AST) -> bool:
    match node:
        case ast.AugAssign(op=ast.Add(), target=ast.Attribute(value=ast.Name(id="self"))):
            return True
    return False


def _keeps_sums(loop: ast.For | ast.While, around: ast.AST, adders: set[str]) -> bool:
    nodes = [node for statement in loop.body for node in ast.walk(statement)]
    if any(isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add) for node in nodes):
        return True
    if any(_updates_a_meter(node, adders) for node in nodes):
        return True
    grown = {
        ast.unparse(node.func.value)
        for node in nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append"
    }
    calls = [node for node in ast.walk(around) if isinstance(node, ast.Call)]
    return any(
        last_name(call.func) in SUMS - {"stack", "cat"}
        and grown & {ast.unparse(each) for each in ast.walk(call) if isinstance(each, (ast.Name, ast.Attribute))}
        for call in calls
    )


def _updates_a_meter(node: ast.AST, adders: set[str]) -> bool:
    """Whether a call gives a meter a number: ``losses.update(loss.item(), len(inputs))``."""
    match node:
        case ast.Call(
            func=ast.Attribute(value=ast.Name() | ast.Attribute() | ast.Subscript(), attr=method), args=[given, *_]
        ) if method in {"update", *adders}:
            return not isinstance(given, (ast.Dict, ast.DictComp))
    return False


def after_loop(site: Site) -> Site:
    """Return the statement that follows the loop at a line, where what was summed is to be reduced.

    Where that calls a function of the same file that is named for it, and reduces nothing, its line is returned.
    """
    tree = tree_of(site.file).module
    loop = next((each for each in ast.walk(tree) if isinstance(each, ast.For) and each.iter.lineno == site.line), None)
    if loop is None:
        return site
    after = _following(loop, tree)
    if not after:
        return site
    empty = next((found for each in after if (found := _reduces_nothing(each, tree))), None)
    return site._replace(line=empty or after[0].lineno)


def after_loop_around(site: Site) -> Site:
    """Return what ``after_loop`` does for the innermost loop that a line stands in; the line itself outside of one."""
    loops = [each for each in ast.walk(part_around(site)) if isinstance(each, ast.For) and spans(each, site.line)]
    inner = max(loops, key=lambda each: each.lineno, default=None)
    found = after_loop(site._replace(line=inner.iter.lineno)) if inner is not None else site
    return found if inner is not None and found.line != inner.iter.lineno else site


def _following(statement: ast.stmt, tree: ast.Module) -> list[ast.stmt]:
    """Return the statements that follow one in its block, or its ``with`` where that ends with it."""
    for each in ast.walk(tree):
        for body in _bodies(each):
            if statement in body:
                after = body[body.index(statement) + 1 :]
                return _following(each, tree) if not after and isinstance(each, ast.With) else after
    return []


def _bodies(node: ast.AST) -> list[list[ast.stmt]]:
    fields = (getattr(node, name, None) for name in ("body", "orelse", "finalbody"))
    return [each for each in fields if isinstance(each, list)]


def _reduces_nothing(statement: ast.stmt, tree: ast.Module) -> int:
    """Return the line of a function that a statement calls, whose name says that it reduces, and that does not."""
    calls = [each for each in ast.walk(statement) if isinstance(each, ast.Call)]
    names = {name for each in calls if REDUCES.search(name := ast.unparse(each.func).rpartition(".")[2])}
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name in names:
            inside = [ast.unparse(each.func).rpartition(".")[2] for part in node.body for each in ast.walk(part)
                      if isinstance(each, ast.Call)]  # fmt: skip
            if not any(REDUCES.search(name) for name in inside):
                return node.body[0].lineno
    return 0


def part_around(site: Site) -> ast.AST:
    """Return the function that a line stands in, or the module."""
    tree = tree_of(site.file).module
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, kinds) and node.lineno <= site.line <= (node.end_lineno or 0)
    ]
    return max(found, key=lambda node: node.lineno, default=tree)


def words_in(node: ast.AST) -> set[str]:
    """Return the names and the attributes that code has, called ones among them."""
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return names | {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}


def says_rank(file: str) -> bool:
    """Whether a file prints ranks: what each rank has is told with its rank.

    Lines of rank 0 alone say nothing, nor do those of errors, and those that tell only how a training is set up.
    """
    tree = tree_of(file).module
    beside = {id(each) for each in _beside_metrics(tree)}
    texts = (each for each in ast.walk(tree) if isinstance(each, ast.JoinedStr) and id(each) not in beside)
    return any(any(map(_is_rank, _values(each))) and not one_rank_only(file, each.lineno) for each in texts)


def _beside_metrics(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the texts that hold no metric: devices, errors, and what is printed with nothing that could be one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr) and DEVICE.match(ast.unparse(node)):
            yield node
        elif isinstance(node, ast.ExceptHandler):
            yield from ast.walk(node)
        elif isinstance(node, ast.Call) and last_name(node.func) in PRINTS:
            texts = [each for each in node.args if isinstance(each, ast.JoinedStr)]
            fixed = all(isinstance(each, (ast.JoinedStr, ast.Constant)) for each in node.args)
            if fixed and not any(_is_told(each) for text in texts for each in _values(text)):
                yield from texts


def _values(text: ast.JoinedStr) -> list[ast.expr]:
    return [each.value for each in text.values if isinstance(each, ast.FormattedValue)]


def _is_rank(value: ast.expr) -> bool:
    return any("rank" in name.lower() for name in words_in(value))


def _is_told(value: ast.expr) -> bool:
    """Whether a value can be a metric: no rank, and nothing that a training is set up with."""
    return not _is_rank(value) and SET_UP.search(ast.unparse(value)) is None
