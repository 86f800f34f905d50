"""Where a sampler and its loaders go: through names, attributes, parameters and returns, of this file and of others."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from ddpdoctor.source.callers.literal import is_closed_to
from ddpdoctor.source.libraries import NOT_OURS
from ddpdoctor.source.text.bindings import dotted
from ddpdoctor.source.text.names import resolve
from ddpdoctor.source.text.tree import Tree
from ddpdoctor.source.training.epochs import PASS_ON
from ddpdoctor.source.training.followed.callee import called, is_parameter, parameter_of, renewing
from ddpdoctor.source.training.followed.containers import ANY, Key, Place, given_to, put_into, taken_out
from ddpdoctor.source.training.followed.holding import has_unknown_bases, in_force, reads, taken, tree_values
from ddpdoctor.source.training.followed.objects import read_outside
from ddpdoctor.source.training.loader_kinds import loader_kind
from ddpdoctor.source.values.sites import SPAWN, call_sites, seen_sites, some_sites

LOADERS = frozenset(
    {"torch.utils.data.DataLoader", "torch.utils.data.BatchSampler", "torch.utils.data.sampler.BatchSampler"}
)
HARMLESS = {"len", "print", "str", "repr", "isinstance", "hasattr", "type", "id", "next"}
MOST = 400  # places that are followed


@dataclass
class Flow:
    """The loops that go through what a call made, and those in which it is begun anew when it has come to its end.

    ``endless`` are loops of generators that begin it anew without end, and ``drawn`` the calls of ``next`` that draw
    from them; ``escapes`` where it comes into hands that are not seen. ``kept``: it does not leave those generators.
    """

    loops: list[tuple[Tree, ast.For]] = field(default_factory=list)
    renewed: list[tuple[Tree, ast.For | ast.While]] = field(default_factory=list)
    endless: list[tuple[Tree, ast.While]] = field(default_factory=list)
    drawn: list[tuple[Tree, ast.AST]] = field(default_factory=list)
    handed_out: list[Place] = field(default_factory=list)
    escapes: bool = False
    kept: bool = False
    entries: dict[ast.AST, list[ast.AST | None]] = field(default_factory=lambda: defaultdict(list))
    """The calls by which it has come into each function; None for a parameter."""
    handed: set[ast.AST] = field(default_factory=set)
    """The calls of functions of the project that are given it."""


def flow(tree: Tree, call: ast.Call) -> Flow:
    """Follow what a call makes, and the loaders that are given it."""
    if call not in tree.flows:
        tree.flows[call] = _flow(tree, call, [Place(tree, call)])
    return cast("Flow", tree.flows[call])


def flow_of_part(tree: Tree, call: ast.Call, reads: Sequence[ast.expr]) -> Flow:
    """Follow what is read in these places, which a call has made: one of several things that it returns."""
    return _flow(tree, call, [Place(tree, each) for each in reads])


def _flow(tree: Tree, call: ast.Call, waiting: list[Place]) -> Flow:
    found, seen = Flow(), set[tuple[ast.AST, Key]]()
    if (function := tree.function(call)) is not None:
        found.entries[function].append(call)
    while waiting and len(seen) < MOST:
        place = waiting.pop()
        if (place.node, place.key) not in seen:
            seen.add((place.node, place.key))
            waiting += _next(place, found)
        if not waiting and not found.kept:
            found.kept = bool(found.endless) and not found.escapes
            waiting, found.handed_out = found.handed_out, []
    found.escapes |= bool(waiting)
    return found


def _next(place: Place, found: Flow) -> list[Place]:
    if place.key is not None:
        return _of_container(place, found)
    return [each if isinstance(each, Place) else Place(*each) for each in _of_itself(place.tree, place.node, found)]


def _of_container(place: Place, found: Flow) -> list[Place]:
    """Return where a container goes, and what is taken out of it."""
    tree, node, key = place
    if (parts := taken_out(tree, node, key)) is not None:
        return parts
    parent = tree.parents.get(node)
    match parent:
        case ast.keyword(arg=None):
            return _unpacked(tree, parent, key, found)
        case ast.keyword() | ast.Call() | ast.Return() | ast.Assign() | ast.AnnAssign() | ast.IfExp() | ast.BoolOp():
            return [Place(there, each, key) for there, each, *_ in _of_itself(tree, node, found)]
        case ast.Tuple() if isinstance(tree.parents.get(parent), ast.Return):
            return [Place(there, each, key) for there, each, *_ in _of_itself(tree, node, found)]
        case ast.BinOp(op=ast.Add()):
            return [Place(tree, parent, ANY)]
    is_idle = isinstance(parent, (ast.Expr, ast.Compare, ast.If, ast.UnaryOp, ast.FormattedValue, ast.Attribute))
    found.escapes |= not is_idle
    return []


def _unpacked(tree: Tree, word: ast.keyword, key: Key, found: Flow) -> list[Place]:
    """Return the loader that a dict is handed to as keywords: ``DataLoader(data, **options)``."""
    call = tree.parents[word]
    if isinstance(call, ast.Call) and resolve(tree, call.func) in LOADERS:
        return [Place(tree, call)] if key in {"sampler", "batch_sampler"} else []
    found.escapes = True
    return []


Found = Sequence[tuple[Tree, ast.AST]] | list[Place]


def _put_away(tree: Tree, node: ast.AST, found: Flow) -> list[Place] | None:
    """Return the container, or where it is read, that an expression is put into; None where it is put into none."""
    parent = tree.parents.get(node)
    is_result = isinstance(parent, ast.Tuple) and isinstance(tree.parents.get(parent), ast.Return)
    is_part = node not in tree_values(tree) and not is_result
    container = put_into(tree, node) if is_part else None
    if container is not None:
        return [container]
    grown = given_to(tree, node)
    return _held_by(tree, *grown, found) if grown is not None else None


def _of_itself(tree: Tree, node: ast.AST, found: Flow) -> Found:  # noqa: C901, PLR0911 - one case a shape
    parent = tree.parents.get(node)
    if (held := _put_away(tree, node, found)) is not None:
        return held
    match parent:
        case ast.keyword():
            return _argument(tree, node, found)
        case ast.Call() if parent.func is not node:
            return _argument(tree, node, found)
        case ast.Attribute(attr="sampler" | "batch_sampler"):
            return [(tree, parent)]
        case ast.For(iter=iterated) if iterated is node:
            found.loops.append((tree, parent))
            _yield_on(tree, parent, found)
            return []
        case ast.YieldFrom():
            _yield_on(tree, parent, found)
            found.escapes |= not found.endless
            return []
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


def _yield_on(tree: Tree, node: ast.For | ast.YieldFrom, found: Flow) -> None:
    """Note the generator that hands batches out over and over, and the calls of it, which are followed afterwards."""
    statement = node if isinstance(node, ast.For) else tree.parents.get(node)
    outer = tree.parents.get(statement) if statement is not None else None
    function = tree.function(node)
    hands_out = isinstance(node, ast.YieldFrom) or any(
        isinstance(each, ast.Yield) for one in node.body for each in ast.walk(one)
    )
    if not (hands_out and isinstance(outer, ast.While) and isinstance(function, ast.FunctionDef)):
        return
    if not (isinstance(outer.test, ast.Constant) and outer.test.value):
        return
    found.endless.append((tree, outer))
    found.handed_out += [Place(*each) for each in seen_sites(tree, function)]


def _held_by(tree: Tree, container: ast.expr, key: Key, found: Flow) -> list[Place]:
    """Return where a container is read that is given a thing: by its variable, in the same function or class."""
    name = dotted(container)
    if name is None:
        found.escapes = True
        return []
    scope = tree.owner(container, name) if "." in name else tree.scope(container)
    if isinstance(scope, ast.ClassDef) and has_unknown_bases(tree, scope):
        found.escapes = True
    return [Place(tree, each, key) for each in reads(tree, scope, name) if each is not container]


def _bound(tree: Tree, node: ast.AST, found: Flow) -> list[tuple[Tree, ast.AST]]:
    """Return where the variables are read that are given an expression."""
    uses: list[tuple[Tree, ast.AST]] = []
    for scope, name, binding in tree_values(tree).get(node, ()):
        if isinstance(scope, ast.ClassDef) and name.startswith("self."):
            found.escapes |= has_unknown_bases(tree, scope)
            uses += read_outside(tree, scope, name, node)
        uses += [(tree, each) for each in reads(tree, scope, name) if in_force(tree, binding, each)]
    found.escapes |= node not in tree_values(tree)
    return uses


def _argument(tree: Tree, node: ast.AST, found: Flow) -> list[tuple[Tree, ast.AST]]:  # noqa: PLR0911 - one case a callee
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
    found.entries[named].append(None)
    found.handed.add(call)
    arguments = next((each for each in ast.walk(named.args) if isinstance(each, ast.arg) and each.arg == name), None)
    inside: list[tuple[Tree, ast.AST]] = [
        (there, each) for each in there.read.get(name, ()) if is_parameter(there, each, arguments)
    ]
    return [*inside, (tree, call)] if _is_gone_through(there, named) else inside


def _is_gone_through(tree: Tree, function: ast.AST) -> bool:
    """Whether it makes an object of a class of the project that is gone through in place of what it is given."""
    owner = tree.parents.get(function)
    is_maker = isinstance(function, ast.FunctionDef) and function.name == "__init__"
    return is_maker and isinstance(owner, ast.ClassDef) and "__iter__" in tree.bindings.get(owner, {})


def _is_closed(tree: Tree, entries: list[ast.AST | None], there: Tree, site: ast.AST) -> bool:
    """Whether a call passes literals by which it does not come to where a function gets hold of what is followed."""
    if not isinstance(site, ast.Call):
        return False
    return bool(entries) and all(each is not None and is_closed_to(tree, each, there, site) for each in entries)


def _begun_as_loader(tree: Tree, call: ast.Call) -> list[tuple[Tree, ast.AST]] | None:
    """Return the calls of a DataLoader's subclass whose ``__init__`` hands its arguments on by ``super().__init__``."""
    function, owner = tree.function(call), tree.class_of(call)
    match call.func:
        case ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr="__init__"):
            is_loader = owner is not None and any(resolve(tree, each) in LOADERS for each in owner.bases)
            if is_loader and isinstance(function, ast.FunctionDef) and function.name == "__init__":
                return [*seen_sites(tree, function)]
    return None


def _returned(tree: Tree, statement: ast.AST, place: int | None, found: Flow) -> list[tuple[Tree, ast.AST]]:
    """Return the calls of the function that a return stands in; of a tuple, the variables that take this part."""
    function = tree.function(statement)
    if not isinstance(function, ast.FunctionDef):
        found.escapes = True
        return []
    sites: list[tuple[Tree, ast.AST]] = [(tree, each) for each in some_sites(tree, function)]
    found.escapes |= call_sites(tree, function) is None
    if tree.callers is not None and tree.class_of(function) is None:
        sites += tree.callers(function)
    sites = [each for each in sites if not _is_closed(tree, found.entries[function], *each)]
    for there, site in sites:
        if (outer := there.function(site)) is not None:
            found.entries[outer].append(site)
    if place is None:
        return sites
    uses: list[tuple[Tree, ast.AST]] = []
    for there, site in sites:
        parent = there.parents[site]
        target = parent.targets[0] if isinstance(parent, ast.Assign) and len(parent.targets) == 1 else None
        if isinstance(target, ast.Tuple) and place < len(target.elts):
            uses += taken(there, target.elts[place])
        else:
            found.escapes = True
    return uses
