"""What a module of Lightning logs from its own batches, and which callbacks decide by it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import is_open, keyword, resolve

from ..._frameworks.lightning import FROM_OPTIONS, SAMPLER, TRAINERS, has_ranks, modules

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script, Tree

DECIDES = ("ModelCheckpoint", "EarlyStopping")
STEPS = frozenset(
    "training_step training_epoch_end on_train_epoch_end validation_step validation_epoch_end"
    " on_validation_epoch_end".split()
)
REDUCES = re.compile(r"all_gather|all_reduce|\breduce\b|sync_dist|gather\(")
AS_IT_IS = frozenset({"mean", "sum", "item", "float", "detach", "cpu", "sqrt", "clone", "exp"})
"""Methods of a tensor after which it still is of one rank."""
DEPTH = 6


def callbacks(tree: Tree) -> dict[object, ast.Call]:
    """Return the calls that make a callback of Lightning's which decides by a metric, by the metric's name."""
    found: dict[object, ast.Call] = {}
    for call in tree.of(ast.Call):
        name = keyword(call, "monitor")
        if isinstance(name, ast.Constant) and (resolve(tree, call.func) or "").endswith(DECIDES):
            found[name.value] = call
    return found


def trained_in_ranks(script: Script, project: Around) -> bool:
    """Whether each Trainer of the file and in its reach has several ranks, and shares out the loaders."""
    trees = [script.tree, *(tree for _, tree in project.trees(r"\bTrainer(?:\.from_argparse_args)?\("))]
    made = [(tree, call) for tree in trees for call in tree.of(ast.Call) if resolve(tree, call.func) in MADE]
    return bool(made) and all(
        (has_ranks(tree, each) or _is_unpacked(tree, each)) and not any(keyword(each, name) for name in SAMPLER)
        for tree, each in made
    )


MADE = frozenset((*TRAINERS, *FROM_OPTIONS))


def _is_unpacked(tree: Tree, trainer: ast.Call) -> bool:
    """Whether a Trainer is handed a dict that names several ranks: ``more = dict(strategy="ddp", gpus=args.gpus)``."""
    packed = [each.value for each in trainer.keywords if each.arg is None and isinstance(each.value, ast.Name)]
    bound = [binding.value for each in packed for binding in tree.lookup(each.id, each)]
    dicts = [each for each in bound if isinstance(each, ast.Call) and resolve(tree, each.func) == "dict"]
    return any(has_ranks(tree, each) for each in dicts)


def unsynced(script: Script) -> Iterator[tuple[ast.Call, str]]:
    """Yield the calls in a training or a validation that log what a rank has from its batch, and the metric's name."""
    for owner in modules(script):
        if REDUCES.search(ast.unparse(owner)):
            continue
        for method in owner.body:
            if not isinstance(method, ast.FunctionDef) or method.name not in STEPS:
                continue
            for call in (each for each in ast.walk(method) if isinstance(each, ast.Call)):
                for name, value in _logged(script, call):
                    if _is_own(script, owner, value, DEPTH):
                        yield call, name


def _logged(script: Script, call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names and values that ``self.log`` or ``self.log_dict`` is given, to be logged on each rank."""
    if is_open(call) or keyword(call, "rank_zero_only") is not None:
        return
    match call:
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id="self"), attr="log"), args=[ast.Constant(value=str(name)), value]
        ):
            yield name, value
        case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr="log_dict"), args=[given]):
            held = script.value(given)
            for key, value in zip(held.keys, held.values, strict=True) if isinstance(held, ast.Dict) else ():
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield key.value, value


def _is_own(script: Script, owner: ast.ClassDef, value: ast.expr, depth: int) -> bool:  # noqa: PLR0911 - one case a shape
    """Whether a value is a tensor that was computed from a batch, by torch alone: no metric that reduces itself."""
    if depth == 0:
        return False
    held = script.value(value)
    if (taken := _taken_apart(script, owner, value)) is not None:
        return bool(taken) and all(_is_own(script, owner, each, depth - 1) for each in taken)
    match held:
        case ast.UnaryOp(operand=operand):
            return _is_own(script, owner, operand, depth - 1)
        case ast.BinOp(left=left, right=right):
            return any(_is_own(script, owner, each, depth - 1) for each in (left, right))
        case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name)):
            return _is_loss(script, owner, name, depth - 1)
        case ast.Call(func=ast.Attribute(value=tensor, attr=method)) if method in AS_IT_IS:
            return _is_computed(script, held) or _is_own(script, owner, tensor, depth - 1)
        case ast.Call():
            return _is_computed(script, held)
    return False


def _taken_apart(script: Script, owner: ast.ClassDef, value: ast.expr) -> list[ast.expr] | None:
    """Return what a method of the module returns in the place that a variable takes: ``loss, _ = self(x, y)``.

    None where the variable is given something else.
    """
    bindings = script.tree.lookup(value.id, value) if isinstance(value, ast.Name) else []
    whole = bindings[0].whole if len(bindings) == 1 else None
    match whole.func if whole is not None else None:
        case ast.Name(id="self"):
            name = "forward"
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            pass
        case _:
            return None
    methods = [each for each in owner.body if isinstance(each, ast.FunctionDef) and each.name == name]
    returns = [node.value for each in methods for node in ast.walk(each) if isinstance(node, ast.Return)]
    part = bindings[0].part
    if not all(isinstance(each, ast.Tuple) and part < len(each.elts) for each in returns):
        return []
    return [each.elts[part] for each in returns if isinstance(each, ast.Tuple)]


NOT_OF_BATCHES = re.compile(
    r"torch\.(?:distributed|cuda|nn\.utils)\..*|torch\.(?:\w*[tT]ensor|zeros|ones|full|arange|empty)"
)
"""What of torch exchanges, measures the process, or makes a tensor of any number."""
ALIKE = re.compile(r"parameters\(|grad|global_step|epoch")
"""Words of what is the same on all ranks."""


def _is_computed(script: Script, call: ast.Call) -> bool:
    """Whether a call is of a function of torch that computes something, and not of what all ranks have alike."""
    path = script.resolve(call.func) or ""
    if not path.startswith("torch.") or NOT_OF_BATCHES.fullmatch(path):
        return False
    return LOSS_FUNCTIONS.fullmatch(path) is not None or not ALIKE.search(ast.unparse(call))


def _is_loss(script: Script, owner: ast.ClassDef, name: str, depth: int) -> bool:
    """Whether ``self.name(...)`` is a loss of torch: a module of that kind, or a method that returns one."""
    for each in owner.body:
        if isinstance(each, ast.FunctionDef) and each.name == name:
            returns = [node.value for node in ast.walk(each) if isinstance(node, ast.Return) and node.value is not None]
            return bool(returns) and all(_is_own(script, owner, node, depth) for node in returns)
    made = [
        node.value
        for node in ast.walk(owner)
        if isinstance(node, ast.Assign) and [ast.unparse(each) for each in node.targets] == [f"self.{name}"]
    ]
    return bool(made) and all(_computes_loss(script, owner, each, depth) for each in made)


LOSS_MODULES = re.compile(r"torch\.nn\.(?:\w+\.)*\w+Loss")
LOSS_FUNCTIONS = re.compile(r"torch\.nn\.functional\.\w*(?:loss|entropy|div)\w*")


def _computes_loss(script: Script, owner: ast.ClassDef, given: ast.expr, depth: int) -> bool:
    """Whether what an attribute is given is a loss of torch, or a lambda that computes something of torch."""
    match given:
        case ast.Call(func=made):
            return LOSS_MODULES.fullmatch(script.resolve(made) or "") is not None
        case ast.Lambda(body=body):
            return _is_own(script, owner, body, depth)
        case ast.Name() | ast.Attribute():
            return LOSS_FUNCTIONS.fullmatch(script.resolve(given) or "") is not None
    return False
