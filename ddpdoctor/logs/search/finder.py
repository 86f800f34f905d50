"""Finds what any of many patterns could match: the offsets in a block of bytes, and the patterns for a text."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ddpdoctor.literals import literals
from ddpdoctor.logs.search.prefilter import Shapes
from ddpdoctor.logs.search.words import LiteralIndex

if TYPE_CHECKING:
    from ddpdoctor.facets import Pattern

# What the reader itself understands, whatever the log patterns declare.
STRUCTURE = (
    "Traceback (most recent call last)",
    ", line ",
    "Error: ",
    "Exception: ",
    "torch._dynamo.exc.",
    "terminate called ",
    ": Unhandled exception: ",
    "  time      : ",
    "(first observed failure)",
    # where a job ends, and where another begins
    "ChildFailedError",
    "Exited with exit code",
    "exits with return code",
    "returned non-zero exit status",
    " CANCELLED AT ",
    "torch.distributed.run",
    "torch/distributed/run.py:",
    "Starting elastic_operator",
    "torchrun ",
    ":main] cmd = ",
)


@dataclass(frozen=True, slots=True)
class Finder:
    """All patterns, searched for at once by their literals."""

    patterns: tuple[Pattern, ...]
    everywhere: tuple[Pattern, ...]
    """Those that no literal text announces."""
    literals: LiteralIndex
    owners: Mapping[bytes, tuple[Pattern, ...]]
    """For each literal, the patterns that need it."""
    order: Mapping[Pattern, int]
    shapes: Shapes | None
    """Finds the lines worth a look; None where every line has to be looked at."""

    def anew(self) -> Finder:
        """Return one that has read nothing yet."""
        return self if self.shapes is None else replace(self, shapes=self.shapes.anew())

    def offsets(self, block: bytes) -> Iterator[int]:
        """Yield where in a block lines begin that a pattern, or the reader, looks for, in ascending order."""
        return _each_line(block) if self.shapes is None else self.shapes.offsets(block)

    def matching(self, text: str) -> tuple[Pattern, ...]:
        """Return the patterns that match the text."""
        within = self.literals.within(text.encode(errors="surrogatepass"))
        owned = {pattern for literal in within for pattern in self.owners[literal]}
        return tuple(pattern for pattern in self.everywhere if pattern.search(text)) + tuple(
            pattern for pattern in sorted(owned, key=self.order.__getitem__) if pattern.search(text)
        )

    def skipped(self) -> Iterator[tuple[tuple[Pattern, ...], int]]:
        """Yield how many lines like others were passed over, and the patterns that match one of them."""
        for line, count in self.shapes.skipped() if self.shapes is not None else ():
            yield self.matching(line.decode(errors="replace")), count


def finder(
    declared: Iterable[Pattern],
    context: Iterable[Pattern] = (),
    needs: Callable[[str], Collection[str]] = literals,
) -> Finder:
    """Prepare the search for declared patterns, and for their context patterns; ``needs`` returns their literals.

    A pattern without a literal text has to be tried on each line, which takes its time; a context pattern is
    only looked for in what is kept for another reason.
    """
    ordered = tuple(declared)
    own = frozenset(ordered)
    owners: dict[str, list[Pattern]] = {}
    everywhere = []
    patterns = tuple(dict.fromkeys((*ordered, *context)))
    for pattern in patterns:
        wanted = needs(pattern.pattern)
        for literal in wanted:
            owners.setdefault(literal, []).append(pattern)
        if not wanted:
            everywhere.append(pattern)
    announcing = {literal for literal, its in owners.items() if not own.isdisjoint(its)} | set(STRUCTURE)
    shapes = None
    if own.isdisjoint(everywhere):
        shapes = Shapes([text.encode() for text in announcing], [text.encode() for text in owners.keys() - announcing])
    return Finder(
        patterns,
        tuple(everywhere),
        LiteralIndex(text.encode() for text in owners),
        {literal.encode(): tuple(patterns) for literal, patterns in owners.items()},
        {pattern: number for number, pattern in enumerate(patterns)},
        shapes,
    )


def _each_line(block: bytes) -> Iterator[int]:
    position = 0
    while position < len(block):
        yield position
        end = block.find(b"\n", position)
        position = len(block) if end < 0 else end + 1
