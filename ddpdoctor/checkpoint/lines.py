"""Fits what is refused into one line that can be read, whatever the keys and names of a file hold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ddpdoctor.facets import BadTarget

LONGEST = 280  # characters of a line; a key can have millions
HEAD = 170
GAP = " ... "


@contextmanager
def one_line(path: str) -> Iterator[None]:
    """Make of what is refused, by the operating system too, one line about ``path``, whatever its keys hold."""
    try:
        yield
    except OSError as exc:
        raise BadTarget(shortened(f"{path}: {exc.strerror or exc}; nothing was changed")) from None
    except BadTarget as exc:
        raise type(exc)(shortened(str(exc))) from None


def shortened(text: str, longest: int = LONGEST) -> str:
    """Return a text in one line, without its middle when it is long: it begins with the fault, and ends with the cure.

    What cannot be printed is spelled out.
    """
    part = text if len(text) <= 2 * longest else text[:longest] + text[-longest:]
    line = "".join(char if char.isprintable() else repr(char)[1:-1] for char in part)
    if len(text) == len(part) and len(line) <= longest:
        return line
    head = min(HEAD, longest * 2 // 3)
    return line[:head] + GAP + line[head + len(GAP) - longest :]
