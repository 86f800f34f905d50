"""The launch scripts that can start a file: not those that start others alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddpdoctor.source.across.project import Project

NAMED = re.compile(r"([\w-]+)\.py\b|-m[ \t]+(?:[\w.]+\.)?(\w+)")
ANY = re.compile(r"(?:python3?|torchrun|srun|launch)[ \t]+(?:-\S+[ \t]+)*[\"']?\$|\$\{?[@*]|\.sh\b")
"""What can start a file that a script does not name: a variable in its place, or another script."""
COMMENT = re.compile(r"^[ \t]*#.*$", re.MULTILINE)


def in_own_launches(project: Project, path: str, word: str) -> bool:
    """Whether a regular expression occurs in a launch script that can start a file, or in a README near it."""
    stems = {Path(each).stem for each in (path, *project.all_importers(path))}
    return any(re.search(word, each) is not None and _can_start(each, stems) for each in _launches(project, path))


def _launches(project: Project, path: str) -> Iterator[str]:
    yield from (project.text(each) for each in project.others if not each.endswith(".py"))
    yield project.beside(path, "README.md") or ""


def _can_start(text: str, stems: set[str]) -> bool:
    """Whether a script can start one of these files: it names one of them, or none at all, or leaves open which."""
    commands = COMMENT.sub("", text)
    named = {each[1] or each[2] for each in NAMED.finditer(commands)}
    return not named or bool(named & stems) or ANY.search(commands) is not None
