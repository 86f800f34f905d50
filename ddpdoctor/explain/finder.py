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

    always: tuple[re.Pattern[str], ...]
    """Those that no literal text announces: every line has to be tried."""
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
        candidates = dict.fromkeys((*self.always, *owned))
        return tuple(pattern for pattern in candidates if pattern.search(text))


def finder(patterns: Iterable[re.Pattern[str]]) -> Finder:
    """Prepare the search for some patterns."""
    owners: dict[str, list[re.Pattern[str]]] = {}
    always = []
    for pattern in dict.fromkeys(patterns):
        wanted = needles(pattern)
        for needle in wanted:
            owners.setdefault(needle, []).append(pattern)
        if not wanted:
            always.append(pattern)
    lines = dict.fromkeys((*owners, *STRUCTURE)) if not always else {"\n": None}
    return Finder(
        tuple(always), tuple(map(tuple, owners.values())), _bytes_search(tuple(lines)), _text_search(tuple(owners))
    )


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
