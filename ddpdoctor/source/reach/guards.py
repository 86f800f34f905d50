"""What must hold for a line to be reached: the tests around it, early returns before it, and those of its callers."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddpdoctor.source.reach.alone import is_alone
from ddpdoctor.source.reach.rankish import is_rankish
from ddpdoctor.source.reach.who import ONE_RANK, other, who
from ddpdoctor.source.text.names import resolve
from ddpdoctor.source.text.tree import FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddpdoctor.source.text.tree import Tree

LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)
EXITS = {"sys.exit", "exit", "quit", "os._exit"}


@dataclass(frozen=True, slots=True)
class Guard:
    """A test that must be true, or false where ``holds`` is, for a line to be reached."""

    test: ast.expr
    holds: bool

    @property
    def words(self) -> str:
        """What lets a rank come to the line, as a part of a sentence."""
        test = " ".join(ast.unparse(self.test).split())
        return f"under `if {test}`" if self.holds else f"where `{test}` is false"

    def who(self, tree: Tree) -> str | None:
        """Return which ranks it lets through; where an ``or`` is false, all its parts are."""
        match self.test if not self.holds else None:
            case ast.BoolOp(op=ast.Or(), values=parts):
                sides = {other(who(tree, part)) for part in parts} - {None}
                return ONE_RANK if ONE_RANK in sides else next(iter(sides), None)
        side = who(tree, self.test)
        return side if self.holds else other(side)

    def is_alone(self, tree: Tree) -> bool:
        """Whether it lets through where there is one process alone, and no rank of several."""
        return is_alone(tree, self.test, holds=self.holds)

    def is_rankish(self, tree: Tree) -> bool:
        """Whether it can depend on the rank."""
        return is_rankish(tree, self.test)


def guards(tree: Tree, node: ast.AST) -> Iterator[Guard]:
    """Yield what guards a node within its function, innermost first."""
    child = node
    for parent in tree.above(node):
        if isinstance(child, ast.stmt):
            yield from _left_before(tree, child)
        match parent:
            case ast.If(test=test, body=body, orelse=orelse) | ast.While(test=test, body=body, orelse=orelse):
                if child in body:
                    yield Guard(test, holds=True)
                elif child in orelse and isinstance(parent, ast.If):
                    yield Guard(test, holds=False)
            case ast.IfExp(test=test, body=body, orelse=orelse) if child is not test:
                yield Guard(test, holds=child is body)
            case ast.BoolOp(op=operator, values=parts):
                for part in parts[: parts.index(child)] if child in parts else ():
                    yield Guard(part, holds=isinstance(operator, ast.And))
        if isinstance(parent, FUNCTIONS):
            return
        child = parent


def made_by_one_rank(tree: Tree, node: ast.AST) -> Iterator[tuple[ast.AST, Guard]]:
    """Yield the functions around a node that one rank alone makes, with the test that lets it: others have none."""
    for function in tree.above(node):
        if isinstance(function, FUNCTIONS):
            guard = next((each for each in guards(tree, function) if each.who(tree) == ONE_RANK), None)
            if guard is not None:
                yield function, guard


def _left_before(tree: Tree, statement: ast.stmt) -> Iterator[Guard]:
    """Yield the tests before a statement, in its block, that leave the block; of asserts those that want one process.

    What others assert, as that a rank is below the world size, holds on all.
    """
    block = tree.block(statement)
    for each in block[: block.index(statement)]:
        if isinstance(each, ast.Assert) and _wants_one_process(tree, each.test):
            yield Guard(each.test, holds=True)
        if isinstance(each, ast.If):
            if leaves(tree, each.body) and not each.orelse:
                yield Guard(each.test, holds=False)
            elif each.orelse and leaves(tree, each.orelse) and not leaves(tree, each.body):
                yield Guard(each.test, holds=True)


def _wants_one_process(tree: Tree, test: ast.expr) -> bool:
    return is_alone(tree, test, holds=True) or NO_RANK.search(ast.unparse(test)) is not None


NO_RANK = re.compile(r"rank == -1$")
"""What a program says of itself that no launcher has started."""


def leaves(tree: Tree, block: list[ast.stmt]) -> bool:
    """Whether what follows a block is not reached from it."""
    return isinstance(block[-1], LEAVES) or ends(tree, block[-1])


def ends(tree: Tree, statement: ast.stmt) -> bool:
    """Whether a statement ends the program: it raises, or calls what does so."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(statement, ast.Raise) or (isinstance(call, ast.Call) and resolve(tree, call.func) in EXITS)
