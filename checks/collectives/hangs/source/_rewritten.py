"""Code that one rank alone comes to by a test, written as a diff for all ranks."""

from __future__ import annotations

import ast
import re

from ddpdoctor.check import NO_PYTHON

RANK = re.compile(r"rank|main|master|process_(?:zero|index)|global_zero|chief", re.IGNORECASE)
"""What tells that a term of a test is about the rank."""
UNDER = "under `if "
LEFT_BEFORE = re.compile(r"where `(.+)` is false")
"""How a test is told that all other ranks leave by, before a call."""
MADE_UNDER = re.compile(r"in (.+)\(\), which is made under `if (.+)`")
"""How a test is told that the whole function stands under."""


def rewritten(guard: str, code: str, result: str = "") -> str:
    """Return how code leaves a test of the rank, as a diff: what else was tested stays around it.

    ``result`` names what the code returns, where one rank prints that.
    """
    if (left := LEFT_BEFORE.fullmatch(guard)) is not None:
        of_rank, others = _parted(left[1], ast.Or)
        return f"-if {left[1]}:\n+if {others}:" if others else f"+{code}   # on all ranks, before `if {of_rank}`"
    if (made := MADE_UNDER.fullmatch(guard)) is not None:
        name, test = made.groups()
        return f"-if {test}:\n-    def {name}(...):\n+def {name}(...):   # on all ranks"
    if not guard.startswith(UNDER):
        return f"+{code}   # on all ranks"
    test = shown(guard).removeprefix("if ")
    of_rank, others = _parted(test)
    line = "+    " if others else "+"
    around = f"+if {others}:\n" if others else ""
    if not result:
        return f"-if {test}:\n-    {code}\n{around}{line}{code}"
    printed = f"{line}if {of_rank}:\n{line}    print({result})"
    return f"-if {test}:\n-    print({code})\n{around}{line}{result} = {code}\n{printed}"


def _parted(test: str, joined: type[ast.boolop] = ast.And) -> tuple[str, str]:
    """Return the terms of a test that are about the rank, and those that are not; all of it as the first if unsure.

    Where none has a word for the rank, those are not that hold once in so many steps, which all ranks count alike.
    """
    word = " and " if joined is ast.And else " or "
    try:
        tree = ast.parse(test, mode="eval").body
    except NO_PYTHON:
        return test, ""
    if not isinstance(tree, ast.BoolOp) or not isinstance(tree.op, joined):
        return test, ""
    terms = [ast.unparse(each) for each in tree.values]
    of_rank = [each for each in terms if RANK.search(each)]
    of_rank = of_rank or [ast.unparse(each) for each in tree.values if not _holds_every(each)]
    others = [each for each in terms if each not in of_rank]
    return (word.join(of_rank), word.join(others)) if of_rank else (test, "")


def of_the_first(guard: str) -> str:
    """Return the test that holds on the first rank, of one that holds on all others; empty of any other guard."""
    try:
        test = ast.parse(shown(guard).removeprefix("if "), mode="eval").body
    except NO_PYTHON:
        return ""
    match test:
        case ast.Compare(left=left, ops=[ast.Gt() | ast.NotEq()], comparators=[ast.Constant(value=0)]):
            return f"{ast.unparse(left)} == 0"
        case ast.Compare(left=left, ops=[ast.NotIn()], comparators=[firsts]):
            return f"{ast.unparse(left)} in {ast.unparse(firsts)}"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return ast.unparse(operand)
    return ""


def _holds_every(term: ast.expr) -> bool:
    """Whether a term is of the kind ``step % 5 == 4``."""
    match term:
        case ast.Compare(left=ast.BinOp(op=ast.Mod()), comparators=[ast.Constant() | ast.UnaryOp() | ast.BinOp()]):
            return True
    return False


def shown(guard: str) -> str:
    """Return a test as it stands in the source, other guards in words."""
    return guard.removeprefix("under `").removesuffix("`") if guard.startswith("under `") else guard
