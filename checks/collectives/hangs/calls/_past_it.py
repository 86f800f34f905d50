"""A rank that is gone in a call of a step, and another one in the backward of that step, which made no such call."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.check import Site, in_one_loop, tree_of

from .._messages import POINT_TO_POINT
from .._progress import last_number, of_the_first_to_tell
from ..source._one_rank import DEFAULT
from ._callers import ways_to

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddpdoctor.check import PeerLost, Progress

Step = tuple["Progress", "Progress", Site, Site]


def steps_apart(event: PeerLost) -> Step | None:
    """Return both ranks, the line of the step that leads to the one's last call, and that of the other's backward.

    gloo ends a process that is sent the gradients where it waits for what is smaller. Both have made as many forwards,
    and what that line gives is what the backward goes through: the other rank has come past it without the call.
    """
    other = of_the_first_to_tell(event)
    if other is None or not event.others or event.others[0].site is None:
        return None
    going = event.others[0].site
    for one in event.progress:
        call = one.recent[-1] if one.recent and one.rank in event.gone else None
        if call is None or call.site is None or call.group not in DEFAULT or call.operation in POINT_TO_POINT:
            continue
        if one.forwards != other.forwards or call.number <= last_number(other, call.group):
            continue
        at = ways_to(call.site, going)[-1]
        same = (at.file, at.function) == (going.file, going.function) and at.line < going.line
        if same and in_one_loop(at.file, at.line, going.line) and _gives(at, going):
            return one, other, at, going
    return None


def _gives(at: Site, going: Site) -> bool:
    """Whether a line goes backward through what another line of its block gives; sums and products may lie between."""
    for block in _blocks(at.file):
        lines = [each.lineno for each in block]
        if at.line in lines and going.line in lines:
            first, last = block[lines.index(at.line)], block[lines.index(going.line)]
            given = _bound(first)
            for each in block[lines.index(at.line) + 1 : lines.index(going.line)]:
                if _used(each) & given and not any(isinstance(node, ast.Call) for node in ast.walk(each)):
                    given |= _bound(each)
            return "backward" in ast.unparse(last) and bool(_used(last) & given)
    return False


def _blocks(file: str) -> Iterator[list[ast.stmt]]:
    tree = tree_of(file)
    yield from (each.body for each in tree.of(ast.For))
    yield from (each.body for each in tree.of(ast.While))
    yield from (each.body for each in tree.of(ast.With))
    yield from (each.body for each in tree.of(ast.If))


def _bound(statement: ast.stmt) -> set[str]:
    return {each.id for each in ast.walk(statement) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}


def _used(statement: ast.stmt) -> set[str]:
    return {each.id for each in ast.walk(statement) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)}
