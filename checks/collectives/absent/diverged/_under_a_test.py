"""A rank that waits at a line under a test, in a loop in which another rank is past that test, or not there yet."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.check import Ambiguity, Evidence, Finding, in_one_loop, place, statement_at, tests_around, tree_of

from ...hangs._messages import BY_HANDLE, MESSAGES, begun
from ...hangs._told import seen, short, table, where
from ._went_on import FIX

if TYPE_CHECKING:
    from ddpdoctor.check import Position, Site, Stalled

OF_TENSORS = frozenset({"item", "any", "all", "isnan", "isfinite", "isinf", "max", "min", "mean", "sum", "norm"})


def under_a_test(event: Stalled) -> Finding | None:
    """Return that the line of one rank stands under a test that another rank has passed by, or that its loop comes to.

    That one is in the same loop, outside of what the test decides; or behind all that it decides, without that call; or
    it has left the function, and is at the line from which both have called it.
    """
    for one in event.ranks:
        for inner in one.stack:
            tests = [each for each in tests_around(inner.file, inner.line) if "__name__" not in each]
            for other in event.ranks if tests else ():
                beside = [each for each in other.stack if (each.file, each.function) == (inner.file, inner.function)]
                for each in beside if other is not one else ():
                    if tests[0] not in tests_around(each.file, each.line) and _has_passed(one, inner, other, each):
                        return _decided_apart(one, inner, tests[0], other, event)
                if (
                    other is not one
                    and not beside
                    and _has_returned(one, inner, other)
                    and _is_computed(tests[0], inner)
                ):
                    return _decided_apart(one, inner, tests[0], other, event)
    return None


def begun_under_a_test(event: Stalled) -> Finding | None:
    """Return that a rank waits by its handle for a call under a test, which another rank has not made in that group.

    What was begun without waiting is missed later, wherever the ranks are then.
    """
    for one in event.ranks:
        by_handle = one.operation.startswith(BY_HANDLE) and one.operation not in MESSAGES
        call = begun(one) if by_handle else None
        if call is None or call.site is None:
            continue
        tests = [each for each in tests_around(call.site.file, call.site.line) if "__name__" not in each]
        for other in event.ranks if tests else ():
            theirs = [each.number for each in other.recent if each.group == call.group]
            if other is not one and theirs and max(theirs) < call.number:
                return _decided_apart(one, call.site, tests[0], other, event)
    return None


def _has_returned(one: Position, inner: Site, other: Position) -> bool:
    """Whether a rank stands at a line that has called the function, above a test, that another rank is in."""
    lines = {(each.file, each.line) for each in other.stack}
    return any((each.file, each.line) in lines for each in one.stack[one.stack.index(inner) + 1 :])


def _is_computed(test: str, at: Site) -> bool:
    """Whether a test looks at a number of this rank's own: a loss, or what a method gives, in a variable or not."""
    tree = tree_of(at.file)
    statement = statement_at(tree, at.line)
    function = tree.function(statement) if statement is not None else None
    asked = ast.parse(test, mode="eval").body
    names = {each.id for each in ast.walk(asked) if isinstance(each, ast.Name)}
    held = [
        each.value
        for each in (ast.walk(function) if function is not None else ())
        if isinstance(each, ast.Assign) and any(isinstance(to, ast.Name) and to.id in names for to in each.targets)
    ]
    calls = (each for value in (asked, *held) for each in ast.walk(value) if isinstance(each, ast.Call))
    return any(isinstance(each.func, ast.Attribute) and each.func.attr in OF_TENSORS for each in calls)


def _has_passed(one: Position, inner: Site, other: Position, at: Site) -> bool:
    if in_one_loop(inner.file, inner.line, at.line):
        return True
    return at.line > inner.line and bool(one.recent) and one.recent[-1].site not in {each.site for each in other.recent}


def _decided_apart(one: Position, at: Site, test: str, other: Position, event: Stalled) -> Finding:
    return Finding(
        f"rank {one.rank} {where(one)}, which is reached where `{test}`; rank "
        f"{other.rank} has not come there, and waits in {other.operation} at {short(other.site)}",
        (Evidence(f"reached where {test}", "the same answer on all ranks", str(at)), *seen(event)),
        FIX,
        place(at, rank=one.rank),
        table=table(event),
        ambiguity=Ambiguity(
            (
                f"`{test}` holds on rank {one.rank} in a step in which it does not on rank {other.rank}",
                f"rank {other.rank} is a step behind: rank {one.rank} has left one out before",
            ),
            f"print the rank, the step and `{test}` there",
        ),
    )
