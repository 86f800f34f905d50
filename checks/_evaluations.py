"""Evaluations of a running training: what each rank went through, and what became of what it had counted."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ddpdoctor.check import EpochStarted, Evaluated, Site, Training, Wrapped

SUMS = {"sum", "mean", "fmean", "average", "stack", "cat"}
CURVED = re.compile(
    r"(^|_)(f1|fbeta|auc|auroc|roc_auc|average_precision|rmse|ppl|perplexity|bleu|mcc|matthews|r2|kappa|corrcoef"
    r"|spearmanr?|pearsonr?|median|exp|sqrt)(_score|_coef|_corrcoef)?$"
)
"""Functions of all samples that are no mean over them."""
FOLLOWED = 4  # names
WORLD = {"world_size", "get_world_size", "world", "num_replicas", "num_processes", "nprocs", "ngpus", "num_gpus"}


@dataclass(frozen=True, slots=True)
class Share:
    """What one rank evaluated."""

    told: Evaluated
    started: EpochStarted

    @property
    def samples(self) -> int | None:
        """How many samples the rank went through; None where its sampler does not say."""
        sampler = self.started.sampler
        return sampler.length if sampler is not None else None


def evaluation(event: Evaluated, training: Training) -> dict[int, Share]:
    """Return the same evaluation of all ranks, once the last of them has told; nothing where a framework has made it.

    All ranks share the gradients of a model that is wrapped, and went through their loaders to the end.
    """
    groups = {each.group for each in training.of(Wrapped)}
    told = training.complete(Evaluated, loader=event.loader, number=event.number, site=event.site)
    if len(groups) != 1 or set(told) != set(groups.pop()) or training.framework is not None:
        return {}
    found = {}
    for rank, each in told.items():
        started = training.of(EpochStarted, pid=each.pid, loader=each.loader, number=each.number)
        if not started or not each.complete or started[-1].owning_library or started[-1].subgroups:
            return {}
        found[rank] = Share(each, started[-1])
    return found


def shares_gradients(pid: int, training: Training) -> bool:
    """Whether a process has a model whose gradients all ranks share."""
    groups = {each.group for each in training.of(Wrapped, pid=pid)}
    return len(groups) == 1 and len(groups.pop()) == training.world_size > 1


def sharded(ranks: dict[int, Share]) -> bool:
    """Whether a sampler gives each rank its own share."""
    samplers = [each.started.sampler for each in ranks.values()]
    return bool(samplers) and all(
        sampler is not None and (sampler.replicas, sampler.rank) == (len(samplers), at)
        for at, sampler in enumerate(samplers)
    )


def whole(ranks: dict[int, Share]) -> bool:
    """Whether each rank goes through all samples of a data set of one length."""
    lengths = {each.started.length for each in ranks.values()}
    return len(lengths) == 1 and all(
        each.started.sampler is not None
        and each.started.sampler.kind == "SequentialSampler"
        and not each.started.drop_last
        and each.samples == each.started.length
        for each in ranks.values()
    )


@dataclass(frozen=True, slots=True)
class Reduced:
    """What the ranks made of one number of each."""

    reduction: str
    site: Site


def one_number(ranks: dict[int, Share]) -> Reduced | None:
    """Return the all_reduce of a single number that alone followed an evaluation, on each rank; None for anything else.

    A count that is added up beside the sum is a second number.
    """
    sent = [each.told.sent for each in ranks.values()]
    if not sent or len(set(sent)) > 1 or len(sent[0]) != 1:
        return None
    operation, reduction, elements, file, line = sent[0][0]
    if operation != "all_reduce" or elements != 1:
        return None
    around = _around(Site(file, line, ""))
    return Reduced(reduction, Site(file, line, getattr(around, "name", "<module>")))


def adds_up(site: Site) -> bool:
    """Whether what goes through a loader at a line keeps sums: a metric, not predictions."""
    for node in ast.walk(_tree(site.file)):
        if isinstance(node, ast.For) and node.iter.lineno == site.line:
            return _keeps_sums(node, _around(site))
        called = isinstance(node, ast.Call) and any(_at(each, site.line) for each in node.args)
        if called and ast.unparse(node.func).rpartition(".")[2] in SUMS:  # type: ignore[attr-defined]
            return True
    return False


def _at(node: ast.AST, line: int) -> bool:
    comprehensions = (ast.GeneratorExp, ast.ListComp)
    return isinstance(node, comprehensions) and any(each.iter.lineno == line for each in node.generators)


def _keeps_sums(loop: ast.For, around: ast.AST) -> bool:
    nodes = [node for statement in loop.body for node in ast.walk(statement)]
    if any(isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add) for node in nodes):
        return True
    grown = {
        ast.unparse(node.func.value)
        for node in nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append"
    }
    calls = [node for node in ast.walk(around) if isinstance(node, ast.Call)]
    return any(
        ast.unparse(call.func).rpartition(".")[2] in SUMS - {"stack", "cat"}
        and grown & set(map(ast.unparse, call.args))
        for call in calls
    )


def _around(site: Site) -> ast.AST:
    """Return the function that a line stands in, or the module."""
    tree = _tree(site.file)
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, kinds) and node.lineno <= site.line <= (node.end_lineno or 0)
    ]
    return max(found, key=lambda node: node.lineno, default=tree)


def divides(site: Site) -> tuple[bool, bool]:
    """Whether what a line reduces is divided by the length of something, and whether by the number of ranks.

    Followed is the name that is given to the communication, until it is given to something else.
    """
    around = _around(site)
    name = next(
        (
            ast.unparse(node.args[0])
            for node in ast.walk(around)
            if isinstance(node, ast.Call)
            and node.lineno == site.line
            and "reduce" in ast.unparse(node.func)
            and node.args
        ),
        "",
    )
    said = [_names(divisor) for divisor in _divisors(_after(around, site.line, name), name)] if name else []
    return any("len" in names for names in said), any(WORLD & names for names in said)


def computed_by(site: Site) -> str:
    """Return the function that computes the number that a line reduces, if a mean of its results is not its result.

    Followed is the name that is given to the communication, through assignments and through one parameter.
    """
    around = _around(site)
    given = [node.args[0] for node in ast.walk(around) if isinstance(node, ast.Call) and node.lineno == site.line
             and "reduce" in ast.unparse(node.func) and node.args]  # fmt: skip
    return next((found for each in given if (found := _curved(each, around, site, FOLLOWED))), "")


def _curved(value: ast.expr, around: ast.AST, site: Site, depth: int) -> str:
    """Return the name of such a function in an expression, or in what its name was assigned last."""
    for node in ast.walk(value):
        if isinstance(node, ast.Call) and CURVED.search(name := ast.unparse(node.func).rpartition(".")[2].lower()):
            return name
        match node:
            case ast.BinOp(op=ast.Pow(), right=ast.Constant(value=0.5)):
                return "sqrt"
    names = [node.id for node in ast.walk(value) if isinstance(node, ast.Name)]
    if not depth or len(set(names) - {"torch", "device", "self"}) != 1:
        return ""
    name = next(each for each in names if each not in {"torch", "device", "self"})
    assigned = [node for node in ast.walk(around) if isinstance(node, ast.Assign) and node.lineno < site.line
                and name in map(ast.unparse, node.targets)]  # fmt: skip
    if assigned:
        last = max(assigned, key=lambda node: node.lineno)
        return _curved(last.value, around, site._replace(line=last.lineno), depth - 1)
    if isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef)):
        places = [at for at, each in enumerate(around.args.args) if each.arg == name]
        for call in ast.walk(_tree(site.file)) if places else ():
            of_it = isinstance(call, ast.Call) and ast.unparse(call.func) == around.name
            if of_it and len(call.args) > places[0]:  # type: ignore[attr-defined]
                called = Site(site.file, call.lineno, "")  # type: ignore[attr-defined]
                if found := _curved(call.args[places[0]], _around(called), called, depth - 1):  # type: ignore[attr-defined]
                    return found
    return ""


def _after(around: ast.AST, line: int, name: str) -> Iterator[ast.AST]:
    """Yield what a function says from a line on, up to where the name is given another meaning."""
    statements = [each for each in ast.walk(around) if isinstance(each, ast.stmt) and each.lineno >= line]
    for each in sorted(statements, key=lambda each: (each.lineno, each.col_offset)):
        if isinstance(each, ast.Assign) and name in map(ast.unparse, each.targets) and name not in _names(each.value):
            return
        yield each


def _divisors(statements: Iterator[ast.AST], name: str) -> Iterator[ast.AST]:
    """Yield what the name is divided by."""
    for node in (node for each in statements for node in ast.walk(each)):
        match node:
            case ast.BinOp(op=ast.Div(), left=divided, right=divisor):
                pass
            case ast.AugAssign(op=ast.Div(), target=divided, value=divisor):
                pass
            case ast.Call(func=ast.Attribute(attr="div" | "div_", value=divided), args=[divisor, *_]):
                pass
            case _:
                continue
        if name in _names(divided) or name == ast.unparse(divided):
            yield divisor


def _names(node: ast.AST) -> set[str]:
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return names | {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}


def says_rank(file: str) -> bool:
    """Whether a file prints ranks: what each rank has is told with its rank."""
    for node in ast.walk(_tree(file)):
        if isinstance(node, ast.FormattedValue) and any("rank" in name.lower() for name in _names(node)):
            return True
    return False


def _tree(file: str) -> ast.AST:
    try:
        return ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return ast.Module([], [])
