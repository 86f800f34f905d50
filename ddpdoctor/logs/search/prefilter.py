"""Lines of a log by their shape: what is left of a line without its digits.

Programs print few kinds of lines, again and again with other numbers. Each shape is searched for literals once; a line
whose shape is known to hold none costs no more than looking it up. (A literal that occurs in a line occurs, without
its digits, in the line's shape.)
"""

from __future__ import annotations

import copy
from bisect import bisect_right
from collections.abc import Collection, Iterator
from itertools import accumulate

from ddpdoctor.logs.search.words import LiteralIndex

DIGITS = b"0123456789"
SHORTEST = 3  # characters of a literal without its digits; a shorter one is searched for in each line as it stands
SHAPES = 50_000  # that are remembered: then they are learnt anew
LONGEST = 4_000  # bytes of a shape that is remembered beyond its block
ALIKE = 2_000  # telling lines of one shape that are looked at; more of the same prove nothing more
BESIDE = 40  # of those that hold only what context patterns need, such as "rank"


class Shapes:
    """Remembers which shapes hold a literal; its lines are separated by newlines or carriage returns."""

    def __init__(self, literals: Collection[bytes], context: Collection[bytes] = ()) -> None:
        """Take what to search for: the literals of log patterns, and those of their context."""
        self._literals = LiteralIndex(_without_digits(literals))
        self._beside = LiteralIndex(_without_digits(context))
        exact = [each for each in (*literals, *context) if len(each.translate(None, DIGITS)) < SHORTEST]
        self._exact = LiteralIndex(exact) if exact else None
        self._begin()

    def _begin(self) -> None:
        self._dull: set[bytes] = set()
        self._telling: dict[bytes, int] = {}
        self._around: dict[bytes, int] = {}
        self._samples: dict[bytes, bytes] = {}

    def anew(self) -> Shapes:
        """Return one that searches for the same and has seen nothing: what it counts belongs to one log."""
        fresh = copy.copy(self)
        fresh._begin()  # noqa: SLF001 - of this class
        return fresh

    def offsets(self, block: bytes) -> Iterator[int]:
        """Yield where the lines begin that hold a literal, in ascending order; some of those that do not, too."""
        if b"\r" in block:
            block = block.replace(b"\r", b"\n")
        shapes = block.translate(None, DIGITS).split(b"\n")
        here = set(shapes)
        self._learn(here - self._dull - self._telling.keys() - self._around.keys())
        telling, around = here & self._telling.keys(), here & self._around.keys()
        exact = self._lines_with(block, self._exact) if self._exact else set()
        if telling or around or exact:
            yield from self._lines(block, shapes, telling, around, exact)
        for shape in (each for each in here if len(each) > LONGEST):
            self._dull.discard(shape)
            self._telling.pop(shape, None)
            self._around.pop(shape, None)

    def _lines(
        self, block: bytes, shapes: list[bytes], telling: set[bytes], around: set[bytes], exact: set[int]
    ) -> Iterator[int]:
        position = 0
        for number, (line, shape) in enumerate(zip(block.split(b"\n"), shapes, strict=True)):
            if (
                number in exact
                or (shape in telling and self._counted(shape, line))
                or (shape in around and self._few(shape))
            ):
                yield position
            position += len(line) + 1

    def _counted(self, shape: bytes, line: bytes) -> bool:
        """Count a telling line; say whether it is to be looked at."""
        seen = self._telling.get(shape, 0)
        self._telling[shape] = seen + 1
        if seen == ALIKE:
            self._samples[shape] = line
        return seen < ALIKE

    def _few(self, shape: bytes) -> bool:
        """Count a line that only context patterns match; after a few of its shape it is a dull one."""
        left = self._around.get(shape, 0)
        if left == 1:
            del self._around[shape]
            self._dull.add(shape)
        elif left:
            self._around[shape] = left - 1
        return left > 0

    def skipped(self) -> Iterator[tuple[bytes, int]]:
        """Yield how many lines were not looked at, with one of each shape."""
        for shape, line in self._samples.items():
            yield line, self._telling.get(shape, ALIKE) - ALIKE

    def _learn(self, new: set[bytes]) -> None:
        """Search shapes that were not seen before."""
        if not new:
            return
        for known in (self._dull, self._telling, self._around):
            if len(known) > SHAPES:
                known.clear()
        texts = list(new)
        joined = b"\n".join(texts)
        telling = {texts[number] for number in self._lines_with(joined, self._literals)}
        around = {texts[number] for number in self._lines_with(joined, self._beside)} - telling
        self._telling.update(dict.fromkeys(telling, 0))
        self._around.update(dict.fromkeys(around, BESIDE))
        self._dull.update(new - telling - around)

    @staticmethod
    def _lines_with(text: bytes, literals: LiteralIndex) -> set[int]:
        """Return the numbers of the lines, from 0, that hold any of some literals."""
        ends: list[int] = []
        found = set()
        for literal in literals.within(text):
            position = text.find(literal)
            while position >= 0:
                if not ends:
                    ends = [at - 1 for at in accumulate(len(line) + 1 for line in text.split(b"\n"))]
                number = bisect_right(ends, position)
                found.add(number)
                position = text.find(literal, ends[number] + 1)
        return found


def _without_digits(literals: Collection[bytes]) -> tuple[bytes, ...]:
    stripped = dict.fromkeys(literal.translate(None, DIGITS) for literal in literals)
    return tuple(literal for literal in stripped if len(literal) >= SHORTEST)
