"""Shows a script to all checks that read source."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ddpdoctor.engine import evaluate
from ddpdoctor.facets import Instrument
from ddpdoctor.lint.edits import as_diff, is_offered
from ddpdoctor.source.abroad import link, tree_of
from ddpdoctor.source.launching.from_python import commands_of
from ddpdoctor.source.script import Script
from ddpdoctor.source.starting import needed, starts_ranks

if TYPE_CHECKING:
    from ddpdoctor.facets import Check
    from ddpdoctor.findings import Finding
    from ddpdoctor.source.launching.launch_script import LaunchScript
    from ddpdoctor.source.project import Project
    from ddpdoctor.source.text.tree import Tree

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
    """What all checks found in a file, by place, and which of them crashed over it, with the reason."""

    found: tuple[Found, ...] = ()
    crashes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Around:
    """A project, seen from one of its files."""

    project: Project
    path: str

    def says(self, word: str) -> bool:
        """Whether a regular expression occurs in the file or in reach of it: what it imports, and what imports it."""
        return self.project.says(self.path, word)

    def is_imported(self) -> bool:
        """Whether another file of those that are looked at imports the file."""
        return bool(self.project.importers.get(self.path))

    def others_say(self, word: str) -> bool:
        """Whether a regular expression occurs in reach of the file, in another one."""
        return self.project.others_say(self.path, word)

    def mentions(self, word: str) -> bool:
        """Whether a word stands in a Python file of those that are looked at, or beside the file."""
        return self.project.mentions(self.path, word)

    def in_launches(self, word: str) -> bool:
        """Whether a regular expression occurs in a launch script that is looked at, or in a README near the file."""
        return self.project.in_launches(self.path, word)

    def launches_beside(self) -> list[str]:
        """Return the texts of the shell scripts in the folder of the file."""
        return self.project.launches_beside(self.path)

    def beside(self, name: str) -> str | None:
        """Return the text of a file that a launch script names; None where there is none at that place."""
        return self.project.beside(self.path, name)

    def spawns(self, name: str) -> bool:
        """Whether a script that a launch script names starts ranks itself on every way, and reads no rank."""
        return starts_ranks(self.beside(name) or "")

    def needed(self, name: str) -> str:
        """Return the variable of a launcher that a script which a launch script names fails without, in each run."""
        return needed(self.beside(name) or "")

    def trees(self, word: str) -> Iterator[tuple[str, Tree]]:
        """Yield the Python files in reach of the file, itself left out, that a regular expression occurs in."""
        for other in sorted(self.project.reach(self.path) - {self.path}):
            if other.endswith(".py") and re.search(word, self.project.text(other)):
                tree = tree_of(self.project, other)
                if tree is not None:
                    yield other, tree

    def unknown(self) -> set[str]:
        """Return the names of imports, in reach, that lead to code which is not known here."""
        return self.project.unknown(self.path)


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


def examine(checks: Iterable[Check], script: Source, project: Project) -> Looked:
    """Ask all checks that have a facet for it; of a test, none."""
    if isinstance(script, Script):
        if script.is_test:
            return Looked()
        _link(script, project)
    found, crashes = [], []
    around = Around(project, os.path.normpath(script.path))
    for given in _faces(script):
        name = "script" if isinstance(given, Script) else "launch"
        needs: dict[str, Any] = {name: given, "project": around}
        for check in checks:
            for facet in check.of(Instrument.LINT):
                if name not in facet.needs:
                    continue
                said = evaluate(check, facet, needs.__getitem__)
                found += [
                    Found(check, _with_diff(each, script)) for each in said.findings if not _never_runs(each, script)
                ]
                if said.crash:
                    crashes.append(f"{script.path}: {check.code} {check.slug} crashed: {said.crash}")
    return Looked(tuple(sorted(_once(found), key=_where)), tuple(crashes))


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
