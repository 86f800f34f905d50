"""A file that a rank did not find, and that another rank makes a few lines before, as the source says."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddpdoctor.check import Site, frames_in, one_rank_only, statement_at, tree_of

if TYPE_CHECKING:
    from ddpdoctor.check import Failed, Tree

PATH = re.compile(r"path|file|dir|cache|root|folder|corpus", re.IGNORECASE)
MAKES = re.compile(
    r"save|write|dump|make|build|prepare|create|download|generate|process|tokeni|convert|export|extract|copy|open|cache"
    r"|fetch|unpack|index",
    re.IGNORECASE,
)
WAITS = re.compile(
    r"barrier|wait|first|reduce|gather|broadcast|sync|scatter|DistributedDataParallel|DDP|FSDP|fully_shard|\.prepare$|init"
    r"|setup|sleep|lock|exists|is_?file",
    re.IGNORECASE,
)
"""Names of calls in which a rank waits for the others, or for the file."""
SHORTEST = 4  # letters of a text that tells a path


@dataclass(frozen=True, slots=True)
class Made:
    """What makes the file on one rank, in words under which condition, where, and where the other one looks for it."""

    code: str
    guard: str
    site: Site
    read: Site


def made_by_one(first: Failed) -> Made | None:
    """Return what one rank calls with the same path in a function that led to the error, if nothing waits in between.

    None of rank 0, which makes it by itself where anybody does.
    """
    if first.error != "FileNotFoundError" or not first.rank:
        return None
    for frame in frames_in(first.text):
        tree = tree_of(frame.file) if frame.is_users else None
        statement = statement_at(tree, frame.line) if tree is not None else None
        if tree is None or statement is None or one_rank_only(frame.file, frame.line):
            continue
        looked_for = set(map(ast.unparse, _paths(tree, statement, first.said)))
        for call in _before(tree, statement):
            guard = one_rank_only(frame.file, call.lineno) if MAKES.search(ast.unparse(call.func)) else ""
            if guard and looked_for & set(map(ast.unparse, _paths(tree, call, first.said))):
                site = Site(frame.file, call.lineno, frame.function)
                code = " ".join(ast.unparse(call).split())
                return Made(code, guard, site, site._replace(line=frame.line))
    return None


def _before(tree: Tree, statement: ast.stmt) -> list[ast.Call]:
    """Return the calls before a statement in its function, latest first, back to one in which the ranks can wait."""
    scope, found = tree.scope(statement), []
    calls = [each for each in tree.of(ast.Call) if tree.scope(each) is scope and each.lineno < statement.lineno]
    for call in sorted(calls, key=lambda each: (each.lineno, each.col_offset), reverse=True):
        if WAITS.search(ast.unparse(call.func)):
            break
        found.append(call)
    return found


def _paths(tree: Tree, node: ast.AST, said: str) -> Iterator[ast.expr]:
    """Yield what calls within a node are given that is the path which an error speaks of, by its texts or its name."""
    for call in ast.walk(node):
        if isinstance(call, ast.Call):
            given = [*call.args, *(each.value for each in call.keywords)]
            yield from (each for each in given if _is_path(tree, each, said))


def _is_path(tree: Tree, given: ast.expr, said: str) -> bool:
    """Whether a text of an expression, or of what a variable can hold, is in what an error says; else by the name."""
    held = tree.lookup(given.id, given) if isinstance(given, ast.Name) else []
    values = [given, *(each.value for each in held if each.value is not None)]
    texts = {each.value for value in values for each in ast.walk(value) if isinstance(each, ast.Constant)}
    known = [each for each in texts if isinstance(each, str) and len(each) >= SHORTEST]
    if known:
        return any(each in said for each in known)
    named = isinstance(given, ast.Name | ast.Attribute)
    return named and PATH.search(ast.unparse(given).rpartition(".")[2]) is not None
