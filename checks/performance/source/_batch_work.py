"""Statements of a step that need the batch alone, and nothing of the model: a worker of the loader could do them."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass, field

from ddpdoctor.check import Tree, dotted, statement_at, tree_of

from ._step_body import Body, body_of

MODULES = {"parameters", "named_parameters", "train", "eval", "state_dict", "zero_grad", "no_sync", "requires_grad_"}
"""Who is asked for one of these is a model, or an optimizer."""
PER_STEP = {"backward", "step"}
SENT = ("dist.", "torch.distributed.", "accelerator.", "fabric.")


@functools.cache
def of_the_batch(file: str, number: int, models: frozenset[int] = frozenset()) -> int:
    """Return the line of the first statement of a step that needs the batch alone, and leads to the one on a line.

    0 where that one needs more, or no batch. ``models`` are lines that were seen to call a model.
    """
    tree = tree_of(file)
    body, statement = body_of(tree, number), statement_at(tree, number)
    if not isinstance(body, ast.For) or statement is None or statement is body:
        return 0
    ready = _names(body.target)
    if isinstance(body.iter, ast.Call) and dotted(body.iter.func) == "enumerate" and isinstance(body.target, ast.Tuple):
        ready -= _names(body.target.elts[0])  # the counter
    elif isinstance(body.iter, ast.Call) and dotted(body.iter.func) == "range":
        ready = set()
    names = Names(set(ready), _bound_in(body))
    for each in body.body:
        is_one = _needs_the_batch_alone(tree, each, names, models)
        if each is statement or any(inner is statement for inner in ast.walk(each)):
            return each.lineno if is_one else 0
        names.take_up(each, is_one=is_one)
    return 0


@dataclass(slots=True)
class Names:
    """What the names of a step hold so far: something of the ``batch``, or nothing of the step yet (``fresh``).

    ``made`` are all that the step binds.
    """

    batch: set[str]
    made: set[str]
    fresh: set[str] = field(default_factory=set)

    def take_up(self, statement: ast.stmt, *, is_one: bool) -> None:
        """Follow a statement of the step; ``is_one``: it needs the batch alone."""
        bound, reads = _bound_by(statement), _read_by(statement)
        if is_one:
            self.batch |= bound | (reads & self.fresh)
            self.fresh -= self.batch
            return
        self.batch -= bound
        self.fresh -= bound
        self.batch |= _from_an_iterator(statement)
        if isinstance(statement, ast.Assign) and not reads & self.made:
            self.fresh |= bound - self.batch


def _needs_the_batch_alone(tree: Tree, statement: ast.stmt, names: Names, models: frozenset[int]) -> bool:
    """Whether a statement reads something of the batch, and else only what no step changes."""
    if models & set(range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)):
        return False
    if not _bound_by(statement) or not isinstance(statement, ast.Assign | ast.AnnAssign | ast.For | ast.With):
        return False  # it makes nothing that the step goes on with
    own = _bound_by(statement) - names.batch if isinstance(statement, ast.For | ast.With) else set[str]()
    reads = _read_by(statement) - _names_within(statement)
    if not reads & names.batch or (reads - names.batch - names.fresh - own) & names.made:
        return False
    return not any(_is_of_the_model(tree, call) for call in ast.walk(statement) if isinstance(call, ast.Call))


def _names_within(statement: ast.stmt) -> set[str]:
    """Return the names that comprehensions, loops and functions within a statement bind for themselves."""
    found: set[str] = set()
    for node in ast.walk(statement):
        match node:
            case ast.comprehension(target=target) | ast.For(target=target):
                found |= _names(target)
            case ast.Lambda(args=arguments):
                found |= {each.arg for each in arguments.args}
    return found


def _is_of_the_model(tree: Tree, call: ast.Call) -> bool:
    """Whether a call is of a model, an optimizer or other ranks, by what else the file does with who is called."""
    named = dotted(call.func) or ""
    if named.startswith(SENT) or named.rpartition(".")[2] in PER_STEP:
        return True
    return any(each in _models(tree) for each in _heads(named))


def _heads(named: str) -> Iterator[str]:
    parts = named.split(".")
    for length in range(1, len(parts) + 1):
        yield ".".join(parts[:length])


@functools.cache
def _models_of(module: ast.Module) -> frozenset[str]:
    asked = {
        dotted(node.func.value)
        for node in ast.walk(module)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MODULES
    }
    for node in ast.walk(module):
        match node:
            case ast.Assign(targets=[target], value=ast.Call(func=func)):
                last = (dotted(func) or "").rpartition(".")[2]
                if last in {"DistributedDataParallel", "DDP", "DataParallel", "compile", "fully_shard", "prepare"}:
                    asked |= {dotted(each) for each in (target.elts if isinstance(target, ast.Tuple) else [target])}
    return frozenset(each for each in asked if each)


def _models(tree: Tree) -> frozenset[str]:
    return _models_of(tree.module)


def _from_an_iterator(statement: ast.stmt) -> set[str]:
    """Return the names that ``next(batches)`` is bound to."""
    match statement:
        case ast.Assign(targets=[target], value=ast.Call(func=ast.Name(id="next"))):
            return _names(target)
    return set()


def _bound_in(body: Body) -> set[str]:
    return {
        node.id
        for each in body.body
        for node in ast.walk(each)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    } | (_names(body.target) if isinstance(body, ast.For) else set())


def _bound_by(statement: ast.stmt) -> set[str]:
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _read_by(statement: ast.stmt) -> set[str]:
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def _names(target: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}
