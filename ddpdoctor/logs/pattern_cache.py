"""The log patterns of all checks, kept in the user's cache: so that only those checks are imported that a log shows.

The cache holds what was declared and the literals of each pattern. It is valid as long as the files of all checks, and
those that it was made by, are what they were; anything else about it, and a cache that cannot be written, only costs
time.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from ddpdoctor.facets import Check, LogPattern, Pattern, Role
from ddpdoctor.literals import literals
from ddpdoctor.logs.candidates import Declared, declared
from ddpdoctor.registry import folders, load_check, load_checks

MAKERS = ("facets.py", "declaration.py", "registry.py", "logs/pattern_cache.py", "literals.py")
Rows = list[dict[str, Any]]


def cached() -> tuple[tuple[Declared, ...], dict[str, list[str]]]:
    """Return the log patterns of all checks, and the literals of each pattern.

    Raises:
        LoadError: a check cannot be loaded.
    """
    found = folders()
    path = _path(found)
    stamp = _stamp(found)
    kept = _read(path, stamp)
    if kept is None:
        checks = load_checks()
        kept = {"stamp": stamp, "rows": _rows(checks), "literals": _literals(checks)}
        _write(path, kept)
    return tuple(map(_declared, kept["rows"])), kept["literals"]


def _rows(checks: Iterable[Check]) -> Rows:
    return [
        {
            "origin": check.origin,
            "facet": number,
            "pattern": subject.pattern.pattern,
            "role": subject.role.value,
            "context": [each.pattern for each in subject.context],
            "supersedes": list(subject.supersedes),
            "waits": subject.waits,
            "plain": subject.plain,
        }
        for check in checks
        for number, facet in enumerate(check.facets)
        if isinstance(subject := facet.subject, LogPattern)
    ]


def _literals(checks: Iterable[Check]) -> dict[str, list[str]]:
    patterns = {each for one in declared(checks) for each in (one.log_pattern.pattern, *one.log_pattern.context)}
    return {pattern.pattern: sorted(literals(pattern.pattern)) for pattern in patterns}


def _declared(row: dict[str, Any]) -> Declared:
    subject = LogPattern(
        Pattern(row["pattern"]),
        Role(row["role"]),
        tuple(map(Pattern, row["context"])),
        tuple(row["supersedes"]),
        row["waits"],
        row["plain"],
    )
    return Declared(subject, partial(load_check, row["origin"]), row["facet"])


def _stamp(searched: list[str]) -> str:
    """Return a digest of what the cache depends on: Python, and size and time of each file."""
    root = Path(__file__).parents[1]
    seen = [sys.version, *(_state((root / name).stat()) for name in MAKERS)]
    seen += [f"{path} {state}" for folder in searched for path, state in sorted(_files(folder))]
    return hashlib.sha256("\n".join(seen).encode(errors="surrogateescape")).hexdigest()


def _files(folder: str) -> Iterator[tuple[str, str]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _files(entry.path) if entry.name != "__pycache__" else ()
            elif entry.name.endswith(".py"):
                yield entry.path, _state(entry.stat())


def _state(file: os.stat_result) -> str:
    return f"{file.st_mtime_ns} {file.st_size}"


def _path(folders: list[str]) -> Path | None:
    """Return where the cache of these packages lies; None where the user has no home."""
    which = hashlib.sha256("\n".join(folders).encode(errors="surrogateescape")).hexdigest()[:12]
    try:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        return None
    return root / "ddpdoctor" / f"log-patterns-{which}.json" if root.is_absolute() else None


def _read(path: Path | None, stamp: str) -> dict[str, Any] | None:
    try:
        kept = json.loads(path.read_bytes()) if path else None
        return kept if kept and kept["stamp"] == stamp else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(path: Path | None, kept: dict[str, Any]) -> None:
    """Replace the file as a whole, since several of us can run at once."""
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
            json.dump(kept, file)
        Path(file.name).replace(path)
    except OSError:
        return
