"""A rank in the handler of an exception, or at the end of a ``with``, while another one is in the lines it is for."""

from __future__ import annotations

import ast
from typing import NamedTuple

from ddpdoctor.check import (
    Doing,
    Exit,
    Handler,
    Position,
    Site,
    Stalled,
    body_of_with,
    finally_around,
    handler_around,
    handler_at,
    tree_of,
)


class Handling(NamedTuple):
    """The rank in the handler and its line there; the other one and its line in the ``try``, or in the ``with``.

    ``error`` is the exception's class, where it is known, as it is seen from outside.
    """

    handler: Handler
    rank: Position
    at: Site
    other: Position
    tries: Site
    error: str = ""


class InFinally(NamedTuple):
    """A rank in a ``finally``, its line there, the handlers before that; another one that is still in the ``try``."""

    handler: Handler
    caught: tuple[str, ...]
    rank: Position
    at: Site
    other: Position
    tries: Site


def in_finally(event: Stalled) -> InFinally | None:
    """Find two ranks that wait so: an exception can have led one there, or the end of what the other one is in."""
    waiting = event.doing(Doing.WAITING)
    for rank in waiting:
        for number, at in enumerate(rank.stack):
            found = finally_around(at.file, at.line)
            for other in waiting if found is not None else ():
                tries = _same_call(other, at, rank.stack[number + 1 :])
                if found is not None and tries is not None and found[0].is_for(tries.line):
                    return InFinally(*found, rank, at, other, tries)
    return None


def handling(event: Stalled) -> Handling | None:
    """Find two ranks that wait so, called from the same lines: one has met an exception, and the other one has not."""
    waiting = event.doing(Doing.WAITING)
    for rank in waiting:
        for number, at in enumerate(rank.stack):
            handler, error = _handles(rank, at)
            for other in waiting if handler is not None else ():
                tries = _same_call(other, at, rank.stack[number + 1 :])
                if handler is not None and tries is not None and handler.is_for(tries.line):
                    return Handling(handler, rank, at, other, tries, error)
    return None


def _handles(rank: Position, at: Site) -> tuple[Handler | None, str]:
    """Return the handler that a line is in, or the ``with`` that an exception has ended there; its class if known."""
    error = rank.raised.error if rank.raised is not None and rank.raised.site == at else ""
    found = handler_around(at.file, at.line)
    return found or (body_of_with(at.file, at.line) if error else None), error


def _same_call(other: Position, at: Site, callers: tuple[Site, ...]) -> Site | None:
    """Return where another rank is in a function that the same lines have called."""
    depth = len(other.stack) - len(callers) - 1
    site = other.stack[depth] if depth >= 0 else None
    same = site is not None and (site.file, site.function) == (at.file, at.function)
    return site if same and other.stack[depth + 1 :] == callers else None


class CaughtMore(NamedTuple):
    """The line of a handler; a rank that has come there more often, how often; another one, and how often."""

    at: Site
    rank: int
    times: int
    other: int
    others: int


def caught_more(event: Stalled) -> CaughtMore | None:
    """Find it by what handlers count, as it is seen from outside; the other rank is in the lines that one is for.

    What a handler counts elsewhere, as how often something was tried again, keeps nobody.
    """
    waiting = event.doing(Doing.WAITING)
    for one in waiting:
        for at, times in one.caught:
            handler = handler_at(at.file, at.line)
            for other in waiting if handler is not None else ():
                others = dict(other.caught).get(at, times)
                tries = handler is not None and any(
                    each.file == at.file and handler.is_for(each.line) for each in other.stack
                )
                if times > others and tries:
                    return CaughtMore(at, one.rank, times, other.rank, others)
    return None


def hides_an_error(site: Site | None) -> Exit | None:
    """Return the handler that leads past a call, after an error above it in its `try`, and that raises nothing."""
    if site is None:
        return None
    for node in reversed(tree_of(site.file).of(ast.Try)):
        before = [each for each in node.body if each.lineno < site.line]
        if not (before and node.handlers and site.line <= (node.body[-1].end_lineno or 0)):
            continue
        if any(isinstance(each, ast.Raise) for handler in node.handlers for each in ast.walk(handler)):
            return None
        first = node.handlers[0]
        said = f"except {ast.unparse(first.type)}" if first.type else "except"
        return Exit(site.file, first.lineno, said) if any(map(_can_fail, before)) else None
    return None


def _can_fail(statement: ast.stmt) -> bool:
    return any(isinstance(each, (ast.Call, ast.Subscript, ast.BinOp, ast.Attribute)) for each in ast.walk(statement))
