"""Models that FSDP shards, on one way of the program or on all."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddpdoctor.source.arguments import keyword
from ddpdoctor.source.reach.guards import Guard, guards
from ddpdoctor.source.text.names import resolve
from ddpdoctor.source.training.wraps.wrapped import SAME_OBJECT, part_of, possible
from ddpdoctor.source.values.bound import answers, values
from ddpdoctor.source.values.handed import handed
from ddpdoctor.source.vocabulary import FSDP

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddpdoctor.source.text.bindings import Binding
    from ddpdoctor.source.text.tree import Tree

DEPTH = 6


@dataclass(frozen=True, slots=True)
class Shard:
    """A call of FullyShardedDataParallel that a model can come from, and the tests on the way to it."""

    tree: Tree
    call: ast.Call
    guards: tuple[Guard, ...]

    @property
    def is_nested(self) -> bool:
        """Whether it shards parts of the model for themselves, which gather where the whole is not asked."""
        policy = keyword(self.call, "auto_wrap_policy")
        return policy is not None and not (isinstance(policy, ast.Constant) and policy.value is None)


def shards(tree: Tree, node: ast.expr, depth: int = DEPTH) -> Iterator[Shard]:
    """Yield the calls of FSDP that can have made what an expression holds where it stands."""
    if not depth:
        return
    match node:
        case ast.Call(func=ast.Attribute(value=inner, attr=name)) if name in SAME_OBJECT:
            yield from shards(tree, inner, depth - 1)
        case ast.Call(func=function, args=args):
            path = resolve(tree, function)
            if path == FSDP:
                yield Shard(tree, node, tuple(guards(tree, node)))
            elif path == "torch.compile" and args:
                yield from shards(tree, args[0], depth - 1)
            else:
                yield from (each for pair in answers(tree, function) for each in shards(*pair, depth - 1))
        case ast.IfExp(body=body, orelse=orelse):
            yield from (each for part in (body, orelse) for each in shards(tree, part, depth - 1))
        case ast.Name() | ast.Attribute():
            bindings = values(tree, node)
            parameters = [each for each in bindings if isinstance(each.node, ast.arg)]
            for each in possible(tree, bindings, node) or parameters[:1]:
                yield from _of_binding(tree, each, depth)


def _of_binding(tree: Tree, binding: Binding, depth: int) -> Iterator[Shard]:
    if isinstance(binding.node, ast.arg):
        for there, given in handed(tree, binding) or ():
            yield from shards(there, given, depth - 1)
    elif binding.value is not None:
        yield from shards(tree, binding.value, depth - 1)
    elif binding.whole is not None:
        for there, answer in answers(tree, binding.whole.func):
            part = part_of(answer, binding.part)
            if part is not None:
                yield from shards(there, part, depth - 1)
