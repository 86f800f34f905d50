"""Source files as syntax trees, each parsed once."""

from __future__ import annotations

import ast
import functools
from pathlib import Path


@functools.cache
def parsed(file: str) -> ast.Module:
    """Return the syntax tree of a file; an empty one where it cannot be read or is no Python."""
    try:
        return ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError, MemoryError, RecursionError):
        return ast.Module(body=[], type_ignores=[])
