"""Which lines of a script only some ranks reach."""

from __future__ import annotations

import ast
from typing import NamedTuple

from ddpdoctor.source.syntax import parsed

RANK_WORDS = ("rank", "is_main", "is_master", "main_process")


class RankBlock(NamedTuple):
    """The body of an ``if`` whose test depends on the rank: the test, the file, the first line and the last."""

    test: str
    file: str
    first: int
    last: int

    def holds(self, file: str, line: int) -> bool:
        """Whether a line stands in it."""
        return file == self.file and self.first <= line <= self.last


def rank_block(file: str, line: int) -> RankBlock | None:
    """Return the innermost such body around a line."""
    tree = parsed(file)
    names = _rank_names(tree)
    found = None
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and node.body[0].lineno <= line <= (node.body[-1].end_lineno or 0):
            used = {each.id for each in ast.walk(node.test) if isinstance(each, ast.Name)}
            test = ast.unparse(node.test)
            if used & names or any(word in test.lower() for word in RANK_WORDS):
                found = RankBlock(test, file, node.body[0].lineno, node.body[-1].end_lineno or 0)
    return found


def rank_condition(file: str, line: int) -> str:
    """Return the test of the innermost ``if`` around a line that depends on the rank; empty where there is none."""
    block = rank_block(file, line)
    return block.test if block else ""


def are_alternatives(file: str, one: int, other: int) -> bool:
    """Whether two lines stand in the two branches of one ``if``."""
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.If) and node.orelse:
            sides = [(block[0].lineno, block[-1].end_lineno or 0) for block in (node.body, node.orelse)]
            within = [{line for line in (one, other) if first <= line <= last} for first, last in sides]
            if {one} in within and {other} in within and one != other:
                return True
    return False


def _rank_names(tree: ast.Module) -> set[str]:
    """Return the variables that are assigned from something about the rank."""
    return {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and "rank" in ast.unparse(node.value).lower()
        for target in node.targets
        if isinstance(target, ast.Name)
    }
