"""Writes commands that can be pasted into a shell, whatever the names in them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable


def shell_quote(word: str, encoding: str = "ascii") -> str:
    r"""Return a word as bash and zsh read it; ``encoding`` is what the reader's terminal can show.

    What it cannot show, and control characters, are spelled out: ``$'caf\xc3\xa9.pt'``.
    """
    try:
        word.encode(encoding)
    except UnicodeEncodeError:
        return _spelled(word)
    return shlex.quote(word) if word.isprintable() else _spelled(word)


def shell_join(words: Iterable[str], encoding: str = "ascii") -> str:
    """Return a command of these words."""
    return " ".join(shell_quote(word, encoding) for word in words)


def _spelled(word: str) -> str:
    plain = {byte: chr(byte) for byte in range(ord(" "), ord("~") + 1) if chr(byte) not in "'\\"}
    return "$'" + "".join(plain.get(byte, f"\\x{byte:02x}") for byte in os.fsencode(word)) + "'"
