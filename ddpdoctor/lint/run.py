"""Looks at many files, and keeps what the user asked for."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.findings import Severity
from ddpdoctor.lint import CERTAIN, LIKELY
from ddpdoctor.lint.cache import open_cache
from ddpdoctor.lint.look import Work, examine_all, look
from ddpdoctor.lint.outcome import Outcome
from ddpdoctor.lint.reading import PYTHON, CannotReadError, decoded, kind
from ddpdoctor.registry import folders
from ddpdoctor.source.across.project import Project, without_comments

if TYPE_CHECKING:
    from ddpdoctor.facets import Check
    from ddpdoctor.lint.examine import Found
    from ddpdoctor.lint.look import Told


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which findings the user asked for."""

    checks: tuple[Check, ...]
    ignored: tuple[Check, ...] = ()
    confidence: str = CERTAIN

    def __contains__(self, found: Found) -> bool:
        """Whether a finding is one of them. Notes are advice, which is told where everything is."""
        return found.check not in self.ignored and (_is_told(found) or self.confidence == LIKELY)

    def withholds(self, found: Found) -> bool:
        """Whether a finding is left out by the confidence alone."""
        return found.check not in self.ignored and found not in self


def _is_told(found: Found) -> bool:
    """Whether a finding is told unasked: certain, and no note."""
    return found.is_certain and found.finding.severity is not Severity.NOTE


@dataclass(frozen=True, slots=True)
class Linted:
    """What was found in all files: ``files`` were looked at, ``parsed`` of them concern distributed training.

    ``faults`` are files that could not be read, ``useless`` comments that ignore nothing, ``left`` files that were not
    looked at, since the user broke it off. ``withheld`` counts the findings that ``--confidence likely`` tells besides.
    """

    files: int = 0
    parsed: int = 0
    found: tuple[Found, ...] = ()
    faults: tuple[str, ...] = ()
    useless: tuple[str, ...] = ()
    crashes: tuple[str, ...] = ()
    seconds: float = 0.0
    left: int = 0
    withheld: int = 0

    def exit_status(self, fail_on: Severity) -> int:
        """Return 0 for nothing, 1 for certain findings, 2 where a file could not be looked at, 3 for a crash.

        130 where it was broken off, as shells have it.
        """
        if self.left:
            return BROKEN_OFF
        if self.crashes:
            return 3
        if self.faults or not self.files:
            return 2
        return int(any(each.is_certain and (each.finding.severity or fail_on) >= fail_on for each in self.found))


BROKEN_OFF = 130
FEW = 50
"""Files that are looked at sooner than the cache is opened, or processes are started."""


def lint(paths: list[Path], wanted: Wanted, *, cached: bool = False, told: Told = lambda _, __: None) -> Linted:
    """Look at all files; ``cached``: many files are looked at only where they, or those around them, have changed.

    ``told`` is told how far it is.
    """
    several = len(paths) > FEW
    work = Work(wanted.checks, Project(others=tuple(os.path.normpath(path) for path in paths)))
    cache = None
    if cached and several:
        codes = [each.code for each in wanted.checks]
        cache = open_cache(Path.cwd(), codes, folders())
    outcomes = examine_all([str(path) for path in paths], work, cache, told, several=several)
    if cache is not None:
        cache.save()
    return replace(_linted(outcomes, wanted), left=len(paths) - len(outcomes))


def lint_text(name: str, data: bytes, wanted: Wanted) -> Linted:
    """Look at a text that an editor holds, as the file of this name."""
    try:
        text = decoded(name, data) if (kind(name) or PYTHON) == PYTHON else data.decode(errors="replace")
    except CannotReadError as exc:
        return _linted([Outcome(faults=(str(exc),))], wanted)
    work = Work(wanted.checks, Project({os.path.normpath(name): without_comments(text)}))
    return _linted([look(name, data, work)], wanted)


def _linted(outcomes: list[Outcome], wanted: Wanted) -> Linted:
    known = {word for check in wanted.checks for word in (check.code.lower(), check.slug)}
    return Linted(
        files=len(outcomes),
        parsed=sum(each.is_parsed for each in outcomes),
        found=tuple(found for each in outcomes for found in each.found if found in wanted),
        faults=tuple(fault for each in outcomes for fault in each.faults),
        useless=tuple(
            text for each in outcomes for _, text, names in each.useless if not wanted.ignored and names <= known
        ),
        crashes=tuple(crash for each in outcomes for crash in each.crashes),
        withheld=sum(wanted.withholds(found) for each in outcomes for found in each.found),
    )
