"""A thread that keeps the GIL in native code, so that no other thread of its process comes to run Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ddpdoctor.host.stack import Frame
from ddpdoctor.watch.user_frames import is_users

if TYPE_CHECKING:
    from collections.abc import Iterable


class GilHeld(NamedTuple):
    """The kernel's number of a thread that has the GIL, its name, and its innermost line of the user's code."""

    number: int
    name: str
    at: Frame


def gil_held(threads: Iterable[dict[str, Any]]) -> GilHeld | None:
    """Return which of the threads of a dump that do not train has the GIL, where it is in the user's code."""
    for each in threads:
        inner = next((frame for frame in each["frames"] if is_users(str(frame["filename"]))), None)
        if each.get("owns_gil") and inner is not None:
            at = Frame(str(inner["filename"]), int(inner["line"]), str(inner["name"]))
            return GilHeld(int(each.get("os_thread_id") or 0), str(each.get("thread_name") or "?"), at)
    return None
