"""Which files are looked at."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator
from pathlib import Path

from ddpdoctor.facets import BadTarget
from ddpdoctor.lint.reading import kind
from ddpdoctor.suggest import why_no_file

SKIPPED = frozenset(
    ".git .hg .svn .venv venv env node_modules site-packages __pycache__ .tox .nox .eggs .mypy_cache"
    " .ruff_cache .pytest_cache .ipynb_checkpoints".split()
)


def find(names: tuple[str, ...], exclude: tuple[str, ...], base: Path) -> list[Path]:
    """Return the files that the user means: those named, and what is read of the folders named.

    Folders that hold no sources of the user's are skipped, and what matches a pattern of ``exclude``, which is seen
    from ``base``. A link to a folder is not followed.

    Raises:
        BadTarget: there is no such file or folder.
    """
    found: dict[Path, None] = {}
    for name in names:
        path = Path(name)
        if path.is_dir():
            found |= dict.fromkeys(each for each in _below(path) if not _is_excluded(each, exclude, base))
        elif path.is_file():
            found[path] = None
        else:
            raise BadTarget(why_no_file(name).replace("there is no file", "there is no file or folder"))
    return list(found)


def _below(folder: Path) -> Iterator[Path]:
    for where, folders, files in os.walk(folder):
        folders[:] = sorted(each for each in folders if not _is_skipped(where, each))
        yield from (
            Path(where, each) for each in sorted(files) if kind(each) is not None and Path(where, each).is_file()
        )


BUILT = {"dist", "build"}
"""Folders of what was built, unless Python files lie in them: users keep the distributed part of a project there."""


def _is_skipped(where: str, folder: str) -> bool:
    if folder in BUILT:
        return next(Path(where, folder).glob("*.py"), None) is None
    return folder in SKIPPED or folder.endswith(".egg-info")


def _is_excluded(path: Path, patterns: tuple[str, ...], base: Path) -> bool:
    if not patterns:
        return False
    text = os.path.relpath(path, base).replace(os.sep, "/")
    parents = [text, *(str(each) for each in Path(text).parents)]
    return any(fnmatch.fnmatch(each, pattern.rstrip("/")) for pattern in patterns for each in parents)
