"""Which of thousands of literals a text holds, without a search for each of them.

A literal of several words has words that stand in a text whole wherever the literal does; of the others a piece stands
within some word. So the set of the text's words tells at once which few literals are worth a search.
"""

from __future__ import annotations

from collections.abc import Iterable

IN_WORDS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_"
BEGIN = 4  # bytes of a piece that are looked up
APART = bytes(byte if byte in IN_WORDS else 32 for byte in range(256))


class LiteralIndex:
    """Literals, found by their words."""

    def __init__(self, literals: Iterable[bytes]) -> None:
        """Take the literals; each is listed by its longest whole word, or by how its longest piece of one begins."""
        self._by_word: dict[bytes, list[bytes]] = {}
        self._by_begin: dict[bytes, list[bytes]] = {}
        self._short: list[bytes] = []
        for literal in dict.fromkeys(literals):
            pieces = literal.translate(APART).split(b" ")
            word, piece = max(pieces[1:-1], key=len, default=b""), max(pieces, key=len)
            if word:
                self._by_word.setdefault(word, []).append(literal)
            elif len(piece) >= BEGIN:
                self._by_begin.setdefault(piece[:BEGIN], []).append(literal)
            else:
                self._short.append(literal)

    def within(self, text: bytes) -> list[bytes]:
        """Return the literals that the text holds."""
        words = set(text.translate(APART).split())
        joined = b" ".join(words)
        begins = {joined[at : at + BEGIN] for at in range(len(joined) - BEGIN + 1)}
        found = [literal for word in words & self._by_word.keys() for literal in self._by_word[word]]
        found += [literal for begin in begins & self._by_begin.keys() for literal in self._by_begin[begin]]
        return [literal for literal in (*found, *self._short) if literal in text]
