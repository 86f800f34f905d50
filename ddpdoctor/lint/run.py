"""Looks at many files, and keeps what their comments allow."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.lint.comments import Ignore, ignores
from ddpdoctor.lint.examine import Found, examine, is_too_deep
from ddpdoctor.lint.reading import CannotReadError, decoded, read, script
from ddpdoctor.source.project import Project, without_comments

if TYPE_CHECKING:
    from ddpdoctor.facets import Check
    from ddpdoctor.findings import Severity

CERTAIN, LIKELY = "certain", "likely"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which findings the user asked for."""

    checks: tuple[Check, ...]
    ignored: tuple[Check, ...] = ()
    confidence: str = CERTAIN

    def __contains__(self, found: Found) -> bool:
        """Whether a finding is one of them."""
        return found.check not in self.ignored and (found.is_certain or self.confidence == LIKELY)


@dataclass(frozen=True, slots=True)
class Linted:
    """What was found in all files: ``files`` were looked at, ``parsed`` of them concern distributed training.

    ``faults`` are files that could not be read, ``useless`` comments that ignore nothing.
    """

    files: int = 0
    parsed: int = 0
    found: tuple[Found, ...] = ()
    faults: tuple[str, ...] = ()
    useless: tuple[str, ...] = ()
    crashes: tuple[str, ...] = ()
    seconds: float = 0.0

    def exit_status(self, fail_on: Severity) -> int:
        """Return 0 for nothing, 1 for certain findings, 2 where a file could not be looked at, 3 for a crash."""
        if self.crashes:
            return 3
        if self.faults or not self.files:
            return 2
        return int(any(each.is_certain and (each.finding.severity or fail_on) >= fail_on for each in self.found))


@dataclass
class _Sum:
    found: list[Found] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    useless: list[str] = field(default_factory=list)
    crashes: list[str] = field(default_factory=list)
    parsed: int = 0


def lint(paths: list[Path], wanted: Wanted) -> Linted:
    """Look at all files."""
    project = Project(others=tuple(os.path.normpath(path) for path in paths))
    total = _Sum()
    for path in paths:
        try:
            _look(str(path), read(path), project, wanted, total)
        except CannotReadError as exc:
            total.faults.append(str(exc))
    return _linted(len(paths), total)


def lint_text(name: str, data: bytes, wanted: Wanted) -> Linted:
    """Look at a text that an editor holds, as the file of this name."""
    total = _Sum()
    try:
        project = Project({os.path.normpath(name): without_comments(decoded(name, data))})
        _look(name, data, project, wanted, total)
    except CannotReadError as exc:
        total.faults.append(str(exc))
    return _linted(1, total)


def _linted(files: int, total: _Sum) -> Linted:
    return Linted(
        files, total.parsed, tuple(total.found), tuple(total.faults), tuple(total.useless), tuple(total.crashes)
    )


def _look(name: str, data: bytes, project: Project, wanted: Wanted, total: _Sum) -> None:
    parsed = script(name, data)
    if parsed is None:
        return
    if is_too_deep(parsed):
        raise CannotReadError(f"{name}: cannot look at it, because it is nested too deeply")
    total.parsed += 1
    looked = examine(wanted.checks, parsed, project)
    total.crashes += looked.crashes
    kept, useless = _kept(parsed.text, looked.found)
    total.found += [each for each in kept if each in wanted]
    if not wanted.ignored:
        known = {word for check in wanted.checks for word in (check.code.lower(), check.slug)}
        total.useless += [f"{name}:{line}: {text}" for line, text, names in useless if names <= known]


def _kept(text: str, found: Iterable[Found]) -> tuple[list[Found], list[tuple[int, str, frozenset[str]]]]:
    """Return the findings that no comment is about, and the comments of our own that are about none."""
    comments = ignores(text)
    used = set()
    kept = []
    for each in found:
        quiet = [
            c for c in comments if c.line == each.finding.place.line and c.covers(each.check.code, each.check.slug)
        ]
        used.update(quiet)
        if not quiet:
            kept.append(each)
    return kept, list(_useless(set(comments) - used))


def _useless(comments: Iterable[Ignore]) -> Iterator[tuple[int, str, frozenset[str]]]:
    for each in sorted(comments, key=lambda comment: comment.line):
        if each.is_own:
            what = ", ".join(sorted(each.names)) or "anything"
            yield each.line, f"this comment ignores {what}, and there is nothing to ignore on its line", each.names
