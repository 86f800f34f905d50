"""Which loops go over epochs, and what is trained in them."""

from __future__ import annotations

import ast
import itertools
import re
from typing import TYPE_CHECKING

from ddpdoctor.source.text.bindings import dotted, last_name
from ddpdoctor.source.text.names import resolve
from ddpdoctor.source.text.tree import FUNCTIONS
from ddpdoctor.source.values.bound import definition, value, values
from ddpdoctor.source.values.sites import some_sites

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddpdoctor.source.text.tree import Tree

    Place = tuple[Tree, ast.AST]

Epochs = ast.For | ast.While
PASS_ON = {
    "enumerate",
    "iter",
    "len",
    "zip",
    "tqdm.tqdm",
    "tqdm.trange",
    "tqdm.auto.tqdm",
    "tqdm.auto.trange",
    "tqdm.notebook.tqdm",
}
"""What goes through what it is given."""
RANGES = {"range", "tqdm.trange", "tqdm.auto.trange"}
DEPTH = 5
EPOCH = re.compile(r"\bepoch\W*$", re.IGNORECASE)


def counts_epochs(tree: Tree, loop: ast.For) -> bool:
    """Whether a loop counts epochs, more than one."""
    match loop:
        case ast.For(target=ast.Tuple(elts=[ast.Name(id=name), *_]), iter=ast.Call(func=ast.Name(id="enumerate"))):
            return "epoch" in name.lower()
    count = dotted(loop.target)  # ``for self.epoch in range(...)`` as well
    if count is None:
        return False
    named = "epoch" in f"{count} {ast.unparse(loop.iter)}".lower()
    if not named and not _is_told_as_epoch(loop, count) and not _holds_training(tree, loop, count):
        return False
    counted: ast.expr = loop.iter
    while isinstance(counted, ast.Call):
        path = resolve(tree, counted.func)
        if path == "itertools.count":
            return True
        if path in RANGES and not (counted.args and isinstance(counted.args[0], ast.Call)):
            break
        if path not in PASS_ON or not counted.args:
            break
        counted = counted.args[0]
    if not isinstance(counted, ast.Call) or resolve(tree, counted.func) not in RANGES:
        return False
    last = value(tree, counted.args[-1]) if counted.args else None
    return not (isinstance(last, ast.Constant) and last.value in {0, 1})


def _is_told_as_epoch(loop: ast.For, name: str) -> bool:
    """Whether the loop tells its number as that of an epoch: ``print("epoch", e)``, ``f"Epoch {e + 1}"``."""
    told: list[tuple[ast.expr, ast.expr]] = []
    for node in (each for statement in loop.body for each in _own(statement)):
        parts = node.values if isinstance(node, ast.JoinedStr) else node.args if isinstance(node, ast.Call) else []
        told += itertools.pairwise(parts)
    return any(
        isinstance(before, ast.Constant)
        and EPOCH.search(str(before.value)) is not None
        and any(isinstance(each, ast.Name) and each.id == name for each in ast.walk(after))
        for before, after in told
    )


OTHERS = re.compile(r"fold|trial|run|seed|task|round|repeat|exp|split|stage|phase|client|rank|worker", re.IGNORECASE)
"""Names of what counts trainings, each with data or a model of its own."""
MADE = frozenset(
    f"torch.utils.data.{each}" for each in ("DataLoader", "distributed.DistributedSampler", "random_split")
)


def _holds_training(tree: Tree, loop: ast.For, name: str) -> bool:
    """Whether a loop goes through all batches of a training in each pass: ``for i in range(10): for x, y in loader``.

    One that makes the loader anew, or counts trainings, goes over something else.
    """
    if OTHERS.search(f"{name} {ast.unparse(loop.iter)}"):
        return False
    inner = [each for each in loop.body if isinstance(each, ast.For)]
    batches = [each for each in inner if not _counts(tree, each.iter) and _steps(each)]
    made = [each for each in _own(loop) if isinstance(each, ast.Call) and resolve(tree, each.func) in MADE]
    return len(batches) == 1 and not made


def _counts(tree: Tree, iterated: ast.expr) -> bool:
    return isinstance(iterated, ast.Call) and resolve(tree, iterated.func) in RANGES


def _steps(loop: ast.For) -> bool:
    """Whether a loop learns in its own lines."""
    called = {
        each.func.attr for each in _own(loop) if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute)
    }
    return {"backward", "step", "zero_grad"} <= called


def _repeats(tree: Tree, loop: ast.AST) -> bool:
    """Whether a loop goes over epochs: it counts them, or has no other end than what stands in it."""
    if isinstance(loop, ast.For):
        return counts_epochs(tree, loop)
    if not isinstance(loop, ast.While):
        return False
    if isinstance(loop.body[-1], (ast.Break, ast.Return, ast.Raise)):
        return False
    counts = _counts_up(loop) and ("epoch" in ast.unparse(loop.test).lower() or _goes_through(tree, loop))
    return _is_endless(tree, loop.test) or counts or _hands_on(tree, loop)


def _is_endless(tree: Tree, test: ast.expr) -> bool:
    """Whether a loop has no other end than what stands in it: ``while True``, or a flag that is cleared there."""
    if isinstance(test, ast.Constant):
        return bool(test.value)
    given = [each.value for each in values(tree, test)] if isinstance(test, ast.Name) else []
    told = {each.value for each in given if isinstance(each, ast.Constant)}
    return len(given) > 1 and told == {True, False} and all(isinstance(each, ast.Constant) for each in given)


def _counts_up(loop: ast.While) -> bool:
    """Whether a loop goes on until what is counted in it has come to some number: ``while step < steps``."""
    match loop.test:
        case ast.Compare(left=counted, ops=[ast.Lt() | ast.LtE()], comparators=[_]):
            name = ast.unparse(counted)
            return any(_adds_one(each, name) or _steps_engine(each, name) for each in _own(loop))
    return False


def _steps_engine(node: ast.AST, name: str) -> bool:
    """Whether a call steps DeepSpeed's engine, which counts its steps itself: ``while engine.global_steps < steps``."""
    owner, _, counter = name.rpartition(".")
    return counter == "global_steps" and isinstance(node, ast.Call) and ast.unparse(node.func) == f"{owner}.step"


def _adds_one(node: ast.AST, name: str) -> bool:
    """Whether a statement counts a variable up: ``epoch += 1``, or ``epoch = epoch + 1``."""
    match node:
        case ast.AugAssign(target=target, op=ast.Add()):
            return ast.unparse(target) == name
        case ast.Assign(targets=[target], value=ast.BinOp(left=left, op=ast.Add(), right=ast.Constant())):
            return ast.unparse(target) == name == ast.unparse(left)
    return False


def _hands_on(tree: Tree, loop: ast.While) -> bool:
    """Whether a function of the project trains and counts in each pass: ``loss, step = train(loader, step=step)``."""
    match loop.test:
        case ast.Compare(left=ast.Name(id=name), ops=[ast.Lt() | ast.LtE()], comparators=[_]):
            for node in _own(loop):
                call = node.value if isinstance(node, ast.Assign) else None
                if not isinstance(call, ast.Call) or name not in _names(*node.targets):  # type: ignore[attr-defined]
                    continue
                found = definition(tree, call.func)
                handed = name in _names(*call.args, *(each.value for each in call.keywords))
                if handed and found is not None and learns(*found) and not _samples_anew(tree, loop):
                    return True
    return False


def _names(*parts: ast.AST) -> set[str]:
    return {each.id for part in parts for each in ast.walk(part) if isinstance(each, ast.Name)}


def _samples_anew(tree: Tree, loop: ast.While) -> bool:
    calls = (each for each in _own(loop) if isinstance(each, ast.Call))
    return any((resolve(tree, each.func) or "").endswith(("Sampler", "random_split")) for each in calls)


def _goes_through(tree: Tree, loop: ast.While) -> bool:
    """Whether a loop goes through batches in a loop of its own, in these lines, and makes no loader anew for them."""
    inner = [each for each in loop.body if isinstance(each, ast.For) and not _counts(tree, each.iter)]
    made = [each for each in _own(loop) if isinstance(each, ast.Call) and resolve(tree, each.func) in MADE]
    return len(inner) == 1 and not made and learns(tree, inner[0])


def learns(tree: Tree, root: ast.AST, depth: int = DEPTH) -> bool:
    """Whether a backward runs in a node, or in the functions of the project that it calls."""
    for node in _own(root):
        if not isinstance(node, ast.Call):
            continue
        if (isinstance(node.func, ast.Attribute) and node.func.attr == "backward") or _is_scaled_step(node):
            return True
        found = definition(tree, node.func) if depth else None
        if found is not None and found[1] is not root and learns(*found, depth - 1):
            return True
    return False


def _is_scaled_step(call: ast.Call) -> bool:
    """Whether a call hands a loss and the optimizer to a scaler, which runs the backward and the step: timm's own."""
    names = [last_name(each).lower() for each in call.args[:2]]
    return "scaler" in last_name(call.func).lower() and len(names) > 1 and "loss" in names[0] and "optim" in names[1]


def is_in_learning_loop(tree: Tree, node: ast.AST) -> bool:
    """Whether a node is in a loop of its function in which a backward runs."""
    for parent in tree.above(node):
        if isinstance(parent, FUNCTIONS):
            return False
        if isinstance(parent, (ast.For, ast.While)):
            return learns(tree, parent)
    return False


def _own(root: ast.AST) -> Iterator[ast.AST]:
    """Yield what stands in a node, but not in functions that it defines."""
    yield root
    for child in ast.iter_child_nodes(root):
        if not isinstance(child, (*FUNCTIONS, ast.ClassDef)):
            yield from _own(child)


def epochs_around(tree: Tree, node: ast.AST, depth: int = DEPTH) -> tuple[Tree, Epochs] | None:
    """Return the loop over several epochs that a node is run in: around it, or around a call of its function."""
    for parent in tree.above(node):
        if isinstance(parent, (ast.For, ast.While)) and _repeats(tree, parent):
            return tree, parent
        if isinstance(parent, FUNCTIONS):
            break
    function = tree.function(node)
    if function is None or depth == 0:
        return None
    sites: list[Place] = [(tree, each) for each in some_sites(tree, function)]
    if tree.callers is not None and isinstance(function, ast.FunctionDef) and tree.class_of(function) is None:
        sites += tree.callers(function)
    sites += _by_template(tree, function)
    return next((found for there, site in sites if (found := epochs_around(there, site, depth - 1))), None)


def _by_template(tree: Tree, function: ast.AST) -> Iterator[Place]:
    """Yield the calls of a method in the class of another file that its own inherits from: ``self.train_epoch()``."""
    owner = tree.parents.get(function)
    if not isinstance(owner, ast.ClassDef) or not isinstance(function, ast.FunctionDef) or tree.abroad is None:
        return
    for base in owner.bases:
        path = resolve(tree, base)
        found = tree.abroad(path) if path is not None and "." in path else None
        if found is None or not isinstance(found[1], ast.ClassDef):
            continue
        there, above = found
        for node in there.members.get(function.name, ()):
            call = there.parents[node]
            is_own = isinstance(node.value, ast.Name) and node.value.id == "self" and there.class_of(node) is above
            if is_own and isinstance(call, ast.Call) and call.func is node:
                yield there, call
