"""Finds what any of many patterns could match: the offsets in a block of bytes, and the patterns for a text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ddpdoctor.explain.needles import needles

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

    patterns: tuple[re.Pattern[str], ...]
    everywhere: tuple[re.Pattern[str], ...]
    """Those that no literal text announces."""
    owners: tuple[tuple[re.Pattern[str], ...], ...]
    """For each needle, the patterns that need it."""
    in_bytes: Callable[[bytes], Iterator[int]]
    in_text: Callable[[str], set[int]]

    def offsets(self, block: bytes) -> Iterator[int]:
        """Give where in a block something stands that a pattern, or the reader, looks for, in ascending order."""
        return self.in_bytes(block)

    def matching(self, text: str) -> tuple[re.Pattern[str], ...]:
        """Give the patterns that match the text."""
        owned = (pattern for index in sorted(self.in_text(text)) for pattern in self.owners[index])
        candidates = dict.fromkeys((*self.everywhere, *owned))
        return tuple(pattern for pattern in candidates if pattern.search(text))


def finder(signs: Iterable[re.Pattern[str]], beside: Iterable[re.Pattern[str]] = ()) -> Finder:
    """Prepare the search for the patterns of signs, and for those beside them.

    A sign's pattern without a literal text has to be tried on each line, which takes its time; one beside a sign is
    only looked for in what is kept for another reason.
    """
    signs = tuple(signs)
    owners: dict[str, list[re.Pattern[str]]] = {}
    everywhere = []
    patterns = tuple(dict.fromkeys((*signs, *beside)))
    for pattern in patterns:
        wanted = needles(pattern)
        for needle in wanted:
            owners.setdefault(needle, []).append(pattern)
        if not wanted:
            everywhere.append(pattern)
    search = _each_line if set(everywhere) & set(signs) else _bytes_search(tuple(dict.fromkeys((*owners, *STRUCTURE))))
    return Finder(patterns, tuple(everywhere), tuple(map(tuple, owners.values())), search, _text_search(tuple(owners)))


def _each_line(block: bytes) -> Iterator[int]:
    position = 0
    while position < len(block):
        yield position
        end = block.find(b"\n", position)
        position = len(block) if end < 0 else end + 1


def _bytes_search(texts: tuple[str, ...]) -> Callable[[bytes], Iterator[int]]:
    try:
        from ahocorasick_rs import BytesAhoCorasick
    except ModuleNotFoundError:
        pattern = re.compile(b"|".join(re.escape(text.encode()) for text in texts))
        return lambda block: (match.start() for match in pattern.finditer(block))
    automaton = BytesAhoCorasick([text.encode() for text in texts])
    return lambda block: (start for _, start, _ in automaton.find_matches_as_indexes(block))


def _text_search(texts: tuple[str, ...]) -> Callable[[str], set[int]]:
    try:
        from ahocorasick_rs import AhoCorasick
    except ModuleNotFoundError:
        return lambda text: {index for index, needle in enumerate(texts) if needle in text}
    automaton = AhoCorasick(texts)
    return lambda text: {index for index, _, _ in automaton.find_matches_as_indexes(text, overlapping=True)}
