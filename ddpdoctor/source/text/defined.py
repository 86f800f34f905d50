"""What a file defines, and which words it says."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections import Counter


class Part(NamedTuple):
    """A function or a class: its name, its file, and the words and the lines that it consists of."""

    name: str
    path: str
    first: int
    last: int
    words: Counter[str]


class Held(NamedTuple):
    """What one file has: functions and classes, the words that it says beside imports, and whether it is a program.

    ``runs``: it calls something itself.
    """

    parts: tuple[Part, ...]
    words: Counter[str]
    runs: bool
