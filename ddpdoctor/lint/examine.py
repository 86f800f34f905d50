"""Shows a script to all checks that read source."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ddpdoctor.engine import evaluate
from ddpdoctor.facets import Instrument
from ddpdoctor.findings import Ambiguity
from ddpdoctor.lint.around import Around
from ddpdoctor.lint.edits import as_diff, is_offered
from ddpdoctor.source.across.abroad import link
from ddpdoctor.source.idle import idle_name
from ddpdoctor.source.launching.from_python import commands_of
from ddpdoctor.source.script import Script
from ddpdoctor.source.text.steps import STEPS, TooManyStepsError

if TYPE_CHECKING:
    from ddpdoctor.facets import Check, Facet
    from ddpdoctor.findings import Finding
    from ddpdoctor.source.across.project import Project
    from ddpdoctor.source.launching.launch_script import LaunchScript

    Source = Script | LaunchScript


@dataclass(frozen=True, slots=True)
class Found:
    """What a check found in a file."""

    check: Check
    finding: Finding

    @property
    def is_certain(self) -> bool:
        """Whether the source alone proves it."""
        return self.finding.ambiguity is None


@dataclass(frozen=True, slots=True)
class Looked:
    """What all checks found in a file, by place, which of them crashed over it, and what they asked of other files."""

    found: tuple[Found, ...] = ()
    crashes: tuple[str, ...] = ()
    asked: tuple[tuple[str, str, str], ...] = ()


PYTHON = ".py"
DEEPEST = 150
"""Levels of a tree that is looked at; people write 30."""


def is_too_deep(script: Script) -> bool:
    """Whether a tree has so many levels that what walks through it would end at Python's limit."""
    return script.tree.depth > DEEPEST


def _link(script: Script, project: Project) -> None:
    """Let a file find what it imports; the tree that others have found it by already is the one that is looked at."""
    path = os.path.normpath(script.path)
    known = project.trees.get(path)
    if known is not None and project.whole(path) == script.text.replace("\r\n", "\n"):
        script.module, script.tree = known.module, known
    else:
        link(project, path, script.tree)


def examine(checks: tuple[Check, ...], script: Source, project: Project) -> Looked:
    """Ask all checks that have a facet for it; of a test, none.

    Raises:
        TooManyStepsError: what is asked of it would take too long.
    """
    if isinstance(script, Script):
        if script.is_test:
            return Looked()
        _link(script, project)
    found, crashes = [], []
    around = Around(project, os.path.normpath(script.path))
    for given in _faces(script):
        name = "script" if isinstance(given, Script) else "launch"
        needs: dict[str, Any] = {name: given, "project": around}
        for check, facet in _facets(checks, name):
            said = evaluate(check, facet, needs.__getitem__)
            told = [each for each in said.findings if not _never_runs(each, script)]
            found += [Found(check, _doubted(_with_diff(each, script), script, project)) for each in told]
            if STEPS.is_over:
                raise TooManyStepsError
            if said.crash:
                crashes.append(f"{script.path}: {check.code} {check.slug} crashed: {said.crash}")
    asked = tuple((*question, answer) for question, answer in around.asked.items())
    return Looked(tuple(sorted(_once(found), key=_where)), tuple(crashes), asked)


@functools.lru_cache(maxsize=8)
def _facets(checks: tuple[Check, ...], name: str) -> tuple[tuple[Check, Facet], ...]:
    """Return the facets that ask for this input: the same for all files of a run."""
    return tuple((check, facet) for check in checks for facet in check.of(Instrument.LINT) if name in facet.needs)


def _faces(script: Source) -> Iterator[Source]:
    """Yield a file, and what it holds of other kinds: batch scripts that it writes, commands that Python starts."""
    yield script
    if isinstance(script, Script):
        started = commands_of(script)
        if started is not None:
            yield started
    else:
        yield from script.parts


def _never_runs(finding: Finding, script: Source) -> bool:
    """Whether no call comes to the place of a finding."""
    place = finding.place
    return isinstance(script, Script) and script.never_runs(place.line or 0, place.column or 0)


def _doubted(finding: Finding, script: Source, project: Project) -> Finding:
    """Leave a finding open that stands in what nobody calls: nothing happens there, as far as can be seen."""
    if finding.ambiguity is not None or not isinstance(script, Script) or not script.path.endswith(PYTHON):
        return finding
    name = idle_name(project, os.path.normpath(script.path), finding.place.line or 0)
    if name is None:
        return finding
    causes = (f"{name} is not called: no harm", "a program calls it that lies elsewhere")
    return replace(finding, ambiguity=Ambiguity(causes, f"grep -rnw {name} ."))


def _once(found: list[Found]) -> list[Found]:
    return [*{(each.check.code, each.finding.place, each.finding.message): each for each in found}.values()]


def _where(found: Found) -> tuple[int, int, str]:
    return found.finding.place.line or 0, found.finding.place.column or 0, found.check.code


def _with_diff(finding: Finding, script: Source) -> Finding:
    """Show the edits as a diff; one that leaves no Python is not offered."""
    fix = finding.fix
    if not fix.edits:
        return finding
    if not is_offered(script.text, fix.edits, is_python=isinstance(script, Script)):
        return replace(finding, fix=replace(fix, edits=()))
    return replace(finding, fix=replace(fix, diff=as_diff(script.text, fix.edits)))
