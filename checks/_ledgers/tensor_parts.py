"""Parts of one tensor of which some are added up over the ranks, and quotients of those and of the others."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from .._evaluation.counts import bare

DEEPEST = 4  # names that stand for another expression


@dataclass(frozen=True, slots=True)
class Taken:
    """What a subscript takes of a tensor in one dimension, by constant places; ``ends`` None is its end."""

    begins: int
    ends: int | None

    def has(self, place: int) -> bool | None:
        """Whether a place is among it; None where that needs the tensor's length."""
        if place < 0:
            return self.begins <= place if self.ends is None and self.begins < 0 else self._has_from_end(place)
        if self.begins < 0 or (self.ends is not None and self.ends < 0):
            return True if place == self.begins == 0 else None
        return self.begins <= place and (self.ends is None or place < self.ends)

    def _has_from_end(self, place: int) -> bool | None:
        """Whether a place that is counted from the end is in a slice that begins at the front."""
        if self.ends is None:
            return True if self.begins == 0 else None
        return place < self.ends if self.ends < 0 and self.begins == 0 else None


def taken(at: ast.expr) -> Taken | None:
    """Return what a subscript takes, ``[0]``, ``[:2]`` or ``[:-1]``; None where no constants say so."""
    match at:
        case ast.Slice(lower=lower, upper=upper, step=None):
            begins = 0 if lower is None else constant(lower)
            ends = None if upper is None else constant(upper)
            known = begins is not None and (upper is None or ends is not None)
            return Taken(begins or 0, ends) if known else None
    place = constant(at)
    return Taken(place, place + 1 or None) if place is not None else None


def constant(node: ast.expr) -> int | None:
    """Return the whole number that an expression is written as."""
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(number))):
            return -number
    return None


def first_place(at: ast.expr) -> int | None:
    """Return the first place that a subscript takes; that of ``[:n]`` is 0."""
    if isinstance(at, ast.Slice):
        return 0 if at.lower is None else constant(at.lower)
    return constant(at)


def parts_in(node: ast.expr, names: set[str], around: ast.AST, deep: int = DEEPEST) -> list[ast.Subscript]:
    """List the parts that an expression takes of these tensors, by itself or by variables that are given one value."""
    found: list[ast.Subscript] = []
    for each in ast.walk(node):
        match each:
            case ast.Subscript(value=ast.Name(id=name)) if name in names:
                found.append(each)
            case ast.Name(id=name, ctx=ast.Load()) if name not in names and deep:
                given = _given(around, name)
                found += parts_in(given, names, around, deep - 1) if given is not None else []
    return found


def _given(around: ast.AST, name: str) -> ast.expr | None:
    """Return what a function gives to a name, where it does so once."""
    found = [
        node.value
        for node in ast.walk(around)
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.NamedExpr, ast.For))
        for target in (getattr(node, "targets", None) or [getattr(node, "target", None)])
        if any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(target))
        and isinstance(node, (ast.Assign, ast.AugAssign))
    ]
    plain = [each for each in found if isinstance(bare(each), (ast.Subscript, ast.BinOp))]
    return plain[0] if len(found) == len(plain) == 1 else None
