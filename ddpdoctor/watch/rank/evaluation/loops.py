"""Loops over a loader that evaluate: the gradients are switched off within the loop, not around it."""

from __future__ import annotations

import ast
import functools
import linecache
import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddpdoctor.watch.events import Site

LONGEST = 200  # lines of a loop
WITHOUT_GRADIENTS = ("no_grad", "inference_mode")


def is_without_gradients(site: Site | None) -> bool:
    """Whether all that a loop at this line does with its batches, but to move them, is within ``no_grad``."""
    return site is not None and _is_without_gradients(site.file, site.line)


@functools.cache
def _is_without_gradients(file: str, line: int) -> bool:
    lines = linecache.getlines(file)[line - 1 : line + LONGEST]
    if not lines or not lines[0].lstrip().startswith("for "):
        return False
    indent = len(lines[0]) - len(lines[0].lstrip())
    end = next(
        (at for at, each in enumerate(lines[1:], 1) if each.strip() and len(each) - len(each.lstrip()) <= indent),
        len(lines),
    )
    try:
        (loop,) = ast.parse(textwrap.dedent("".join(lines[:end]))).body
    except (SyntaxError, ValueError):
        return False
    *moves, last = loop.body if isinstance(loop, ast.For) else [loop]
    return _switches_off(last) and all(_moves(each) for each in moves)


def _switches_off(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.With):
        return False
    return any(
        ast.unparse(each.context_expr).endswith(f"{name}()") for each in statement.items for name in WITHOUT_GRADIENTS
    )


def _moves(statement: ast.stmt) -> bool:
    """Whether a statement only unpacks a batch, or brings it to a device."""
    calls = [each.func for each in ast.walk(statement) if isinstance(each, ast.Call)]
    return isinstance(statement, ast.Assign) and all(
        isinstance(each, ast.Attribute) and each.attr in {"to", "cuda", "float", "long", "items"} for each in calls
    )
