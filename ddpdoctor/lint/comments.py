"""Comments that keep findings of a line quiet: ``# ddpdoctor: ignore[DDP604] why`` and ``# noqa: DDP604``."""

from __future__ import annotations

import io
import re
import tokenize
from dataclasses import dataclass

OWN = re.compile(r"#\s*ddpdoctor:\s*ignore(?:\[(?P<names>[^\]]*)\])?", re.IGNORECASE)
NOQA = re.compile(r"#\s*noqa(?::\s*(?P<names>[A-Z]+[0-9]+(?:[,\s]+[A-Z]+[0-9]+)*))?(?!\w)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Ignore:
    """A comment on a line; without names it is about every check. ``is_own``: it is ddpdoctor's, not any linter's."""

    line: int
    names: frozenset[str]
    is_own: bool

    def covers(self, code: str, slug: str) -> bool:
        """Whether it is about this check."""
        return not self.names or bool({code.lower(), slug} & self.names)


def ignores(text: str, *, is_python: bool = True) -> tuple[Ignore, ...]:
    """Return the comments of a source, in its order; of one that is no Python, whatever looks like one."""
    if not re.search(r"#\s*(?:ddpdoctor|noqa)", text, re.IGNORECASE):
        return ()
    if not is_python:
        found = (_read(line, number) for number, line in enumerate(text.split("\n"), 1))
        return tuple(each for each in found if each is not None)
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    read = (_read(token.string, token.start[0]) for token in tokens if token.type == tokenize.COMMENT)
    try:
        return tuple(each for each in read if each is not None)
    except (tokenize.TokenError, SyntaxError):
        return ()  # no Python after all


def _read(comment: str, line: int) -> Ignore | None:
    for pattern, is_own in ((OWN, True), (NOQA, False)):
        if match := pattern.search(comment):
            names = re.split(r"[,\s]+", (match["names"] or "").lower())
            return Ignore(line, frozenset(filter(None, names)), is_own)
    return None
