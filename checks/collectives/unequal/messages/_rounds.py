"""Two loops that are to exchange as many messages, by the lines at which both sides wait: seen from outside as well."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.check import (
    Ambiguity,
    Evidence,
    Finding,
    Fix,
    Site,
    are_alternatives,
    last_name,
    place,
    spans,
    statement_at,
    tree_of,
)

from ...hangs._told import seen, short, table

if TYPE_CHECKING:
    from ddpdoctor.check import Position, Stalled, Tree

Loop = ast.For | ast.While
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)
SENDS = frozenset({"send", "isend"})
COUNTED = Fix(
    "let both sides count alike: send the number of messages first",
    diff="+count = torch.tensor([len(chunks)])\n+dist.send(count, dst)   # dist.recv(count, src) there\n"
    " for chunk in chunks:\n     dist.send(chunk, dst)",
)


class Rounds(NamedTuple):
    """A rank that is past the loop of its sends and waits for the answer; another one is still in that of its receives.

    Both loops come with their file.
    """

    done: Position
    sends: tuple[str, Loop]
    other: Position
    receives: tuple[str, Loop]


def counted_apart(event: Stalled) -> Finding | None:
    """Return both loops, where all of two ranks wait to receive: one side's has more passes."""
    found = _rounds(event)
    if found is None:
        return None
    done, other = found.done, found.other
    return Finding(
        f"rank {done.rank} has left the loop of its sends at {_at(found.sends)}, `{_runs(found.sends)}`, and waits for "
        f"the answer at {short(done.site)}; rank {other.rank} waits for one more message at {short(other.site)}, in "
        f"its loop at {_at(found.receives)}, `{_runs(found.receives)}`",
        (
            *(
                Evidence(f"{ast.unparse(each)} returns fewer parts where there are fewer rows", "as many as asked for",
                         f"rank {done.rank}, {_at(found.sends)}")
                for each in _chunks(found.sends[1])
            ),
            *seen(event),
        ),
        COUNTED,
        place(Site(found.sends[0], found.sends[1].lineno, ""), rank=done.rank),
        table=table(event),
    )  # fmt: skip


def sends_first(event: Stalled) -> Ambiguity | None:
    """Return what remains where each rank has called send before the receive that it is in: the order is no cause."""
    if not all(_before(each) for each in event.ranks):
        return None
    return Ambiguity(
        (
            "one side waits for more messages than the other one has sent",
            "what was sent has another tag, or goes to another rank, than what is waited for",
        ),
        "ddpdoctor run -- torchrun ...   # counts the messages of each rank, with peer and tag",
    )


def _rounds(event: Stalled) -> Rounds | None:
    for done in event.ranks:
        sends = _loop_of_sends(done)
        for other in event.ranks if sends is not None else ():
            receives = _loop_of_receives(other) if other is not done and len(event.ranks) == 2 else None  # noqa: PLR2004
            if sends is not None and receives is not None:
                return Rounds(done, sends, other, receives)
    return None


def _loop_of_sends(position: Position) -> tuple[str, Loop] | None:
    """Return the last loop that sends before a receive, where the receive is not in it."""
    site = position.site
    for call in reversed(_before(position)):
        loop = _around(tree_of(site.file), call) if site is not None else None
        if site is not None and loop is not None and not spans(loop, site.line):
            return site.file, loop
    return None


def _loop_of_receives(position: Position) -> tuple[str, Loop] | None:
    """Return the loop that a receive stands in, where its function sends behind that and not in it."""
    site, at = position.site, _receive(position)
    if site is None or at is None:
        return None
    loop = _around(tree_of(site.file), at)
    if loop is None or _sends(loop):
        return None
    behind = [each for each in _sends(_scope(site.file, at)) if each.lineno > (loop.end_lineno or 0)]
    return (site.file, loop) if behind else None


def _before(position: Position) -> list[ast.Call]:
    """List the sends that whoever is at a receive has come through in its function, in the order of their lines."""
    site, at = position.site, _receive(position)
    if site is None or at is None:
        return []
    tree = tree_of(site.file)

    def is_passed(call: ast.Call) -> bool:
        tests = [each for each in tree.above(call) if isinstance(each, ast.If)]
        inside = all(spans(each, site.line) for each in tests)
        return call.lineno < site.line and inside and not are_alternatives(site.file, call.lineno, site.line)

    return [each for each in _sends(_scope(site.file, at)) if is_passed(each)]


def _receive(position: Position) -> ast.stmt | None:
    """Return the statement of a receive that a rank waits in."""
    site = position.site if position.operation.endswith("recv") else None
    return statement_at(tree_of(site.file), site.line) if site is not None else None


def _scope(file: str, at: ast.AST) -> ast.AST:
    return next(each for each in tree_of(file).above(at) if isinstance(each, SCOPES))


def _sends(within: ast.AST) -> list[ast.Call]:
    calls = (each for each in ast.walk(within) if isinstance(each, ast.Call) and last_name(each.func) in SENDS)
    return sorted(calls, key=lambda each: each.lineno)


def _around(tree: Tree, node: ast.AST) -> Loop | None:
    """Return the innermost loop of its function that a node stands in."""
    for each in tree.above(node):
        if isinstance(each, SCOPES):
            return None
        if isinstance(each, (ast.For, ast.While)):
            return each
    return None


def _at(loop: tuple[str, Loop]) -> str:
    return short(Site(loop[0], loop[1].lineno, ""))


def _runs(loop: tuple[str, Loop]) -> str:
    head = loop[1]
    if isinstance(head, ast.While):
        return f"while {ast.unparse(head.test)}"
    return f"for {ast.unparse(head.target)} in {ast.unparse(head.iter)}"


def _chunks(loop: Loop) -> list[ast.Call]:
    """List the calls of ``chunk`` in what a loop goes through."""
    calls = (each for each in ast.walk(loop.iter if isinstance(loop, ast.For) else loop.test))
    return [each for each in calls if isinstance(each, ast.Call) and last_name(each.func) == "chunk"]
