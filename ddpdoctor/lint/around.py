"""A project as one of its files sees it; what checks ask of it is kept, since what they find hangs on the answers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from ddpdoctor.lint.cache import digest
from ddpdoctor.source.across.abroad import tree_of
from ddpdoctor.source.idle import idle_lines
from ddpdoctor.source.launching.own import in_own_launches
from ddpdoctor.source.pins import is_made_before
from ddpdoctor.source.starting import needed, starts_ranks

if TYPE_CHECKING:
    from ddpdoctor.source.across.project import Project
    from ddpdoctor.source.text.tree import Tree

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Around:
    """A project, seen from one of its files."""

    project: Project
    path: str
    asked: dict[tuple[str, str], str] = field(default_factory=dict)
    """What checks asked of files that this one does not reach, and a digest of each answer."""

    def says(self, word: str) -> bool:
        """Whether a regular expression occurs in the file or in reach of it: what it imports, and what imports it."""
        return self.project.says(self.path, word)

    def does(self, word: str) -> bool:
        """Whether a regular expression occurs where ``says`` looks, outside of functions that nobody there names."""
        if not self.says(word):
            return False
        idle = idle_lines(self.project, self.path)
        return any(
            _occurs(word, self.project.text(each), idle[each]) if each in idle else self.project.has(each, word)
            for each in self.project.reach(self.path)
        )

    def uses(self, word: str) -> bool:
        """Whether a regular expression occurs in the file, or in one that it imports, through any number of files."""
        return any(self.project.has(each, word) for each in self.project.below(self.path))

    def is_imported(self) -> bool:
        """Whether another file of those that are looked at imports the file."""
        return self._noted("is_imported", "", bool(self.project.importers.get(self.path)))

    def is_part_of(self, word: str) -> bool:
        """Whether a regular expression occurs in a file that imports this one, through any number of files."""
        return self._noted("is_part_of", word, self.project.is_part_of(self.path, word))

    def others_say(self, word: str) -> bool:
        """Whether a regular expression occurs in reach of the file, in another one."""
        return self.project.others_say(self.path, word)

    def mentions(self, word: str) -> bool:
        """Whether a word stands in a Python file of those that are looked at, or beside the file."""
        return self._noted("mentions", word, self.project.mentions(self.path, word))

    def in_launches(self, word: str) -> bool:
        """Whether a regular expression occurs in a launch script that is looked at, or in a README near the file."""
        return self._noted("in_launches", word, self.project.in_launches(self.path, word))

    def in_own_launches(self, word: str) -> bool:
        """Whether a regular expression occurs in a launch script that can start the file, or in a README near it."""
        return self._noted("in_own_launches", word, in_own_launches(self.project, self.path, word))

    def is_made_for_torch_before(self, version: str) -> bool:
        """Whether a README or a list of requirements near the file pins torch to versions before one, as ``2``."""
        return self._noted("is_made_for_torch_before", version, is_made_before(self.project, self.path, version))

    def launches_beside(self) -> list[str]:
        """Return the texts of the shell scripts, and of the jobs in YAML, in the folder of the file."""
        return self._noted("launches_beside", "", self.project.launches_beside(self.path))

    def beside(self, name: str) -> str | None:
        """Return the text of a file that a launch script names; None where there is none at that place."""
        return self._noted("beside", name, self.project.beside(self.path, name))

    def spawns(self, name: str) -> bool:
        """Whether a script that a launch script names starts ranks itself on every way, and reads no rank."""
        return starts_ranks(self.beside(name) or "")

    def needed(self, name: str) -> str:
        """Return the variable of a launcher that a script which a launch script names fails without, in each run."""
        return needed(self.beside(name) or "")

    def trees(self, word: str) -> Iterator[tuple[str, Tree]]:
        """Yield the Python files in reach of the file, itself left out, that a regular expression occurs in."""
        for other in sorted(self.project.reach(self.path) - {self.path}):
            if other.endswith(".py") and self.project.has(other, word):
                tree = tree_of(self.project, other)
                if tree is not None:
                    yield other, tree

    def near(self, word: str) -> list[Tree]:
        """Return the Python files near the file, but not in reach of it, that a regular expression occurs in."""
        apart = [each for each in self.project.near(self.path) if each not in self.project.reach(self.path)]
        found = [each for each in sorted(apart) if self.project.has(each, word)]
        self._noted("near", word, [self.project.digest(each) for each in found])
        return [tree for each in found if (tree := tree_of(self.project, each)) is not None]

    def unknown(self) -> set[str]:
        """Return the names of imports, in reach, that lead to code which is not known here."""
        return self.project.unknown(self.path)

    def _noted(self, question: str, about: str, answer: T) -> T:
        self.asked[question, about] = digest(repr(answer).encode(errors="replace"))
        return answer

    def still(self, asked: Iterable[tuple[str, str, str]]) -> bool:
        """Whether each of these questions has the answer of which this is the digest."""
        for question, about, answer in asked:
            getattr(self, question)(*[about] if about else [])
            if self.asked.get((question, about)) != answer:
                return False
        return True


def _occurs(word: str, text: str, idle: list[tuple[int, int]]) -> bool:
    """Whether a regular expression occurs in a text, beside these lines of it."""
    lines = (text.count("\n", 0, each.start()) + 1 for each in re.finditer(word, text))
    return any(not any(first <= line <= last for first, last in idle) for line in lines)
