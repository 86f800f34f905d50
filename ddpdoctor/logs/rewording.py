"""Other words for the same error: those that a terminal, a mailer or the user's language changed."""

from __future__ import annotations

import re
from collections.abc import Iterator

# What the C library says in English, as checks look for it; others say it in the user's language beside the number.
ENGLISH = {
    2: "No such file or directory",
    5: "Input/output error",
    11: "Resource temporarily unavailable",
    12: "Cannot allocate memory",
    13: "Permission denied",
    16: "Device or resource busy",
    17: "File exists",
    24: "Too many open files",
    28: "No space left on device",
    30: "Read-only file system",
    32: "Broken pipe",
    37: "No locks available",
    98: "Address already in use",
    99: "Cannot assign requested address",
    101: "Network is unreachable",
    104: "Connection reset by peer",
    110: "Connection timed out",
    111: "Connection refused",
    113: "No route to host",
    116: "Stale file handle",
    122: "Disk quota exceeded",
}
NUMBERED = re.compile(r"(?P<before>\[Errno (?P<python>\d+)\] |errno: (?P<torch>\d+) - )(?P<words>[^:()\n]*)")
BROKEN_AT = 50  # characters of a line that somebody can have broken


def in_english(text: str) -> str:
    """Return a text with the words for a numbered error in English, where they have letters that English has not."""
    return NUMBERED.sub(_english, text) if "rrno" in text and not text.isascii() else text


def _english(match: re.Match[str]) -> str:
    words = ENGLISH.get(int(match["python"] or match["torch"]))
    return match[0] if words is None or match["words"].isascii() else match["before"] + words


def unbroken(text: str, error: str) -> Iterator[str]:
    """Yield the text of an error with its message in one line, where that can have been broken."""
    start = text.rfind(f"\n{error}:") + 1
    first, *more = text[start:].split("\n")
    if more and len(first) >= BROKEN_AT:
        for between in (" ", ""):
            yield text[:start] + between.join([first, *(line.strip() if between else line for line in more)])
