"""Lists, tuples and dicts that hold a sampler or a loader: where it is put in, and where it is taken out."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.source.text.bindings import dotted
from ddpdoctor.source.text.names import resolve
from ddpdoctor.source.values.bound import value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddpdoctor.source.text.tree import Tree

Key = str | int | None
ANY = -1
"""The key of what can stand at each place of a container."""
GROWS = {"append", "add", "insert", "appendleft"}
LOOKS = {"keys", "pop", "clear", "sort", "reverse", "index", "count", "copy"}
"""Methods of a container that hand out nothing of it, or a container of the same things."""
ALONG = {"enumerate", "zip"}


class Place(NamedTuple):
    """An expression that holds what is followed: itself, or in a container, under a key."""

    tree: Tree
    node: ast.AST
    key: Key = None


def put_into(tree: Tree, node: ast.AST) -> Place | None:
    """Return the container that an expression is made a part of; None where it is none."""
    parent = tree.parents.get(node)
    match parent:
        case ast.List() | ast.Tuple():
            return Place(tree, parent, parent.elts.index(node))  # type: ignore[arg-type]
        case ast.Dict(keys=keys, values=held) if node in held:
            return Place(tree, parent, _key(keys[held.index(node)]))
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() if parent.elt is node:
            return Place(tree, parent, ANY)
        case ast.DictComp() if parent.value is node:
            return Place(tree, parent, ANY)
        case ast.keyword(arg=str(name)) if resolve(tree, _call(tree, parent).func) == "dict":
            return Place(tree, tree.parents[parent], name)
    return None


def given_to(tree: Tree, node: ast.AST) -> tuple[ast.expr, Key] | None:
    """Return the container that an expression is given to, ``x.append(it)`` or ``x["key"] = it``, and its key there."""
    parent = tree.parents.get(node)
    match parent:
        case ast.Call(func=ast.Attribute(value=held, attr=name)) if name in GROWS and node in parent.args:
            return held, ANY
        case ast.Assign(targets=[ast.Subscript(value=held, slice=key)], value=stored) if stored is node:
            return held, _key(key)
        case ast.keyword(arg=str(name)):
            called = _call(tree, parent).func
            return (called.value, name) if isinstance(called, ast.Attribute) and called.attr == "update" else None
    return None


def _call(tree: Tree, word: ast.AST) -> ast.Call:
    found = tree.parents[word]
    return found if isinstance(found, ast.Call) else ast.Call(ast.Constant(None), [], [])


def _key(node: ast.AST | None) -> Key:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, (str, int)) else ANY


def taken_out(tree: Tree, node: ast.AST, key: Key) -> list[Place] | None:
    """Return where a part is read that is taken out of a container; None where that is passed on as a whole."""
    parent = tree.parents.get(node)
    match parent:
        case ast.Subscript(value=held, slice=asked) if held is node:
            return [Place(tree, parent)] if _can_be(tree, asked, key) else []
        case ast.Attribute(attr="get" | "pop"):
            call = tree.parents.get(parent)
            is_asked = isinstance(call, ast.Call) and call.func is parent and call.args
            return [Place(tree, call)] if is_asked and _can_be(tree, call.args[0], key) else []  # type: ignore[arg-type, union-attr]
        case ast.Attribute(attr="values" | "items"):
            call = tree.parents.get(parent)
            looped = _loop(tree, call) if call is not None else None
            return list(_of_target(tree, looped[0], looped[1] + (1,) * (parent.attr == "items"))) if looped else None
        case ast.Attribute(attr=name) if name in GROWS | LOOKS:
            return []
        case ast.Assign(targets=[ast.Tuple(elts=parts)], value=given) if given is node:
            if isinstance(key, int) and 0 <= key < len(parts):
                return list(_reads_of(tree, parts[key]))
    looped = _loop(tree, node)
    return list(_of_target(tree, *looped)) if looped is not None else None


def _can_be(tree: Tree, asked: ast.expr, key: Key) -> bool:
    """Whether what a container is asked for can be under a key: it is that, or a loop goes through such keys."""
    said = value(tree, asked)
    if isinstance(said, ast.Constant):
        return key in (ANY, said.value)
    if isinstance(said, ast.UnaryOp):
        return key == ANY
    if not isinstance(asked, ast.Name):
        return False
    for binding in tree.lookup(asked.id, asked):
        if isinstance(binding.node, (ast.For, ast.comprehension)):
            through = value(tree, binding.node.iter)
            if isinstance(through, (ast.List, ast.Tuple)):
                return any(isinstance(each, ast.Constant) and each.value == key for each in through.elts)
    return key == ANY


Loop = tuple[ast.AST, tuple[int, ...]]


def _loop(tree: Tree, node: ast.AST) -> Loop | None:
    """Return what goes through a container, and at which place of its target a part of it stands."""
    place: tuple[int, ...] = ()
    parent = tree.parents.get(node)
    while isinstance(parent, ast.Call) and node in parent.args and resolve(tree, parent.func) in ALONG:
        is_counted = resolve(tree, parent.func) == "enumerate"
        place = (1 if is_counted else parent.args.index(node), *place)
        node, parent = parent, tree.parents.get(parent)
    if isinstance(parent, (ast.For, ast.comprehension)) and parent.iter is node:
        return parent, place
    return None


def _of_target(tree: Tree, loop: ast.AST, place: tuple[int, ...]) -> Iterator[Place]:
    target: ast.AST = loop.target  # type: ignore[attr-defined]
    for each in place:
        if not isinstance(target, (ast.Tuple, ast.List)) or each >= len(target.elts):
            return
        target = target.elts[each]
    yield from _reads_of(tree, target)


def _reads_of(tree: Tree, target: ast.AST) -> Iterator[Place]:
    """Yield where a variable is read that is given a part: a name of the same scope, or an attribute of the class."""
    name = dotted(target)
    if name is None:
        return
    if "." in name:
        for member in tree.members.get(name.rpartition(".")[2], ()):
            is_read = isinstance(member.ctx, ast.Load) and dotted(member) == name
            if is_read and tree.owner(member, name) is tree.owner(target, name):
                yield Place(tree, member)
        return
    for node in tree.read.get(name, ()):
        if any(_binds(each.node, target) for each in tree.lookup(name, node)):
            yield Place(tree, node)


def _binds(statement: ast.AST, target: ast.AST) -> bool:
    return any(each is target for each in ast.walk(statement))
