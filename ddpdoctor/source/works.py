"""Which communications a line waits for that were begun before: by ``async_op=True``, ``isend`` or ``irecv``."""

from __future__ import annotations

import ast
import functools
from typing import TYPE_CHECKING

from ddpdoctor.source.text.lines import calls_at, tree_of
from ddpdoctor.source.text.names import resolve

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddpdoctor.source.text.tree import Tree

TORCH = "torch.distributed."
MESSAGES = {"isend": "send", "irecv": "recv"}
BATCH = "batch_isend_irecv"
DEPTH = 4  # names that lead from one to another
LISTS = ("append", "extend")
GIVES = (ast.Assign, ast.AnnAssign, ast.For, ast.comprehension, ast.Call)


@functools.cache
def waited_work(file: str, line: int) -> str:
    """Return the operation that ``work.wait()`` on a line waits for; empty where it waits for none, or it is not sure.

    Of several in one list, messages both ways are a batch.
    """
    tree = tree_of(file)
    waits = [call.func for call in calls_at(file, line) if isinstance(call.func, ast.Attribute)]
    found = {name for each in waits if each.attr == "wait" for name in _begun(tree, each.value, DEPTH)}
    if len(found) > 1 and found <= {*MESSAGES.values(), BATCH}:
        return BATCH
    return found.pop() if len(found) == 1 else ""


def _begun(tree: Tree, node: ast.expr, depth: int) -> Iterator[str]:
    """Yield the operations whose works an expression can be, or hold."""
    if isinstance(node, ast.Call):
        yield from _called(tree, node)
    elif isinstance(node, ast.Subscript):
        yield from _begun(tree, node.value, depth)
    elif isinstance(node, (ast.List, ast.Tuple)):
        for each in node.elts:
            yield from _begun(tree, each, depth)
    elif isinstance(node, (ast.ListComp, ast.GeneratorExp)):
        yield from _begun(tree, node.elt, depth)
    elif isinstance(node, (ast.Name, ast.Attribute)) and depth:
        given = sorted(_values(tree, node), key=lambda each: each.lineno)
        latest = [each for each in given if each.lineno <= node.lineno][-1:]
        found = [name for each in latest for name in _begun(tree, each, depth - 1)]
        yield from found or (name for each in given for name in _begun(tree, each, depth - 1))


def _called(tree: Tree, call: ast.Call) -> Iterator[str]:
    name = resolve(tree, call.func) or ""
    operation = name.rpartition(".")[2]
    begins = operation in {*MESSAGES, BATCH} or any(
        each.arg == "async_op" and isinstance(each.value, ast.Constant) and each.value.value is True
        for each in call.keywords
    )
    if name.startswith(TORCH) and begins:
        yield MESSAGES.get(operation, operation)


def _values(tree: Tree, node: ast.Name | ast.Attribute) -> Iterator[ast.expr]:
    """Yield what a name is given: in its function, where it has one; an attribute anywhere in the file."""
    text = ast.unparse(node)
    anywhere, scope = isinstance(node, ast.Attribute), tree.function(node)
    for each in tree.nodes:
        if not isinstance(each, GIVES) or not (anywhere or tree.function(each) is scope):
            continue
        if isinstance(each, (ast.Assign, ast.AnnAssign)) and each.value is not None:
            targets = each.targets if isinstance(each, ast.Assign) else [each.target]
            if any(ast.unparse(target) == text for target in targets):
                yield each.value
        elif isinstance(each, (ast.For, ast.comprehension)) and text in _names(each.target):
            yield each.iter
        elif isinstance(each, ast.Call) and _adds_to(each.func, text):
            yield from each.args


def _names(target: ast.expr) -> set[str]:
    """Return what the items of a loop are called, or their parts."""
    return {ast.unparse(each) for each in ast.walk(target) if isinstance(each, (ast.Name, ast.Attribute))}


def _adds_to(called: ast.expr, text: str) -> bool:
    return isinstance(called, ast.Attribute) and called.attr in LISTS and ast.unparse(called.value) == text
