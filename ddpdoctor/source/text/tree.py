"""A syntax tree with what a reader of it needs: parents, scopes, and what is bound to each name in them."""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from ddpdoctor.source.text.bindings import BINDERS, WITHOUT_PLACE, Binding, bound, dotted
from ddpdoctor.source.text.steps import STEPS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Defined = ast.FunctionDef | ast.ClassDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
SCOPES = (*FUNCTIONS, ast.ClassDef, ast.Module)
OPENING = frozenset(SCOPES)
Kind = TypeVar("Kind", bound=ast.AST)
BLOCKS = ("body", "orelse", "finalbody")


@dataclass
class Tree:
    """A module's tree. Made once for a file; what is asked of it is worked out once."""

    module: ast.Module
    nodes: list[ast.AST] = field(default_factory=list)
    parents: dict[ast.AST, ast.AST] = field(default_factory=dict)
    bindings: dict[ast.AST, dict[str, list[Binding]]] = field(default_factory=dict)
    attributes: dict[tuple[ast.AST | None, str], list[Binding]] = field(default_factory=dict)

    depth: int = 0
    read: dict[str, list[ast.Name]] = field(default_factory=dict)
    members: dict[str, list[ast.Attribute]] = field(default_factory=dict)
    sites: dict[ast.AST, list[ast.Call] | None] = field(default_factory=dict)
    abroad: Callable[[str], tuple[Tree, Defined] | None] | None = None
    """Finds what the file imports from others of its project, by the full name; None where no project is known."""
    callers: Callable[[ast.FunctionDef], list[tuple[Tree, ast.Call]]] | None = None
    """Finds who calls a function of the file from others, in trainings of several ranks; None as above."""
    relays: Callable[[ast.FunctionDef], list[tuple[Tree, ast.Call]]] | None = None
    """The same of files that do not train, and whose own functions trainings call; None as above."""
    stored: Callable[[str], list[tuple[Tree, ast.expr]]] | None = None
    """Finds what the files around this one store in an option of a name (``args.is_main = rank == 0``); as above."""
    keyed: Callable[[str], list[tuple[Tree, ast.expr]]] | None = None
    """Finds what they store under a key in a dict of options (``opt["rank"] = get_rank()``); as above."""
    starred: Callable[[str], str | None] | None = None
    """Finds the full name of what ``from helpers import *`` takes of another file of the project; as above."""
    named: dict[ast.AST, str | None] = field(default_factory=dict)
    """The full names of what expressions name, once somebody asked."""
    rankish: dict[tuple[ast.AST, int, str], bool] = field(default_factory=dict)
    """Whether expressions can depend on the rank, by how far they are followed and the words that say so; as above."""
    sides: dict[tuple[ast.AST, int], str | None] = field(default_factory=dict)
    """Which ranks tests let through, by how far they are followed; as above."""
    facts: dict[tuple[ast.AST, int], str | None] = field(default_factory=dict)
    """What numbers are, as the rank, by how far they are followed; as above."""
    holders: dict[ast.AST, list[tuple[ast.AST | None, str, Binding]]] = field(default_factory=dict)
    """What each expression is bound to, once somebody asked."""
    flows: dict[ast.AST, object] = field(default_factory=dict)
    """Where what a call makes goes, which is followed once."""
    _scopes: dict[ast.AST, ast.AST] = field(default_factory=dict)
    _kinds: dict[type[ast.AST], list[ast.AST]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        """Walk the tree once."""
        self._walk()
        names: dict[ast.AST, dict[str, list[Binding]]] = defaultdict(lambda: defaultdict(list))
        attributes: dict[tuple[ast.AST | None, str], list[Binding]] = defaultdict(list)
        for node in self.nodes:
            for target, binding in bound(node) if node.__class__ in BINDERS else ():
                scope = self.scope(node)
                if isinstance(target, str):
                    owner: ast.AST = self.module if target in self._globals.get(scope, ()) else scope
                    names[owner][target].append(binding)
                elif (text := dotted(target)) is not None:
                    attributes[self.owner(node, text), text].append(binding)
        for name in self.of(ast.Name):
            if isinstance(name.ctx, ast.Load):
                self.read.setdefault(name.id, []).append(name)
        for member in self.of(ast.Attribute):
            self.members.setdefault(member.attr, []).append(member)
        self.bindings, self.attributes = {scope: dict(each) for scope, each in names.items()}, dict(attributes)

    def _walk(self) -> None:  # one loop without calls: it is half of the time of a run
        waiting: list[tuple[ast.AST, ast.AST, int]] = [(self.module, self.module, 0)]
        nodes, parents, scopes, kinds = self.nodes, self.parents, self._scopes, self._kinds
        while waiting:
            node, scope, depth = waiting.pop()
            kind = node.__class__
            nodes.append(node)
            kinds[kind].append(node)
            scopes[node] = scope
            self.depth = max(self.depth, depth)
            below = []
            for name in kind._fields:
                value = getattr(node, name, None)
                for child in value if value.__class__ is list else (value,):
                    if isinstance(child, ast.AST) and child.__class__ not in WITHOUT_PLACE:
                        parents[child] = node
                        below.append((child, scope, depth + 1))
            if kind in OPENING:
                below = [(child, node if _opens(node, child) else around, deep) for child, around, deep in below]
            waiting += reversed(below)

    def of(self, kind: type[Kind]) -> list[Kind]:
        """Return the nodes of exactly this kind, in the order of the file: each stands under its own class."""
        return self._kinds.get(kind, [])  # type: ignore[return-value]

    @cached_property
    def _globals(self) -> dict[ast.AST, set[str]]:
        found: dict[ast.AST, set[str]] = defaultdict(set)
        declared: list[ast.Global | ast.Nonlocal] = [*self.of(ast.Global), *self.of(ast.Nonlocal)]
        for node in declared:
            found[self.scope(node)].update(node.names)
        return found

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield what a node stands in, innermost first."""
        while (parent := self.parents.get(node)) is not None:
            yield parent
            node = parent

    def scope(self, node: ast.AST) -> ast.AST:
        """Return the function, class or module whose names a node reads and binds.

        A decorator, a default and a parameter's annotation belong to what is around their function.
        """
        return self._scopes[node]

    def function(self, node: ast.AST) -> Function | None:
        """Return the function that a node stands in; None at the top of the module."""
        return next((each for each in self.above(node) if isinstance(each, FUNCTIONS)), None)

    def class_of(self, node: ast.AST) -> ast.ClassDef | None:
        """Return the class that a node stands in."""
        return next((each for each in self.above(node) if isinstance(each, ast.ClassDef)), None)

    def owner(self, node: ast.AST, text: str) -> ast.AST | None:
        """Return whose an attribute is: a class for ``self.x``, the file for any other."""
        return self.class_of(node) if text.startswith(("self.", "cls.")) else None

    def statement(self, node: ast.AST) -> ast.stmt | None:
        """Return the statement that a node is part of."""
        return next((each for each in (node, *self.above(node)) if isinstance(each, ast.stmt)), None)

    def lookup(self, name: str, node: ast.AST) -> list[Binding]:
        """Return what a name that is read at a node can be bound to; empty where nothing in the file binds it."""
        STEPS.take()
        scope: ast.AST = self.scope(node)
        first = scope
        while True:
            found = self.bindings.get(scope, {}).get(name)
            if found and (scope is first or not isinstance(scope, ast.ClassDef)):
                return found
            if scope is self.module:
                return []
            scope = self.scope(scope)

    def block(self, statement: ast.stmt) -> list[ast.stmt]:
        """Return the list of statements that a statement stands in."""
        parent = self.parents.get(statement)
        for name in (*BLOCKS, "handlers", "cases"):
            each = getattr(parent, name, None)
            if isinstance(each, list) and statement in each:
                return each
        return [statement]


def _opens(node: ast.AST, child: ast.AST) -> bool:
    """Whether a child reads and binds the names of its parent, a function or a class, and not of what is around it."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return isinstance(child, (ast.stmt, ast.arguments))
    return isinstance(node, (ast.Lambda, ast.Module)) or (
        isinstance(node, ast.ClassDef) and isinstance(child, ast.stmt)
    )
