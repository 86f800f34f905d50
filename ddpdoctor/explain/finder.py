"""Finds what any of many patterns could match: the offsets in a block of bytes, and the patterns for a text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddpdoctor.explain.needles import needles
from ddpdoctor.explain.shapes import Shapes

if TYPE_CHECKING:
    from ddpdoctor.check import Pattern

# What the reader itself understands, whatever the signs declare.
STRUCTURE = (
    "Traceback (most recent call last)",
    ", line ",
    "Error: ",
    "Exception: ",
    "terminate called ",
    "  time      : ",
    "(first observed failure)",
)


@dataclass(frozen=True, slots=True)
class Finder:
    """All patterns, searched for at once by their needles."""

    patterns: tuple[Pattern, ...]
    everywhere: tuple[Pattern, ...]
    """Those that no literal text announces."""
    owners: Mapping[str, tuple[Pattern, ...]]
    """For each needle, the patterns that need it."""
    shapes: Shapes | None
    """Finds the lines worth a look; None where every line has to be looked at."""

    def offsets(self, block: bytes) -> Iterator[int]:
        """Give where in a block lines begin that a pattern, or the reader, looks for, in ascending order."""
        return _each_line(block) if self.shapes is None else self.shapes.offsets(block)

    def matching(self, text: str) -> tuple[Pattern, ...]:
        """Give the patterns that match the text."""
        owned = (pattern for needle, patterns in self.owners.items() if needle in text for pattern in patterns)
        candidates = dict.fromkeys((*self.everywhere, *owned))
        return tuple(pattern for pattern in candidates if pattern.search(text))

    def skipped(self) -> Iterator[tuple[tuple[Pattern, ...], int]]:
        """Give how many lines like others were passed over, and the patterns that match one of them."""
        for line, count in self.shapes.skipped() if self.shapes is not None else ():
            yield self.matching(line.decode(errors="replace")), count


def finder(signs: Iterable[Pattern], beside: Iterable[Pattern] = ()) -> Finder:
    """Prepare the search for the patterns of signs, and for those beside them.

    A sign's pattern without a literal text has to be tried on each line, which takes its time; one beside a sign is
    only looked for in what is kept for another reason.
    """
    ordered = tuple(signs)
    signs = frozenset(ordered)
    owners: dict[str, list[Pattern]] = {}
    everywhere = []
    patterns = tuple(dict.fromkeys((*ordered, *beside)))
    for pattern in patterns:
        wanted = needles(pattern)
        for needle in wanted:
            owners.setdefault(needle, []).append(pattern)
        if not wanted:
            everywhere.append(pattern)
    of_signs = {needle for needle, its in owners.items() if not signs.isdisjoint(its)} | set(STRUCTURE)
    shapes = None
    if signs.isdisjoint(everywhere):
        shapes = Shapes([text.encode() for text in of_signs], [text.encode() for text in owners.keys() - of_signs])
    return Finder(patterns, tuple(everywhere), {needle: tuple(patterns) for needle, patterns in owners.items()}, shapes)


def _each_line(block: bytes) -> Iterator[int]:
    position = 0
    while position < len(block):
        yield position
        end = block.find(b"\n", position)
        position = len(block) if end < 0 else end + 1
