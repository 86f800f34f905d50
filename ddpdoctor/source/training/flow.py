"""Where a sampler and its loaders go: through names, attributes, parameters and returns, of this file and of others."""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ddpdoctor.source.libraries import NOT_OURS
from ddpdoctor.source.reach.bound import values
from ddpdoctor.source.reach.sites import SPAWN, call_sites, some_sites
from ddpdoctor.source.text.bindings import dotted
from ddpdoctor.source.text.names import resolve
from ddpdoctor.source.text.tree import Tree
from ddpdoctor.source.training.callee import called, is_parameter, parameter_of, renewing
from ddpdoctor.source.training.epochs import PASS_ON
from ddpdoctor.source.training.loader_kinds import loader_kind
from ddpdoctor.source.training.wrapped import possible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddpdoctor.source.text.bindings import Binding

LOADERS = frozenset(
    {"torch.utils.data.DataLoader", "torch.utils.data.BatchSampler", "torch.utils.data.sampler.BatchSampler"}
)
HARMLESS = {"len", "print", "str", "repr", "isinstance", "hasattr", "type", "id", "next"}
MOST = 400  # places that are followed
Place = tuple[Tree, ast.AST]


@dataclass
class Flow:
    """The loops that go through what a call made, and those in which it is begun anew when it has come to its end.

    ``endless`` are loops of generators that begin it anew without end, and ``drawn`` the calls of ``next`` that draw
    from them; ``escapes`` where it comes into hands that are not seen.
    """

    loops: list[tuple[Tree, ast.For]] = field(default_factory=list)
    renewed: list[tuple[Tree, ast.For | ast.While]] = field(default_factory=list)
    endless: list[tuple[Tree, ast.While]] = field(default_factory=list)
    drawn: list[Place] = field(default_factory=list)
    escapes: bool = False


def flow(tree: Tree, call: ast.Call) -> Flow:
    """Follow what a call makes, and the loaders that are given it."""
    found, seen = Flow(), set[ast.AST]()
    waiting: list[Place] = [(tree, call)]
    while waiting and len(seen) < MOST:
        there, node = waiting.pop()
        if node not in seen:
            seen.add(node)
            waiting += _next(there, node, found)
    found.escapes |= bool(waiting)
    return found


def _next(tree: Tree, node: ast.AST, found: Flow) -> list[Place]:  # noqa: PLR0911 - one case a shape
    parent = tree.parents.get(node)
    match parent:
        case ast.keyword():
            return _argument(tree, node, found)
        case ast.Call() if parent.func is not node:
            return _argument(tree, node, found)
        case ast.Attribute(attr="sampler" | "batch_sampler"):
            return [(tree, parent)]
        case ast.For(iter=iterated) if iterated is node:
            found.loops.append((tree, parent))
            return _yielded(tree, parent, found)
        case ast.IfExp() | ast.BoolOp():
            return [(tree, parent)]
        case ast.Return():
            return _returned(tree, parent, None, found)
        case ast.Tuple() if isinstance(tree.parents.get(parent), ast.Return):
            return _returned(tree, tree.parents[parent], parent.elts.index(node), found)  # type: ignore[arg-type]
        case ast.Assign() | ast.AnnAssign() | ast.NamedExpr() | ast.Tuple():
            return _bound(tree, node, found)
        case ast.Attribute() | ast.Compare() | ast.Expr() | ast.If() | ast.UnaryOp() | ast.FormattedValue():
            return []
    found.escapes = True
    return []


def _yielded(tree: Tree, loop: ast.For, found: Flow) -> list[Place]:
    """Return the calls of the generator that a loop hands its batches out of, over and over."""
    outer = tree.parents.get(loop)
    function = tree.function(loop)
    hands_out = any(isinstance(each, ast.Yield) for statement in loop.body for each in ast.walk(statement))
    if not (hands_out and isinstance(outer, ast.While) and isinstance(function, ast.FunctionDef)):
        return []
    if not (isinstance(outer.test, ast.Constant) and outer.test.value):
        return []
    found.endless.append((tree, outer))
    sites: list[Place] = [(tree, each) for each in some_sites(tree, function)]
    return [*sites, *(tree.callers(function) if tree.callers is not None else ())]


def _bound(tree: Tree, node: ast.AST, found: Flow) -> list[Place]:
    """Return where the variables are read that are given an expression."""
    reads: list[Place] = []
    for scope, name, binding in tree_values(tree).get(node, ()):
        if isinstance(scope, ast.ClassDef) and name.startswith("self.") and has_unknown_bases(tree, scope):
            found.escapes = True
        reads += [(tree, each) for each in _reads(tree, scope, name) if _in_force(tree, binding, each)]
    found.escapes |= node not in tree_values(tree)
    return reads


def tree_values(tree: Tree) -> dict[ast.AST, list[tuple[ast.AST | None, str, Binding]]]:
    """Return what each expression is bound to: whose, which name or attribute, and how."""
    if not tree.holders:
        found: dict[ast.AST, list[tuple[ast.AST | None, str, Binding]]] = defaultdict(list)
        for scope, names in tree.bindings.items():
            for name, bindings in names.items():
                for each in bindings:
                    if each.value is not None:
                        found[each.value].append((scope, name, each))
        for (owner, text), bindings in tree.attributes.items():
            for each in bindings:
                if each.value is not None:
                    found[each.value].append((owner, text, each))
        tree.holders = dict(found)
    return tree.holders


def _reads(tree: Tree, scope: ast.AST | None, name: str) -> Iterator[ast.expr]:
    if "." not in name:
        for node in tree.read.get(name, ()):
            if any(
                each in tree.bindings.get(scope or tree.module, {}).get(name, ()) for each in tree.lookup(name, node)
            ):
                yield node
        return
    for member in tree.members.get(name.rpartition(".")[2], ()):
        if isinstance(member.ctx, ast.Load) and dotted(member) == name and tree.owner(member, name) is scope:
            yield member


def _in_force(tree: Tree, binding: Binding, node: ast.expr) -> bool:
    """Whether a variable can still hold what a binding gave it."""
    bindings = values(tree, node)
    return len(bindings) == 1 or binding in possible(tree, bindings, node)


def has_unknown_bases(tree: Tree, owner: ast.ClassDef) -> bool:
    """Whether a class inherits from one that is not seen, whose methods can use what its objects hold."""
    for base in owner.bases:
        path = resolve(tree, base) or "?"
        root = path.partition(".")[0]
        named = [each.node for each in tree.lookup(base.id, base)] if isinstance(base, ast.Name) else []
        if any(isinstance(each, ast.ClassDef) for each in named) or root == "object" or root in NOT_OURS:
            continue
        found = tree.abroad(path) if tree.abroad is not None else None
        if found is None or not isinstance(found[1], ast.ClassDef) or has_unknown_bases(found[0], found[1]):
            return True
    return False


def _argument(tree: Tree, node: ast.AST, found: Flow) -> list[Place]:  # noqa: PLR0911 - one case a callee
    """Return where an argument is read in what is called."""
    parent = tree.parents[node]
    call = tree.parents[parent] if isinstance(parent, ast.keyword) else parent
    word = parent.arg if isinstance(parent, ast.keyword) else None
    if not isinstance(call, ast.Call):
        found.escapes = True
        return []
    if word in {"sampler", "batch_sampler"} and (made := _begun_as_loader(tree, call)) is not None:
        return made
    path = resolve(tree, call.func) or ""
    path = loader_kind(tree, call.func, path) or path
    if path in LOADERS:
        is_given = word in {"sampler", "batch_sampler"} or (word is None and node in call.args[:1] and "Batch" in path)
        return [(tree, call)] if is_given else []
    if path == "next":
        found.drawn.append((tree, call))
    if path in PASS_ON:
        found.renewed += [(tree, each) for each in renewing(tree, call)] if path == "iter" else []
        return [(tree, call)] if path not in HARMLESS else []
    function = called(tree, call)
    if function is None:
        root = path.partition(".")[0]
        found.escapes |= not (path in HARMLESS or ("." in path and root in NOT_OURS))
        return []
    there, named = function
    name = parameter_of(named, call, node, word, first=1 if path in SPAWN else 0)
    if name is None:
        found.escapes = True
        return []
    arguments = next((each for each in ast.walk(named.args) if isinstance(each, ast.arg) and each.arg == name), None)
    reads = [each for each in there.read.get(name, ()) if is_parameter(there, each, arguments)]
    return [(there, each) for each in reads]


def _begun_as_loader(tree: Tree, call: ast.Call) -> list[Place] | None:
    """Return the calls of a DataLoader's subclass whose ``__init__`` hands its arguments on by ``super().__init__``."""
    function, owner = tree.function(call), tree.class_of(call)
    match call.func:
        case ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr="__init__"):
            is_loader = owner is not None and any(resolve(tree, each) in LOADERS for each in owner.bases)
            if is_loader and isinstance(function, ast.FunctionDef) and function.name == "__init__":
                sites: list[Place] = [(tree, each) for each in some_sites(tree, function)]
                return [*sites, *(tree.callers(function) if tree.callers is not None else ())]
    return None


def _returned(tree: Tree, statement: ast.AST, place: int | None, found: Flow) -> list[Place]:
    """Return the calls of the function that a return stands in; of a tuple, the variables that take this part."""
    function = tree.function(statement)
    if not isinstance(function, ast.FunctionDef):
        found.escapes = True
        return []
    sites: list[Place] = [(tree, each) for each in some_sites(tree, function)]
    found.escapes |= call_sites(tree, function) is None
    if tree.callers is not None and tree.class_of(function) is None:
        sites += tree.callers(function)
    if place is None:
        return sites
    reads: list[Place] = []
    for there, site in sites:
        parent = there.parents[site]
        taken = parent.targets[0] if isinstance(parent, ast.Assign) and len(parent.targets) == 1 else None
        if isinstance(taken, ast.Tuple) and place < len(taken.elts):
            reads += _taken(there, taken.elts[place])
        else:
            found.escapes = True
    return reads


def _taken(tree: Tree, target: ast.expr) -> list[Place]:
    """Return where a variable is read that takes a part of a tuple."""
    name = dotted(target)
    if name is None:
        return []
    scope = tree.owner(target, name) if "." in name else tree.scope(target)
    return [(tree, each) for each in _reads(tree, scope, name)]
