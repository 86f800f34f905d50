"""A call within a loop that one rank makes once more than another one, which has gone on: their numbers differ."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.check import last_name, returns_above, runs_alike, tree_of

from .._progress import last_number, of_the_first_to_tell

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ddpdoctor.check import Communication, Exit, PeerLost, Position, Progress, Site, Tree

    from .._pairs import Pair

Loop = ast.For | ast.While
STAYS = (ast.If, ast.ExceptHandler, ast.match_case, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
"""What may decide by itself whether a line of a loop is reached."""


class OnceMore(NamedTuple):
    """The rank that is in the loop once more, its call, the rank that has left it, what that one calls; the loop.

    ``theirs`` is empty where the other rank was lost in what DDP exchanges by itself, ``at`` the line of it.
    """

    rank: int
    call: Communication
    other: int
    theirs: str
    at: Site | None
    line: int
    runs: str


def once_more(pair: Pair | None, ranks: Sequence[Position | Progress]) -> OnceMore | None:
    """Find it where two calls of one number do not match, and the calls before them were both of that loop.

    The line is reached in each pass of the loop, and the other rank's is behind the loop, in its function or in one
    that calls it: so nothing but the number of passes differs.
    """
    if pair is None:
        return None
    recent = {each.rank: each.recent for each in ranks}
    one, two = pair
    for (rank, call), (other, theirs) in ((one, two), (two, one)):
        loop = _loop(call.site)
        before = [_before(recent[each], call) for each in (rank, other)]
        if loop is None or call.site is None or not _is_behind(theirs.site, call.site, loop):
            continue
        if all(each is not None and _holds(loop, call.site.file, each.site) for each in before):
            return OnceMore(rank, call, other, theirs.operation, theirs.site, loop.lineno, _header(loop))
    return None


def more_than_the_lost(event: PeerLost) -> OnceMore | None:
    """Find it where DDP's own exchange met a call of a loop: gloo ends the rank of the call over the size.

    Both ranks made the calls before it in the loop, and no line of the other one's stack is in the loop.
    """
    other = of_the_first_to_tell(event)
    for one in event.progress if other is not None and event.stack else ():
        call = one.recent[-1] if one.recent and one.rank in event.gone else None
        loop = _loop(call.site) if call is not None else None
        if other is None or call is None or call.site is None or loop is None:
            continue
        file = call.site.file
        before = [_before(each.recent, call) for each in (one, other)]
        if any(each is None or not _holds(loop, file, each.site) for each in before):
            continue
        if last_number(other, call.group) >= call.number:
            continue
        if not any(_holds(loop, file, each) for each in event.stack):
            return OnceMore(one.rank, call, other.rank, "", event.stack[0], loop.lineno, _header(loop))
    return None


class Returned(NamedTuple):
    """A rank that has left a function before a call in it, by the one `return` above, and the test around that."""

    rank: int
    function: str
    way: Exit


def returned_early(pair: Pair) -> Returned | None:
    """Find it where the one rank's call is reached in each call of its function, and the other rank is behind that."""
    one, two = pair
    for (_, call), (other, theirs) in ((one, two), (two, one)):
        here, there = call.site, theirs.site
        if here is None or there is None or here.file != there.file or here.function in {there.function, "<module>"}:
            continue
        tree = tree_of(here.file)
        if _is_under(tree, here) or not _has_called(tree, here.function, there):
            continue
        ways = returns_above(here.file, here.line)
        if len(ways) == 1:
            return Returned(other, here.function, ways[0])
    return None


def _is_under(tree: Tree, site: Site) -> bool:
    """Whether a test, a handler or a loop within its function decides how often a line is reached."""
    deciding = (ast.If, ast.ExceptHandler, ast.match_case, ast.For, ast.While)
    around = [each for kind in deciding for each in tree.of(kind) if _spans(each, site.line)]
    return any(_function_of(tree.above(each)) == site.function for each in around)


def _has_called(tree: Tree, function: str, behind: Site) -> bool:
    """Whether a line comes after a call of a function, under no test, in its own function."""
    for each in tree.of(ast.Call):
        around = [*tree.above(each)]
        if last_name(each.func) != function or each.lineno >= behind.line:
            continue
        tested = any(isinstance(up, (ast.If, ast.ExceptHandler)) and not _is_main(up) for up in around)
        if _function_of(around) == behind.function and not tested:
            return True
    return False


def _is_main(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)


def _before(calls: Sequence[Communication], call: Communication) -> Communication | None:
    """Return the call of a rank that came right before that number of its group."""
    found = [each for each in calls if (each.group, each.number) == (call.group, call.number - 1)]
    return found[-1] if found else None


def _loop(site: Site | None) -> Loop | None:
    """Return the innermost loop around a line that reaches it in each pass; none that is as long on all ranks."""
    if site is None:
        return None
    tree = tree_of(site.file)
    loops: list[Loop] = [*tree.of(ast.For), *tree.of(ast.While)]
    around = [each for each in loops if _holds(each, site.file, site)]
    if not around:
        return None
    loop = max(around, key=lambda each: each.lineno)
    within = [each for each in ast.walk(loop) if isinstance(each, STAYS) and _spans(each, site.line)]
    return None if within or runs_alike(loop, tree) else loop


def _spans(node: ast.AST, line: int) -> bool:
    return getattr(node, "lineno", line + 1) <= line <= (getattr(node, "end_lineno", None) or 0)


def _holds(loop: Loop, file: str, site: Site | None) -> bool:
    """Whether a line is in the body of a loop."""
    return (
        site is not None and site.file == file and loop.body[0].lineno <= site.line <= (loop.body[-1].end_lineno or 0)
    )


def _is_behind(theirs: Site | None, ours: Site, loop: Loop) -> bool:
    """Whether a line comes after a loop: below it in its function, or below a call of that function in another one."""
    if theirs is None or theirs.file != ours.file:
        return False
    if theirs.function == ours.function:
        return theirs.line > (loop.end_lineno or 0)
    tree = tree_of(ours.file)
    calls = (each for each in tree.of(ast.Call) if last_name(each.func) == ours.function)
    return any(each.lineno < theirs.line and _function_of(tree.above(each)) == theirs.function for each in calls)


def _function_of(around: Iterable[ast.AST]) -> str:
    names = (each.name for each in around if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)))
    return next(names, "<module>")


def _header(loop: Loop) -> str:
    if isinstance(loop, ast.While):
        return f"while {ast.unparse(loop.test)}"
    return f"for {ast.unparse(loop.target)} in {ast.unparse(loop.iter)}"
