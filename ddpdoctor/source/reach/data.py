"""Tests that a batch decides, so that ranks, each with a batch of its own, answer them differently."""

from __future__ import annotations

import ast
import functools
import re
from typing import TYPE_CHECKING

from ddpdoctor.source.reach.ignited import filters_at, is_of_a_step
from ddpdoctor.source.reach.rankish import is_rankish
from ddpdoctor.source.reach.reached import guards_at
from ddpdoctor.source.text.bindings import Binding, dotted
from ddpdoctor.source.text.lines import statement_at, tree_of
from ddpdoctor.source.text.names import resolve
from ddpdoctor.source.values.arguments import passed
from ddpdoctor.source.values.bound import values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddpdoctor.source.reach.guards import Guard
    from ddpdoctor.source.text.tree import Tree

DEPTH = 6
AGREED = re.compile(r"(?:^|\.|_)(?:all_?gather|all_?reduce|reduce|gather|broadcast|check_trigger|agree)\w*$")
"""In the name of a function: what it returns is the same on all ranks."""
IN_PLACE = re.compile(r"(?:^|\.)(?:all_reduce|broadcast|broadcast_object_list)$")
"""Functions that exchange what they are given."""
COUNTERS = re.compile(r"(?:^|_)(?:i|j|k|n|it|idx|index|iter\w*|step\w*|epoch\w*|round\w*|phase)$")
BATCH = re.compile(r"^(?:batch\w*|inputs?|x|y|images?|labels?|targets?|logits|outputs?|loss\w*)$")
"""Usual names of a parameter that holds a batch, or a result of it."""
FILTER = "by the event's filter "
"""How a test is told that Ignite makes before it calls a handler."""
DRAWN = frozenset({"torch.rand", "torch.randn", "torch.randint", "torch.normal"})
"""What makes a batch of random numbers, which a test does not ask by itself."""
COUNTS = {"range", "tqdm.trange", "itertools.count"}


@functools.cache
def batch_condition(file: str, line: int) -> str:
    """Return in words the innermost test around a line, in its function, that a batch decides; empty without one.

    Silent where its values were exchanged between the ranks before.
    """
    found = _decided(file, line)
    if found is not None:
        return found.words
    tree = tree_of(file)
    answers = [each for each in filters_at(tree, line) if _comes_from_a_batch(tree, each, DEPTH)]
    return f"{FILTER}`{' '.join(ast.unparse(answers[0]).split())}`" if answers else ""


@functools.cache
def batch_exit(file: str, line: int) -> str:
    """Return the statement by which a rank leaves at that test; empty where the line stands in a branch of it."""
    found, tree = _decided(file, line), tree_of(file)
    branch = tree.parents.get(found.test) if found is not None else None
    if found is None or not isinstance(branch, ast.If) or any(branch is up for up in _above(tree, line)):
        return ""
    return " ".join(ast.unparse((branch.orelse if found.holds else branch.body)[-1]).split())


def _decided(file: str, line: int) -> Guard | None:
    tree = tree_of(file)
    return next((each for each in guards_at(tree, line) if _is_decided_by_a_batch(tree, each)), None)


def _above(tree: Tree, line: int) -> Iterator[ast.AST]:
    statement = statement_at(tree, line)
    return iter(()) if statement is None else iter(tree.above(statement))


@functools.cache
def in_one_loop(file: str, one: int, other: int) -> bool:
    """Whether two lines are in the same innermost loop of a function."""
    tree = tree_of(file)
    statements = [statement_at(tree, line) for line in (one, other)]
    loops = [
        next((up for up in (each, *tree.above(each)) if isinstance(up, (ast.For, ast.While, ast.AsyncFor))), None)
        for each in statements
        if each is not None
    ]
    return len(loops) == 2 and loops[0] is not None and loops[0] is loops[1]  # noqa: PLR2004 - both


@functools.cache
def is_head_of_loop_around(file: str, head: int, line: int) -> bool:
    """Whether a line is the head of a loop that another line is in."""
    tree = tree_of(file)
    statement = statement_at(tree, line)
    loops = (
        [up for up in tree.above(statement) if isinstance(up, (ast.For, ast.While))] if statement is not None else []
    )
    return any(each.lineno == head for each in loops)


def _is_decided_by_a_batch(tree: Tree, guard: Guard) -> bool:
    """Whether it is made of a batch, whatever that is made of: a rank's share depends on its number."""
    return not is_rankish(tree, guard.test, 0) and _comes_from_a_batch(tree, guard.test, DEPTH)


def _comes_from_a_batch(tree: Tree, node: ast.expr, depth: int) -> bool:
    """Whether some part of an expression is made of a batch, and none was exchanged."""
    parts = list(ast.walk(node))
    calls = [each.func for each in parts if isinstance(each, ast.Call)]
    if any(AGREED.search(dotted(each) or "") for each in calls):
        return False
    if any(is_of_a_step(tree, each) for each in parts):
        return True
    if depth < DEPTH and any(resolve(tree, each) in DRAWN for each in calls):
        return True
    names = [each for each in parts if isinstance(each, (ast.Name, ast.Attribute)) and dotted(each)]
    found = [(each, values(tree, each)) for each in names]
    if any(is_exchanged(tree, each) for each, _ in found):
        return False
    return any(_is_of_a_batch(tree, dotted(each) or "", binding, depth) for each, held in found for binding in held)


def _is_of_a_batch(tree: Tree, name: str, binding: Binding, depth: int) -> bool:
    match binding.node:
        case ast.For(target=target, iter=iterated) | ast.AsyncFor(target=target, iter=iterated):
            return _is_an_item(tree, name, target, iterated)
        case ast.arg(arg=own):
            given = passed(tree, binding)
            if given is None:
                return bool(BATCH.match(own))
            return depth > 0 and any(_comes_from_a_batch(tree, each, depth - 1) for each in given)
    value = binding.value if binding.value is not None else getattr(binding.node, "value", None)
    if not isinstance(value, ast.expr) or depth == 0:
        return False
    return _comes_from_a_batch(tree, value, depth - 1)


def _is_an_item(tree: Tree, name: str, target: ast.expr, iterated: ast.expr) -> bool:
    """Whether a variable of a loop is what the loop goes over, and no counter."""
    if not isinstance(iterated, ast.Call):
        return not COUNTERS.search(name)
    function = resolve(tree, iterated.func) or ""
    if function in COUNTS:
        return False
    if function == "enumerate" and isinstance(target, ast.Tuple) and target.elts:
        first = target.elts[0]
        return not (isinstance(first, ast.Name) and first.id == name)
    return not COUNTERS.search(name)


def is_exchanged(tree: Tree, node: ast.expr) -> bool:
    """Whether what a name holds is given before to a function that exchanges it in place, in the same function."""
    text = dotted(node)
    around = tree.function(node) or tree.module
    return any(
        IN_PLACE.search(dotted(each.func) or "")
        and each.lineno < node.lineno
        and each.args
        and dotted(each.args[0]) == text
        for each in ast.walk(around)
        if isinstance(each, ast.Call)
    )
