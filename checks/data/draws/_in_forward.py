"""Noise that a wrapped model draws in its own forward, as the source says it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ddpdoctor.check import Drew, Site, Training, Wrapped, last_name, tree_of

from ..._scripts.own_files import own_files

LIKE = {"randn_like", "rand_like", "rsample"}
SHAPED = {"randn", "rand", "normal", "normal_", "uniform_", "bernoulli", "randint", "exponential_"}
OF_SAMPLES = re.compile(r"\.shape|\.size\(|\blen\(|\bb(atch)?(_size)?\b|\bbs\b|\bnum_samples\b", re.IGNORECASE)
"""In the shape of what has a number for each sample: a layer that is left out takes one for all."""
FORWARD = "forward"
Function = (ast.FunctionDef, ast.AsyncFunctionDef)


def noise_in_forward(batches: Sequence[dict[int, Drew]], event: Drew, training: Training) -> Site | None:
    """Return the line of a forward that draws noise for the samples; None where its draws differ between the ranks.

    The generator's state is the same on all ranks as each batch is given to the model, and moves from batch to batch.
    """
    states = [{each.state for each in ranks.values()} for ranks in batches]
    moves = len({state for each in states for state in each}) == len(states)
    if event.site is None or not moves or not all(len(each) == 1 for each in states):
        return None
    return drawn_in_forward({each.kind for each in training.of(Wrapped, pid=event.pid)}, own_files(event.site.file))


def drawn_in_forward(kinds: Iterable[str], files: Iterable[str]) -> Site | None:
    """Return the line that draws a number or more for each sample in a forward of these classes; None without one.

    Followed are methods and functions that the forward calls by their names, and the forwards of classes of the files
    that its class makes.
    """
    trees = {file: tree_of(file).module for file in files}
    classes = {each.name: (file, each) for file, tree in trees.items() for each in ast.walk(tree)
               if isinstance(each, ast.ClassDef)}  # fmt: skip
    functions = {each.name: (file, each) for file, tree in trees.items() for each in tree.body
                 if isinstance(each, Function)}  # fmt: skip
    waiting = [each.rpartition(".")[2] for each in kinds]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen or name not in classes:
            continue
        seen.add(name)
        file, own = classes[name]
        for where, function in _called_by_forward(file, own, functions):
            calls = (each for each in ast.walk(function) if isinstance(each, ast.Call))
            counts = _counts_of_samples(function)
            line = next((each.lineno for each in calls if _draws_for_samples(each, counts)), 0)
            if line:
                return Site(where, line, function.name)
        waiting += sorted(_made(own))
    return None


def _called_by_forward(
    file: str, own: ast.ClassDef, functions: Mapping[str, tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    methods = {each.name: (file, each) for each in own.body if isinstance(each, Function)}
    waiting, seen = [FORWARD], {"__init__"}
    while waiting:
        name = waiting.pop()
        found = methods.get(name) or functions.get(name)
        if name in seen or found is None or not isinstance(found[1], Function):
            continue
        seen.add(name)
        yield found[0], found[1]
        waiting += sorted(last_name(each.func) for each in ast.walk(found[1]) if isinstance(each, ast.Call))


def _made(own: ast.ClassDef) -> set[str]:
    return {last_name(each.func) for each in ast.walk(own) if isinstance(each, ast.Call)}


def _counts_of_samples(function: ast.AST) -> set[str]:
    """Return the names that a function gives the first number of a shape: ``n`` of ``n, length, _ = x.shape``."""
    found = set()
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=[ast.Name(id=name), *_])], value=ast.Attribute(attr="shape")):
                found.add(name)
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Subscript(value=ast.Attribute(attr="shape"), slice=ast.Constant(value=0)),
            ):
                found.add(name)
    return found


def _draws_for_samples(node: ast.Call, counts: set[str]) -> bool:
    """Whether an expression draws as many numbers as there are samples, from a generator of the process."""
    if any(each.arg == "generator" for each in node.keywords):
        return False
    name = last_name(node.func)
    given = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    counted = bool(given & counts) or OF_SAMPLES.search(ast.unparse(node)) is not None
    return name in LIKE or (name in SHAPED and counted)
