"""The user's lines of a stack, as the watch has them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ddpdoctor.source.values.handlers import counted_in_handlers
from ddpdoctor.watch.events import Site, UnderWay
from ddpdoctor.watch.user_frames import is_users

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ddpdoctor.host.stack import Frame
    from ddpdoctor.stuck.looks.spy import Stack


def sites_of(frames: Iterable[Frame]) -> Iterator[Site]:
    """Yield the user's lines; a function that a library has made of text (``<string>``) is none where a file is.

    Functions have their own names, as sources and the watch have them: py-spy puts a method's class before it.
    """
    own = [each for each in frames if is_users(each.file)]
    of_files = any(not each.file.startswith("<") for each in own)
    for each in own:
        if not (of_files and each.file == "<string>"):
            yield Site(os.path.normpath(each.file), each.line, each.function.rpartition(".")[2])


def under_way(stack: Stack) -> UnderWay | None:
    """Return the exception under way, and the user's line that it came to."""
    if stack.raised is None:
        return None
    error, at = stack.raised
    return UnderWay(error, next(sites_of((at,))))


def caught(stack: Stack) -> Iterator[tuple[Site, int]]:
    """Yield how often the handlers of the functions that a rank is in have caught something, where they count it."""
    for frame, values in zip(stack.frames, stack.values, strict=True):
        if values and is_users(frame.file):
            counts = counted_in_handlers(frame.file, frame.line)
            yield from ((Site(frame.file, counts[name], ""), value) for name, value in values if name in counts)
