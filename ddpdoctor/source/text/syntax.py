"""Source files as syntax trees, each parsed once."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

NO_PYTHON = (SyntaxError, ValueError, MemoryError, RecursionError)
"""What Python's parser raises at a text that it cannot take."""


@functools.cache
def parsed(file: str) -> ast.Module:
    """Return the syntax tree of a file; an empty one where it cannot be read or is no Python."""
    try:
        return ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, *NO_PYTHON):
        return ast.Module(body=[], type_ignores=[])
