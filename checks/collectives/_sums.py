"""What a source sums over an evaluation that is shared out: where, and what becomes of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Set as AbstractSet
from typing import TYPE_CHECKING

from ddpdoctor.check import Evidence, by_parameter

from .._source import OF_THE_MODEL, SAMPLER, evaluations, is_evaluation, is_own, prepared_loaders, sharded_loaders
from ._derived import derived, reads, stored

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script, Tree

REDUCED = (
    r"reduce|gather|torchmetrics|sync_and_compute|synchronize|Metric|Evaluator|broadcast|hvd\.|xm\.|MeanAverage"
    r"|\bdist_utils"
)
"""What says that somebody puts the ranks' parts together."""
WITH_RANK = re.compile(r"rank", re.IGNORECASE)
TOLD_WITH_RANK = r"(?:print|info|log|debug)\([^\n]*\brank\b[^\n]*(?:loss|acc|metric)"
"""What says that a metric is told as that of its rank."""
BEST = re.compile(r"\bbest_|_best\b|\bbest\b|\b(?:min|max|lowest|highest)_", re.IGNORECASE)
"""Names of what a sum is compared with to choose a model by it."""
TELLS = {"print", "info", "log", "write", "append", "add_scalar", "debug"}


def unreduced(script: Script, project: Around, *, framework: bool = False) -> Iterator[tuple[ast.For, str, Evidence]]:
    """Yield the loops that evaluate a rank's share, what each sums, and the sampler, where nobody can reduce it."""
    found = [*by_names(script, framework=framework), *by_flow(script, project)]
    loops = {loop for loop, _, _ in found}
    known = {"accelerate"} if framework else set()
    left = {loop for loop in loops if not is_of_known_code(script, project, loop, known=known)}
    if project.does(REDUCED):
        left |= {loop for loop in loops if can_be_reduced(script, loop)}
    yield from (each for each in found if each[0] not in left)


def is_of_known_code(script: Script, project: Around, loop: ast.For, *, known: AbstractSet[str] = frozenset()) -> bool:
    """Whether no code that is not there to be read is handed what a loop has summed, or what is made of that.

    Such code could put the ranks' parts together; where a file of the project itself is missing, nobody can tell.
    """
    unknown = project.unknown() - OF_THE_MODEL - known
    if any(each.startswith(".") for each in unknown):
        return False
    around = script.function(loop) or script.module
    roots = {each.partition(".")[0] for each in unknown}
    called = [each for each in script.inside(around) if isinstance(each, ast.Call)]
    strange = [each for each in called if (script.resolve(each.func) or "").partition(".")[0] in roots]
    if not strange:
        return True
    names = derived(script, around, stored(script, loop))
    return not any(reads(part, names) for each in strange for part in (*each.args, *each.keywords))


def by_names(script: Script, *, framework: bool) -> Iterator[tuple[ast.For, str, Evidence]]:
    """Yield the loops of evaluations whose loaders are found by their names, what they sum, and the sampler."""
    for name, sampler in (*sharded_loaders(script), *(prepared_loaders(script) if framework else ())):
        for loop, held in evaluations(script, name):
            yield loop, held, script.seen(sampler)


def by_flow(script: Script, project: Around) -> Iterator[tuple[ast.For, str, Evidence]]:
    """Yield those of this file that a sampler of the project comes to, through functions, attributes and files."""
    if not is_own(script) or not project.says("no_grad|inference_mode"):
        return
    for path, tree in ((script.path, script.tree), *project.trees("DistributedSampler")):
        for call in tree.of(ast.Call):
            if script.names_in(tree, call.func) != SAMPLER:
                continue
            for there, loop in script.passes(tree, call):
                is_here = there is script.tree and not script.learns(loop)
                if not is_here or not (is_evaluation(script, "", loop) or _has_no_gradients(script, loop)):
                    continue
                for held in sums(script, loop):
                    yield loop, held, Evidence(" ".join(ast.unparse(call).split()), "", f"{path}:{call.lineno}")


def sums(script: Script, loop: ast.For) -> Iterator[str]:
    """Yield what a loop adds up: numbers, also of a dict, lists, tensors that grow, and meters of the project."""
    for node in script.inside(*loop.body):
        match node:
            case ast.AugAssign(target=ast.Name(id=held) | ast.Subscript(value=ast.Name(id=held)), op=ast.Add()):
                yield held
            case ast.Assign(targets=[ast.Name(id=held)], value=value) if _grows(script, held, value):
                yield held
            case ast.Expr(
                value=ast.Call(func=ast.Attribute(value=ast.Name(id=held) as kept, attr="update"), args=[_, *_])
            ):
                if _is_meter(script, kept) and "time" not in script.code(node):
                    yield held
            case ast.Call(func=ast.Attribute(value=ast.Name(id=held) as kept, attr="append" | "extend")):
                if isinstance(script.value(kept), ast.List):
                    yield held


GROWN = re.compile(r"(?:torch|numpy)\.(?:cat|concat|concatenate|append|hstack|vstack)$")


def _grows(script: Script, held: str, value: ast.expr) -> bool:
    """Whether a variable is given what it holds and more: ``hits = hits + right``, ``torch.cat([all, part])``."""
    match value:
        case ast.BinOp(left=left, op=ast.Add(), right=right) if not isinstance(right, ast.Constant):
            return any(isinstance(each, ast.Name) and each.id == held for each in (left, right))
        case ast.Call(func=function, args=[ast.List(elts=parts) | ast.Tuple(elts=parts), *_] | [*parts]):
            is_one = any(isinstance(each, ast.Name) and each.id == held for each in parts)
            return is_one and GROWN.match(script.resolve(function) or "") is not None and _is_used(script, held, value)
    return False


def _is_used(script: Script, held: str, value: ast.AST) -> bool:
    """Whether the function calculates with a tensor behind the line that grows it, and does not only hand it out."""
    around = script.function(value) or script.module
    later = [each for each in script.inside(around) if getattr(each, "lineno", 0) > getattr(value, "lineno", 0)]
    sums = [each for each in later if isinstance(each, (ast.Call, ast.BinOp, ast.Compare))]
    return any(isinstance(part, ast.Name) and part.id == held for each in sums for part in ast.walk(each))


def _is_meter(script: Script, node: ast.Name) -> bool:
    """Whether a variable holds an object of a class of the project that adds up what it is told, for itself alone."""
    made = script.held(node)
    owner = script.names_class(made.func) if isinstance(made, ast.Call) else None
    if owner is None and isinstance(made, ast.Call) and script.tree.abroad is not None:
        found = script.tree.abroad(script.resolve(made.func) or "")
        owner = found[1] if found is not None and isinstance(found[1], ast.ClassDef) else None
    if owner is None or re.search(rf"{REDUCED}|dist|rank", ast.unparse(owner)):
        return False
    told = next((each for each in owner.body if isinstance(each, ast.FunctionDef) and each.name == "update"), None)
    added = [each.target for each in ast.walk(told) if isinstance(each, ast.AugAssign)] if told is not None else []
    return any(isinstance(each, ast.Attribute) for each in added)


def _has_no_gradients(script: Script, loop: ast.For) -> bool:
    """Whether a loop computes within ``with torch.no_grad():``."""
    inner = [each for each in script.inside(*loop.body) if isinstance(each, ast.With)]
    words = [ast.unparse(item.context_expr) for each in inner for item in each.items]
    return any("no_grad" in each or "inference_mode" in each for each in words)


def can_be_reduced(script: Script, loop: ast.For) -> bool:
    """Whether somebody can put together what a loop has summed: its function, what it calls, or who calls it."""
    function = script.function(loop)
    if not isinstance(function, ast.FunctionDef) or _is_reduced_in(script, loop, function):
        return True
    sites = [(script.tree, each) for each in script.sites(function)]
    sites += script.tree.callers(function) if script.tree.callers is not None else []
    return not sites or any(_reduces_result(script, tree, site) for tree, site in sites)


def reductions(script: Script, around: ast.AST) -> list[ast.AST]:
    """Return the calls in a function that put the ranks' parts together."""
    return [each for each in ast.walk(around) if _puts_together(script, script.tree, each)]


def _is_reduced_in(script: Script, loop: ast.For, function: ast.FunctionDef) -> bool:
    """Whether a function puts together what a loop of it gives a value, or what is made of that; or nobody can tell."""
    if any(_puts_together(script, script.tree, each) for each in script.inside(*loop.body)):
        return True
    reducing = reductions(script, function)
    if not reducing:
        return False
    names = derived(script, function, stored(script, loop))
    return any(not _has_names(each) or reads(each, names) for each in reducing)


def _has_names(call: ast.AST) -> bool:
    """Whether a call is handed something that can be followed: none that works on what an object holds."""
    given = [*call.args, *(each.value for each in call.keywords)] if isinstance(call, ast.Call) else []
    return any(isinstance(each, (ast.Name, ast.Attribute)) for part in given for each in ast.walk(part))


def _puts_together(script: Script, tree: Tree, node: ast.AST) -> bool:
    """Whether a node is a call that puts parts together, or of a function of the project that does."""
    found = script.defined_in(tree, node.func) if isinstance(node, ast.Call) else None
    return _calls_reduction(node) or (found is not None and any(_calls_reduction(each) for each in ast.walk(found[1])))


def _reduces(script: Script, tree: Tree, function: ast.AST) -> bool:
    """Whether a function says that it puts parts together, or calls one of the project that does."""
    return any(_puts_together(script, tree, node) for node in ast.walk(function))


def _calls_reduction(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and re.search(REDUCED, ast.unparse(node.func)) is not None


def _reduces_result(script: Script, tree: Tree, site: ast.Call) -> bool:
    """Whether what a call returns can be put together where it is called."""
    statement = tree.statement(site)
    if not isinstance(statement, (ast.Assign, ast.Expr)) or statement.value is not site:
        return True
    names = {each.id for each in ast.walk(statement) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    around = tree.function(site) or tree.module
    for made in sorted(_assigned(around), key=lambda each: each.lineno):  # totals = torch.tensor([loss, accuracy])
        read = {each.id for each in ast.walk(made.value) if isinstance(each, ast.Name)}
        if made.lineno > site.lineno and names & read:
            names |= {each.id for target in made.targets for each in ast.walk(target) if isinstance(each, ast.Name)}
    for node in ast.walk(around):
        if not isinstance(node, ast.Call) or node is site:
            continue
        given = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
        if isinstance(statement, ast.Assign) and names & given:
            found = script.defined_in(tree, node.func)
            if _calls_reduction(node) or (found is not None and _reduces(script, *found)):
                return True
    return isinstance(statement, ast.Assign) and not names


def _assigned(around: ast.AST) -> list[ast.Assign]:
    return [each for each in ast.walk(around) if isinstance(each, ast.Assign)]


def told_after(script: Script, loop: ast.For, held: str) -> ast.AST | None:
    """Return where, after a loop, a sum that it keeps is printed, logged or returned."""
    around = script.function(loop) or script.module
    names = {held}
    for node in script.inside(around):
        if getattr(node, "lineno", 0) <= (loop.end_lineno or 0):
            continue
        read = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
        if isinstance(node, (ast.Assign, ast.AugAssign)) and names & read:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {each.id for each in targets if isinstance(each, ast.Name)}
        if isinstance(node, ast.Compare) and names & read and BEST.search(ast.unparse(node)):
            return node
        if isinstance(node, ast.Return) and names & read:
            return None if re.search(TOLD_WITH_RANK, script.text, re.IGNORECASE) else node
        if isinstance(node, ast.Call) and names & read and ast.unparse(node.func).rpartition(".")[2] in TELLS:
            return None if WITH_RANK.search(script.code(node)) else node
        if isinstance(node, ast.Call) and names & read and _is_stepped(script, node):
            return node
        if isinstance(node, ast.Call) and names & read and _is_told_by_helper(script, node, names):
            return node
    return None


def _is_stepped(script: Script, call: ast.Call) -> bool:
    """Whether a call steps a schedule by what it is given: each rank then has a learning rate of its own."""
    return re.search(r"(?:sched|plateau)\w*\.step$", script.code(call.func), re.IGNORECASE) is not None


def _is_told_by_helper(script: Script, call: ast.Call, names: set[str]) -> bool:
    """Whether a call hands a sum to a function of the project that tells it, and not as that of a rank."""
    found = script.defined(call.func)
    if found is None or not isinstance(found[1], ast.FunctionDef) or _reduces(script, *found):
        return False
    handed = {
        name
        for name, value in by_parameter(found[1], call).items()
        if any(isinstance(each, ast.Name) and each.id in names for each in ast.walk(value))
    }
    for made in sorted(_assigned(found[1]), key=lambda each: each.lineno):  # shown = loss.item()
        if handed & {each.id for each in ast.walk(made.value) if isinstance(each, ast.Name)}:
            handed |= {target.id for target in made.targets if isinstance(target, ast.Name)}
    called = [each for each in ast.walk(found[1]) if isinstance(each, ast.Call)]
    telling = [each for each in called if ast.unparse(each.func).rpartition(".")[2] in TELLS]
    read = [{part.id for part in ast.walk(each) if isinstance(part, ast.Name)} for each in telling]
    return any(handed & each for each in read) and not any(WITH_RANK.search(ast.unparse(each)) for each in telling)
