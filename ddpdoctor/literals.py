"""Literal text that a regular expression cannot match without: to look for that first is quick.

A gigabyte of log is searched for all literals of all patterns at once, as bytes; only lines that hold one become text.
"""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SHORTEST = 4  # characters: anything shorter stands in every other line
# The parser of ``re`` itself: a second grammar of regular expressions, written here, would be the second truth.
_parser: Any = importlib.import_module("re._parser" if hasattr(re, "_parser") else "sre_parse")
Literals = frozenset[str]
NONE: Literals = frozenset()


def literals(pattern: str) -> Literals:
    """Return texts of which at least one occurs wherever a pattern matches; none where no such texts are known."""
    parsed = _parser.parse(pattern)
    return NONE if parsed.state.flags & re.IGNORECASE else _of_sequence(parsed)


def _of_sequence(tokens: Iterable[tuple[Any, Any]]) -> Literals:
    """Return the best of what the parts of a sequence need, each literal run being a part."""
    return max(_parts(tokens), key=_worth, default=NONE)


def _parts(tokens: Iterable[tuple[Any, Any]]) -> Iterator[Literals]:
    run = ""
    for operator, argument in tokens:
        name = str(operator)
        if name == "LITERAL":
            run += chr(argument)
            continue
        if name != "AT":  # an anchor has no width: the run goes on
            yield _one(run)
            run = ""
            yield _of_token(name, argument)
    yield _one(run)


def _of_token(name: str, argument: Any) -> Literals:
    if name == "SUBPATTERN":
        _, added, _, inner = argument
        return NONE if added & re.IGNORECASE else _of_sequence(inner)
    if name == "ATOMIC_GROUP":
        return _of_sequence(argument)
    if name in {"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"}:
        least, _, inner = argument
        return _of_sequence(inner) if least else NONE
    if name == "BRANCH":
        each = [_of_sequence(branch) for branch in argument[1]]
        return NONE if NONE in each else frozenset().union(*each)
    return NONE


def _one(run: str) -> Literals:
    """Take the longest piece of a run that stands in one line."""
    longest = max(run.split("\n"), key=len)
    return frozenset({longest}) if len(longest) >= SHORTEST else NONE


def _worth(found: Literals) -> int:
    return min(map(len, found), default=0)
