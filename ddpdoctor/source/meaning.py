"""What the names of a Python file mean: which function a call calls, what a variable holds."""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ddpdoctor.source.text import names
from ddpdoctor.source.text.names import LONGEST
from ddpdoctor.source.text.tree import FUNCTIONS, Function, Kind, Tree
from ddpdoctor.source.text.written import Written
from ddpdoctor.source.training.loader_kinds import loader_kind
from ddpdoctor.source.training.wraps import wrapped
from ddpdoctor.source.values import bound, parsed
from ddpdoctor.source.values.arguments import argument
from ddpdoctor.source.values.made import is_made
from ddpdoctor.source.values.sites import call_sites, some_sites

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddpdoctor.source.training.wraps.wrapped import Wrap


@dataclass
class Meaning(Written):
    """A file whose names are looked up: in itself, and in those of its project that it imports."""

    @cached_property
    def tree(self) -> Tree:
        """The tree with parents and bindings."""
        return Tree(self.module)

    @cached_property
    def _calls(self) -> dict[str, list[ast.Call]]:
        found: dict[str, list[ast.Call]] = defaultdict(list)
        for node in self.tree.of(ast.Call):
            if path := self.resolve(node.func):
                found[path].append(node)
            if (kind := loader_kind(self.tree, node.func, path)) is not None:
                found[kind].append(node)
        return found

    def resolve(self, node: ast.expr) -> str | None:
        """Return the full name of what an expression names (``torch.distributed.barrier``); None if not certain."""
        return names.resolve(self.tree, node)

    def calls(self, *paths: str) -> list[ast.Call]:
        """Return the calls of the things of these full names, in the order of the file."""
        found = [call for path in paths for call in self._calls.get(path, ())]
        return sorted(found, key=lambda call: (call.lineno, call.col_offset))

    def nodes(self, *kinds: type[Kind]) -> list[Kind]:
        """Return the nodes of these kinds; those of one kind in the order of the file."""
        return [node for kind in kinds for node in self.tree.of(kind)]

    def variable(self, node: ast.expr) -> str | None:
        """Return the environment variable whose text an expression holds, unconverted."""
        return bound.variable(self.tree, self.value(node))

    def value(self, node: ast.expr) -> ast.expr:
        """Return the expression that a variable was given, where it is given only one; else the node itself."""
        return bound.value(self.tree, node)

    @staticmethod
    def origins(tree: Tree, node: ast.expr) -> list[tuple[Tree, ast.expr]]:
        """Return what a name of a file can hold, through other names and what callers pass, each with its own tree."""
        return list(bound.origins(tree, node))

    @staticmethod
    def value_in(tree: Tree, node: ast.expr) -> ast.expr:
        """Return the expression that a variable of another file was given."""
        return bound.value(tree, node)

    @staticmethod
    def wrap_in(tree: Tree, node: ast.expr) -> Wrap | None:
        """Return how the model is wrapped that an expression of a file holds; None if it is not, or not certainly."""
        return wrapped.wrap_at(tree, node)

    def constant(self, node: ast.expr) -> ast.Constant | None:
        """Return the literal that an expression is, or that all callers of the project pass for a parameter."""
        value = self.value(node)
        if isinstance(value, ast.Constant):
            return value
        bindings = self.tree.lookup(value.id, value) if isinstance(value, ast.Name) else []
        parameter = bindings[0].node if len(bindings) == 1 else None
        function = self.function(parameter) if isinstance(parameter, ast.arg) else None
        if not isinstance(function, ast.FunctionDef) or not isinstance(parameter, ast.arg) or self.tree.callers is None:
            return None
        sites = call_sites(self.tree, function)
        calls = [*sites, *(site for _, site in self.tree.callers(function))] if sites is not None else []
        passed = [argument(each, function, parameter.arg, spawned=False) for each in calls]
        literals = [each for each in passed if isinstance(each, ast.Constant)]
        same = bool(literals) and len(literals) == len(passed) and len({each.value for each in literals}) == 1
        return literals[0] if same else None

    def held(self, node: ast.expr) -> ast.expr | None:
        """Return the expression that a variable was last given before a node, if that is the same on every way."""
        found = wrapped.possible(self.tree, bound.values(self.tree, node), node)
        return found[0].value if len(found) == 1 else None

    def can_hold(self, node: ast.expr) -> list[ast.expr | None]:
        """Return what a variable can hold where a node stands, on one way or another; None for what is not seen."""
        return [each.value for each in wrapped.possible(self.tree, bound.values(self.tree, node), node)]

    def all_calls(self) -> dict[str, list[ast.Call]]:
        """Return all calls of things whose full name is known, by that name."""
        return self._calls

    def names_class(self, node: ast.expr) -> ast.ClassDef | None:
        """Return the class of the file that an expression names."""
        found = [each.node for each in self.tree.lookup(node.id, node)] if isinstance(node, ast.Name) else []
        return found[0] if len(found) == 1 and isinstance(found[0], ast.ClassDef) else None

    def names_function(self, node: ast.expr) -> ast.FunctionDef | None:
        """Return the function of the file that a name names."""
        named = bound.function_named(self.tree, node) if isinstance(node, ast.Name) else None
        return named if isinstance(named, ast.FunctionDef) else None

    def options(self) -> dict[str, ast.Call]:
        """Return the calls of ``add_argument``, by the attribute that they fill."""
        return parsed.options(self.tree)

    def is_parsed(self, node: ast.expr) -> bool:
        """Whether a name holds what an argument parser returned, and nothing else."""
        return isinstance(node, ast.Name) and parsed.is_parsed(self.tree, node)

    def made_by(self, node: ast.expr, *paths: str) -> ast.Call | None:
        """Return the call that made what an expression holds, on every way, if it is of one of these full names.

        What ``model.to(device)`` and its like return is the model.
        """
        held: ast.expr | None = node
        for _ in range(LONGEST):
            match held:
                case ast.Name() | ast.Attribute():
                    held = self.held(held)
                case ast.Call(func=ast.Attribute(value=inner, attr=name)) if name in wrapped.SAME_OBJECT:
                    held = inner
                case _:
                    break
        is_one = isinstance(held, ast.Call) and self.resolve(held.func) in paths
        return held if is_one and isinstance(held, ast.Call) else None

    def is_a(self, node: ast.expr, *paths: str) -> bool:
        """Whether an object is of a class of these full names, made here or passed on by whoever calls."""
        return self.made_by(node, *paths) is not None or is_made(self.tree, node, paths)

    def is_assigned(self, node: ast.Attribute) -> bool:
        """Whether the file stores something in this attribute of this object."""
        return bool(bound.values(self.tree, node))

    @staticmethod
    def names_in(tree: Tree, node: ast.expr) -> str | None:
        """Return the full name of what an expression of another file names."""
        return names.resolve(tree, node)

    def is_bound_once(self, name: str) -> bool:
        """Whether one variable of the file has this name, and is given one value."""
        found = [bound[name] for bound in self.tree.bindings.values() if name in bound]
        return len(found) == 1 and len(found[0]) == 1

    def sites(self, function: Function) -> list[ast.Call]:
        """Return calls of a function of the file, as far as they are certain."""
        return some_sites(self.tree, function)

    def defined(self, node: ast.expr) -> tuple[Tree, Function] | None:
        """Return the function of the project that an expression names, and the tree of its file."""
        return bound.definition(self.tree, node)

    @staticmethod
    def defined_in(tree: Tree, node: ast.expr) -> tuple[Tree, Function] | None:
        """Return the function of the project that an expression of another file names, and the tree of its file."""
        return bound.definition(tree, node)

    @staticmethod
    def sites_in(tree: Tree, function: Function) -> list[tuple[Tree, ast.Call]]:
        """Return calls of a function of a file of the project, as far as they are certain, each with its tree."""
        sites = [(tree, each) for each in some_sites(tree, function)]
        if not isinstance(function, ast.FunctionDef) or tree.callers is None or tree.relays is None:
            return sites
        return [*sites, *tree.callers(function), *tree.relays(function)]

    def returned(self, call: ast.Call) -> list[ast.expr]:
        """Return the expressions that the function of the project returns that a call calls."""
        return [each for _, each in bound.answers(self.tree, call.func)]

    def called(self, call: ast.Call) -> Function | None:
        """Return the function of the file that a call calls."""
        return bound.function_named(self.tree, call.func)

    def function(self, node: ast.AST) -> Function | None:
        """Return the function that a node stands in."""
        return self.tree.function(node)

    def inside(self, *roots: ast.AST) -> Iterator[ast.AST]:
        """Yield what stands in these nodes, in the order of the source, but not in functions that they define."""
        for root in roots:
            yield root
            for child in ast.iter_child_nodes(root):
                if not isinstance(child, (*FUNCTIONS, ast.ClassDef)):
                    yield from self.inside(child)
