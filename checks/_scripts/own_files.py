"""The user's own files: one with what it imports from its folder, and what several say."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable
from pathlib import Path

from ddpdoctor.check import tree_of

DEEP = 2  # imports
MOST = 20  # files


@functools.cache
def own_files(file: str) -> tuple[str, ...]:
    """Return a file and those of its folder that it imports, itself or by one of them."""
    found, new = [file], [file]
    for _ in range(DEEP):
        new = [each for one in new for each in _imported(one) if each not in found]
        found += dict.fromkeys(new)
    return tuple(found[:MOST])


def is_said(pattern: re.Pattern[str], files: Iterable[str]) -> bool:
    """Whether one of the files says something; one that cannot be read may."""
    try:
        return any(pattern.search(Path(file).read_text(encoding="utf-8")) for file in files)
    except (OSError, ValueError):
        return True


def _imported(file: str) -> list[str]:
    names: list[str] = []
    tree = tree_of(file)
    for each in tree.of(ast.ImportFrom):
        names += [each.module] if each.module else [alias.name for alias in each.names]
    names += [alias.name for each in tree.of(ast.Import) for alias in each.names]
    folder = Path(file).parent
    places = [
        folder / f"{part}.py" for name in names for part in (name.replace(".", "/"), name.rpartition(".")[2]) if part
    ]
    return [str(each) for each in dict.fromkeys(places) if each.is_file()]
