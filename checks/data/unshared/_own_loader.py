"""Loaders of one's own, which count through the data by themselves: those that know of no rank."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddpdoctor.check import Script

KNOWS = re.compile(
    r"rank|world|shard|rand|seed|shuffle|replica|node|dist|host|environ|getpid|uuid|choice\(|permut|sampl(?:e|er)\("
    r"|\byield\b|\bqueue|socket|requests",
    re.IGNORECASE,
)
"""What says that a class gives each rank a share, draws, or gets its samples from elsewhere."""
LOOPS = (ast.For, ast.While)


def own_loaders(script: Script) -> Iterator[tuple[ast.Call, ast.ClassDef, ast.Call]]:
    """Yield objects of a class of the project that counts, their class, and what asks it for a batch.

    The batch goes into a wrapped model, in a loop.
    """
    seen: set[ast.Call] = set()
    for assign in script.nodes(ast.Assign):
        match assign.value:
            case ast.Call(func=ast.Attribute(value=ast.Name() as held, attr=method), args=[], keywords=[]) as asked:
                made = script.held(held)
            case _:
                continue
        own = _class(script, made) if isinstance(made, ast.Call) else None
        if own is None or not isinstance(made, ast.Call) or made in seen or not _counts(own, method):
            continue
        if _is_same(script, made, held.id) and _is_fed(script, assign):
            seen.add(made)
            yield made, own, asked


def _class(script: Script, made: ast.Call) -> ast.ClassDef | None:
    own = script.names_class(made.func)
    path = script.resolve(made.func) or ""
    if own is None and script.tree.abroad is not None and "." in path:
        found = script.tree.abroad(path)
        own = found[1] if found is not None and isinstance(found[1], ast.ClassDef) else None
    return own


def _counts(own: ast.ClassDef, method: str) -> bool:
    """Whether a class that inherits nothing counts through what it has in a method, and knows of no rank."""
    if any(ast.unparse(each) != "object" for each in own.bases) or own.keywords or own.decorator_list:
        return False
    code = "\n".join(ast.unparse(each) for each in own.body)
    told = next((each for each in own.body if isinstance(each, ast.FunctionDef) and each.name == method), None)
    if told is None or KNOWS.search(code):
        return False
    stepped = (each.target for each in ast.walk(told) if isinstance(each, ast.AugAssign))
    return any(isinstance(each, ast.Attribute) and ast.unparse(each.value) == "self" for each in stepped)


def _is_same(script: Script, made: ast.Call, name: str) -> bool:
    """Whether an object is made alike on all ranks, and afterwards only asked by its methods, of no rank."""
    handed = [*made.args, *(word.value for word in made.keywords)]
    if any(script.can_differ(each) or KNOWS.search(script.code(each)) for each in handed):
        return False
    return script.all_ranks_reach(made) and all(_is_asked(script, each) for each in script.tree.read.get(name, ()))


def _is_asked(script: Script, read: ast.Name) -> bool:
    attribute = script.tree.parents[read]
    call = script.tree.parents.get(attribute)
    match attribute, call:
        case ast.Attribute(), ast.Call(func=func, args=args) if func is attribute:
            return not any(KNOWS.search(script.code(each)) for each in args)
        case ast.Call(func=ast.Name(id="len" | "print")), _:
            return True
    return False


def _is_fed(script: Script, assign: ast.Assign) -> bool:
    """Whether a model that DDP wraps learns from what is assigned, in the loop that it is asked for in."""
    loop = next((each for each in script.tree.above(assign) if isinstance(each, LOOPS)), None)
    if loop is None or not script.learns(loop):
        return False
    names = {each.id for target in assign.targets for each in ast.walk(target) if isinstance(each, ast.Name)}
    for call in (each for each in script.inside(*loop.body) if isinstance(each, ast.Call)):
        given = {each.id for each in call.args if isinstance(each, ast.Name)}
        wrap = script.wrap(call.func) if given & names else None
        if wrap is not None and wrap.kind == "DistributedDataParallel":
            return True
    return False


SHARES = re.compile(
    r"rank|world|shard|split_|rand|seed|shuffle|replica|node|dist|host|environ|socket|queue|stream|getpid|uuid|time",
    re.IGNORECASE,
)
"""What says that a class gives each rank a share, or each its own samples."""


def gives_all(script: Script, own: ast.ClassDef, made: ast.Call) -> bool:
    """Whether a class is an IterableDataset that shares nothing, and calls nothing that could."""
    handed = [*made.args, *(word.value for word in made.keywords)]
    if [script.resolve(base) for base in own.bases] != ["torch.utils.data.IterableDataset"]:
        return False
    if SHARES.search(ast.unparse(own)) or any(script.can_differ(each) for each in handed):
        return False
    names = (each.func for each in ast.walk(own) if isinstance(each, ast.Call) and isinstance(each.func, ast.Name))
    return not any(script.tree.lookup(each.id, each) for each in names)
