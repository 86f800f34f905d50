"""How a rank can have left a loop that another one is still in: read off the lines that both are at."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

from ddpdoctor.source.reach.alike import begins_with, runs_alike
from ddpdoctor.source.text.lines import tree_of
from ddpdoctor.source.values.handlers import said_of, swallows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ddpdoctor.source.reach.alike import Loop
    from ddpdoctor.source.text.tree import Tree

Line = tuple[str, int, str]
"""File, line and function, as a stack has them."""
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
CLOSED = (ast.FunctionDef, ast.AsyncFunctionDef)
WAYS: dict[type[ast.AST], str] = {ast.Break: "break", ast.Continue: "continue", ast.Return: "return"}
QUITS = {"sys.exit", "exit", "quit"}


@dataclass(frozen=True, slots=True)
class Exit:
    """A way out of a loop: where, what stands there, the innermost test around; ``around``: a handler outside of it."""

    file: str
    line: int
    kind: str
    test: str = ""
    around: bool = False

    @property
    def skips(self) -> bool:
        """Whether it can also be that a rank stays in the loop and makes one step less."""
        return self.kind.startswith(("continue", "except")) and not self.around

    def __str__(self) -> str:
        """Return it in words."""
        return f"`{self.kind}` at line {self.line}" + (f", under `{self.test}`" if self.test else "")


@dataclass(frozen=True, slots=True)
class LoopLeft:
    """A loop that one rank is in and another one has left; ``ends_itself``: it can also have run out of items.

    ``alike``: nothing ends it earlier on one rank than on another: it counts to what all ranks have alike, and from
    it. ``begins``: the variable that it counts from, where each rank has found its value for itself, and the line.
    """

    file: str
    line: int
    exits: tuple[Exit, ...]
    ends_itself: bool
    alike: bool = False
    begins: tuple[str, str, int] | None = None

    @property
    def only(self) -> Exit | None:
        """The way that it was left, if there is no other."""
        return self.exits[0] if len(self.exits) == 1 and not self.ends_itself else None


@dataclass(frozen=True, slots=True)
class _Frame:
    """A line of the stack that is inside: the loops around it that were left, innermost first, and what is around."""

    file: str
    at: ast.stmt
    loops: list[Loop]
    around: list[ast.AST]
    reached: bool

    @property
    def conditional(self) -> bool:
        """Whether the line is under a condition within the innermost loop, or within its function."""
        end = self.around.index(self.loops[0]) if self.loops else len(self.around)
        return any(isinstance(node, (ast.If, ast.ExceptHandler)) for node in self.around[:end])


def loop_left(
    inside: Sequence[Line], outside: Sequence[Line], broken_off: Callable[[str, int], bool]
) -> LoopLeft | None:
    """Find the innermost loop that one stack is in and the other one has left; both innermost first.

    An empty ``outside`` is a rank whose program has come to its end. ``broken_off`` is asked of a loop whether the rank
    outside left it before its items were used up.
    """
    pairs = list(_apart(list(reversed(inside)), list(reversed(outside))))
    frames = [_frame(ours, theirs) for ours, theirs in pairs]
    number = max((number for number, each in enumerate(frames) if each and each.loops), default=-1)
    if number < 0 or not all(each is not None and each.reached for each in frames[: number + 1]):
        return None
    known = [each for each in frames if each is not None]
    every = {way for at, each in enumerate(known) for way in _ways(each, around=at < number)}
    ways = sorted(every, key=lambda each: (each.file, each.line))
    inner, *outer = [(each.file, loop) for each in reversed(known[: number + 1]) for loop in each.loops]
    steady = not any(each.conditional for each in known[number:]) and not any(each.skips for each in ways)
    runs = runs_alike(inner[1], tree_of(inner[0]))
    ends_itself = not (broken_off(inner[0], inner[1].lineno) or (steady and runs)) or not all(
        broken_off(file, loop.lineno) or runs_alike(loop, tree_of(file)) for file, loop in outer
    )
    counted = not ways and runs and all(runs_alike(loop, tree_of(file)) for file, loop in outer)
    begun = [(each, found) for each in (inner, *outer) if (found := begins_with(each[1], tree_of(each[0])))]
    if counted and begun:
        (file, left), (start, given) = begun[0]
        begins = (ast.unparse(start), " ".join(ast.unparse(given).split()), given.lineno)
        return LoopLeft(file, left.lineno, (), ends_itself=True, begins=begins)
    uneven = next((each for each in (inner, *outer) if not runs_alike(each[1], tree_of(each[0]))), inner)
    file, left = next((each for each in (inner, *outer) if _is_left_by(*each, ways)), uneven)
    return LoopLeft(file, left.lineno, tuple(ways), ends_itself, counted)


def _is_left_by(file: str, loop: Loop, ways: Sequence[Exit]) -> bool:
    """Whether all ways are out of this loop, whose own calls have loops that are not left by them."""
    inside = all(each.file == file and _holds(loop, each.line) and not each.skips for each in ways)
    return bool(ways) and inside


def ways_past(file: str, line: int) -> tuple[Exit, ...]:
    """Return what skips a line of a loop in one pass: each ``continue`` above it, and each handler around it."""
    tree = tree_of(file)
    at = _statement(tree, line)
    whole = list(tree.above(at)) if at else []
    around = whole[: _scope(whole)]
    loops = [node for node in around if isinstance(node, (ast.For, ast.While))]
    if at is None or not loops:
        return ()
    frame = _Frame(file, at, loops[:1], around[: around.index(loops[0])], reached=True)
    return tuple(each for each in sorted(_ways(frame), key=lambda each: each.line) if each.skips)


def ways_out(file: str, head: int) -> tuple[Exit, ...]:
    """Return what leaves the loop whose first line is given before its items are used up."""
    tree = tree_of(file)
    loops: list[Loop] = [*tree.of(ast.For), *tree.of(ast.While)]
    left = (loop for loop in loops if loop.lineno == head)
    return tuple(each for loop in left for each in _within(file, loop.body, "", {"break", "return"}))


def returns_above(file: str, line: int) -> tuple[Exit, ...]:
    """Return what leaves the function of a line before it."""
    tree = tree_of(file)
    at = _statement(tree, line)
    function = next((each for each in tree.above(at) if isinstance(each, CLOSED)), None) if at else None
    found = _within(file, function.body, "", {"return"}) if function is not None else ()
    return tuple(each for each in found if each.line < line)


def _frame(ours: Line, theirs: Line | None) -> _Frame | None:
    """Read a frame; None where the source does not fit, or the other rank is not past the loops."""
    file, line, function = ours
    tree = tree_of(file)
    at = _statement(tree, line)
    whole = list(tree.above(at)) if at else []
    if at is None or (function != "<module>" and not any(getattr(each, "name", "") == function for each in whole)):
        return None
    around = whole[: _scope(whole)]
    here: list[Loop] = [node for node in around if isinstance(node, (ast.For, ast.While))]
    loops = [node for node in here if theirs is None or not _holds(node, theirs[1])]
    if theirs is not None and not _is_past(loops, here, theirs[1]):
        return None
    return _Frame(file, at, loops, around, _comes_to(loops[-1] if loops else at, tree))


def _apart(inside: list[Line], outside: list[Line]) -> Iterator[tuple[Line, Line | None]]:
    """Pair the frames, outermost first, from the first on in which the stacks differ; nothing where they part ways."""
    apart = not outside
    for ours, theirs in zip_longest(inside, outside):
        if ours is None:
            return
        if apart:
            yield ours, None
        elif ours != theirs:
            if theirs is None or (ours[0], ours[2]) != (theirs[0], theirs[2]):
                return
            apart = True
            yield ours, theirs


def _statement(tree: Tree, line: int) -> ast.stmt | None:
    """Return the innermost statement that covers a line."""
    found = [node for node in tree.nodes if isinstance(node, ast.stmt) and _holds(node, line)]
    return max(found, key=lambda node: (node.lineno, -(node.end_lineno or 0)), default=None)


def _holds(node: ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _scope(around: list[ast.AST]) -> int:
    """Return how many of the nodes around a statement are within its function."""
    return next((number for number, node in enumerate(around) if isinstance(node, SCOPES)), len(around))


def _is_past(loops: list[Loop], here: list[Loop], line: int) -> bool:
    """Whether a line comes after the loops, or before them in a loop around both."""
    if not loops:
        return True
    return line > (loops[-1].end_lineno or 0) or (line < loops[-1].lineno and len(here) > len(loops))


def _comes_to(node: ast.AST, tree: Tree) -> bool:
    """Whether whoever runs the function comes to a statement: it is under no condition."""
    for each in tree.above(node):
        if isinstance(each, SCOPES):
            return isinstance(each, CLOSED)
        if isinstance(each, ast.If) and "__name__" not in ast.unparse(each.test):
            return False
        if isinstance(each, (ast.ExceptHandler, ast.match_case)):
            return False
    return True


def _ways(frame: _Frame, *, around: bool = False) -> Iterator[Exit]:
    """Yield what leaves the loops of a frame, or skips the rest of a pass; ``around``: a deeper frame has the loop."""
    for loop in frame.loops:
        wanted = {"break"} | ({"continue"} if loop is frame.loops[0] else set())
        wanted |= {"return"} if loop is frame.loops[-1] else set()
        yield from _within(frame.file, loop.body, "", wanted)
    for node in frame.around:
        if isinstance(node, ast.Try) and any(each is frame.at or each in frame.around for each in node.body):
            out = around or any(each in frame.around[: frame.around.index(node)] for each in frame.loops[:1])
            yield from (
                Exit(frame.file, each.lineno, said_of(each), around=out) for each in node.handlers if swallows(each)
            )


def _within(file: str, body: Sequence[ast.AST], test: str, wanted: set[str]) -> Iterator[Exit]:
    """Yield the statements of these kinds that leave a loop whose body this is a part of."""
    for node in body:
        kind = WAYS.get(type(node), "")
        if kind in wanted:
            yield Exit(file, getattr(node, "lineno", 0), kind, test)
        elif isinstance(node, ast.Call) and "return" in wanted and ast.unparse(node.func) in QUITS:
            yield Exit(file, node.lineno, ast.unparse(node), test)
        if isinstance(node, ast.If):
            said = ast.unparse(node.test)
            yield from _within(file, node.body, f"if {said}", wanted)
            yield from _within(file, node.orelse, f"if not ({said})", wanted)
        elif isinstance(node, ast.ExceptHandler):
            yield from _within(file, node.body, said_of(node), wanted)
        elif not isinstance(node, SCOPES):
            deeper = wanted - {"break", "continue"} if isinstance(node, (ast.For, ast.While)) else wanted
            yield from _within(file, list(ast.iter_child_nodes(node)), test, deeper)
