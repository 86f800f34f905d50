"""The rank that a waiting rank names as the one that gives, or gets: an integer that its line takes from a variable."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.source.text.bindings import last_name
from ddpdoctor.source.text.lines import calls_at, tree_of
from ddpdoctor.watch.user_frames import is_users

if TYPE_CHECKING:
    from ddpdoctor.stuck.looks.spy import Stack

PLACES = {
    **dict.fromkeys(("broadcast", "broadcast_object_list"), ("src", 1)),
    "reduce": ("dst", 1),
    "scatter": ("src", 2),
    "gather": ("dst", 2),
}
"""By collective the parameter, and its place; of those that follow, only the group can tell that it is another one."""


def root(operation: str, stack: Stack) -> str:
    """Return it as the watch writes it behind the shapes of a call; empty where it is not seen, or a group is named.

    The ranks of several groups rightly name several ones.
    """
    own = next((pair for pair in zip(stack.frames, stack.values, strict=False) if is_users(pair[0].file)), None)
    if operation not in PLACES or own is None:
        return ""
    (frame, variables), (word, place) = own, PLACES[operation]
    calls = [each for each in calls_at(frame.file, frame.line) if last_name(each.func) == operation]
    if len(calls) != 1 or len(calls[0].args) > place + 1:
        return ""
    words = {each.arg or "": each.value for each in calls[0].keywords}
    named = words.get(word, calls[0].args[place] if len(calls[0].args) > place else None)
    if not isinstance(named, ast.Name) or any("group" in each for each in words) or _is_of_a_pass(frame.file, named):
        return ""
    value = dict(variables).get(named.id)
    return f", root {value}" if value is not None else ""


def _is_of_a_pass(file: str, name: ast.Name) -> bool:
    """Whether a loop around gives the name its value: ranks in several passes have several ones, and rightly so."""
    tree = tree_of(file)
    loops = [each for each in tree.above(name) if isinstance(each, (ast.For, ast.While))]
    return any(loop in (each.node, *tree.above(each.node)) for each in tree.lookup(name.id, name) for loop in loops)
