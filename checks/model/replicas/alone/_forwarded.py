"""A helper of the project that calls the wrapped model it is handed, where one rank alone comes to the helper."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddpdoctor.check import forwards, taken

if TYPE_CHECKING:
    from ddpdoctor.check import Guard, Script, Tree, Wrap


@dataclass(frozen=True, slots=True)
class Forwarded:
    """A call that hands a wrapped model to a helper, the test that lets one rank come there, and the forward in it."""

    call: ast.Call
    model: ast.expr
    guard: Guard
    wrap: Wrap
    tree: Tree
    forward: ast.Call

    @property
    def has_wrapper(self) -> bool:
        """Whether the helper counts on a wrapper: it asks it for what is within."""
        function = self.tree.function(self.forward)
        name = ast.unparse(self.forward.func)
        inner = (each for each in ast.walk(function or self.forward) if isinstance(each, ast.Attribute))
        return any(each.attr == "module" and ast.unparse(each.value) == name for each in inner)


def forwarded(script: Script) -> Iterator[Forwarded]:
    """Yield the helpers that one rank alone has call a model which is certain to be one of DistributedDataParallel."""
    for call in script.nodes(ast.Call):
        guard = script.one_rank_guard(call)
        if guard is None or _is_otherwise(script, guard):
            continue
        for model, there in taken(script.tree, call):
            wrap = script.wrap(model) if isinstance(model, (ast.Name, ast.Attribute)) else None
            if wrap is None or not wrap.sure or wrap.kind != "DistributedDataParallel":
                continue
            inner = ((tree, each) for tree, each in forwards(there) if not script.guards_in(tree, each))
            if (first := next(inner, None)) is not None:
                yield Forwarded(call, model, guard, wrap, *first)
                break


def _is_otherwise(script: Script, guard: Guard) -> bool:
    """Whether the other ranks have a branch of their own, in which they can call the model as well."""
    branch = script.tree.parents.get(guard.test)
    return not isinstance(branch, ast.If) or bool(branch.orelse)
