"""The exception under way in a rank: what a handler, or the end of a ``with``, was given; its class alone is read."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ddpdoctor.host.stack import Frame
from ddpdoctor.source.values.handlers import handler_around
from ddpdoctor.watch.user_frames import is_users

if TYPE_CHECKING:
    from collections.abc import Sequence

ENDS = frozenset({"__exit__", "__aexit__"})
OBJECT = r"<(?P<error>\w+) at 0x[0-9a-f]+>"
TRACEBACK = re.compile(r"<traceback at 0x")
AS_ONE = re.compile(rf"\(<\w+ at 0x[0-9a-f]+>, {OBJECT}, <traceback at 0x")
"""How py-spy shows the three arguments where the method has one name for all."""


def raised(frames: Sequence[dict[str, Any]]) -> tuple[str, Frame] | None:
    """Return the class of the exception, and the user's frame that has the ``with`` or the handler; innermost first."""
    for number, each in enumerate(frames):
        is_end = str(each["name"]).rpartition(".")[2] in ENDS
        error = _given(each.get("locals") or ()) if is_end else _handled(each)
        around = frames[number + 1 :] if is_end else frames[number:]
        outer = next((frame for frame in around if is_users(str(frame["filename"]))), None)
        if error and outer is not None:
            return error, Frame(str(outer["filename"]), int(outer["line"]), str(outer["name"]))
    return None


def _given(variables: Sequence[dict[str, Any]]) -> str:
    """Return the exception that a method was given which ends a ``with``: the value before its traceback."""
    shown = [str(each.get("repr")) for each in variables]
    for value, after in pairwise(shown):
        if TRACEBACK.match(after) and (found := re.fullmatch(OBJECT, value)):
            return found["error"]
    return next((found["error"] for found in map(AS_ONE.match, shown) if found), "")


def _handled(frame: dict[str, Any]) -> str:
    """Return the exception that a handler holds by a name, as in ``except OSError as exc``."""
    if not is_users(str(frame["filename"])):
        return ""
    handler = handler_around(str(frame["filename"]), int(frame["line"]))
    if handler is None or not handler.name:
        return ""
    shown = (str(each.get("repr")) for each in frame.get("locals") or () if each.get("name") == handler.name)
    return next((found["error"] for found in (re.fullmatch(OBJECT, each) for each in shown) if found), "")
