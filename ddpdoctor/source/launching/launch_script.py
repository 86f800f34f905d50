"""Files that start trainings: shell and batch scripts, Dockerfiles, Makefiles, YAML of jobs, launch.json."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ddpdoctor.findings import Edit, Evidence, Place
from ddpdoctor.source.launching.headers import SBATCH, SHORT, Header, options
from ddpdoctor.source.launching.launchers import Launch, handed_over, inner, launches
from ddpdoctor.source.launching.script_variables import SHELL, Variables
from ddpdoctor.source.launching.yaml.commands import within

if TYPE_CHECKING:
    from ddpdoctor.source.launching.shell_words import Word

GPUS = re.compile(r"^gpu(?::[A-Za-z][\w.-]*)?:(\d+)(?:\([^)]*\))?$")


def launched_by(script: Word) -> list[Launch]:
    """Return the launchers of a script that is one word: of what another host is told to run."""
    return [each for command in within(script) for each in launches(command)]


@dataclass
class LaunchScript(Variables):
    """A file that starts a training; ``path`` is as findings show it. What is asked of it is worked out once."""

    @cached_property
    def parts(self) -> tuple[LaunchScript, ...]:
        """The batch scripts that it writes by here-documents; their lines are those of this file."""
        return tuple(
            LaunchScript(self.path, "\n" * (first - 1) + body.replace("\\$", "$"), SHELL)
            for first, body in self.shell.documents
            if body.lstrip().startswith("#!")
        )

    @cached_property
    def headers(self) -> tuple[Header, ...]:
        """The options of its #SBATCH lines."""
        first = min((command.line for command in self.shell.commands), default=0)
        found = []
        for line, comment in self.shell.comments:
            if (match := SBATCH.match(comment)) is None or not self._begins(line):
                continue
            for name, value in options(match["options"].split()):
                found.append(Header(SHORT.get(name, name), value, line, line < first or not first))
        return tuple(found)

    def _begins(self, line: int) -> bool:
        """Whether a comment is the whole line: Slurm reads no other."""
        return self.lines[line - 1].startswith("#SBATCH")

    def header(self, name: str) -> Header | None:
        """Return the header that Slurm takes for an option, the last one."""
        return next((each for each in reversed(self.headers) if each.name == name and each.is_read), None)

    def count(self, name: str) -> int | None:
        """Return the number that a header gives; None where it gives none, or a range."""
        header = self.header(name)
        return int(header.value) if header and header.value.isdecimal() else None

    @cached_property
    def lines(self) -> list[str]:
        """The lines of the file, without their ends."""
        return re.split(r"\r\n|\r|\n", self.text)

    @cached_property
    def launches(self) -> tuple[Launch, ...]:
        """The launchers that it starts."""
        found: list[Launch] = []
        for command in map(self.expanded, self.shell.commands):
            handed = handed_over(command)
            found += launches(command)
            if handed is not None:
                found += inner(command, tuple(within(handed[1])), *handed)
        return tuple(found)

    def gpus(self) -> tuple[int, Header] | None:
        """Return how many GPUs of a node the headers ask for."""
        found = [each for each in self.headers if each.is_read and each.name in {"gres", "gpus-per-node"}]
        if len(found) != 1:
            return None
        value = found[0].value
        match = GPUS.match(value if found[0].name == "gres" else f"gpu:{value}")
        return (int(match[1]), found[0]) if match else None

    def place(self, line: int, begin: int | None = None) -> Place:
        """Return a place of the file."""
        column = None if begin is None else begin - (self.text.rfind("\n", 0, begin) + 1) + 1
        return Place(file=self.path, line=line, column=column)

    def seen(self, line: int, expected: str = "") -> Evidence:
        """Return a line as evidence."""
        return Evidence(self.lines[line - 1].strip(), expected, f"line {line}")

    def replaced(self, begin: int, end: int, text: str) -> Edit:
        """Return the edit that puts a text in the place of another, within a line."""
        start = self.text.rfind("\n", 0, begin) + 1
        line = self.text.count("\n", 0, begin) + 1
        before = len(self.text[start:begin].encode())
        return Edit(line, before, line, before + len(self.text[begin:end].encode()), text)

    def reads(self, name: str) -> bool:
        """Whether the file uses a variable that it sets."""
        return bool(
            re.search(rf"\$\{{?[#!]?{name}\b|%{name}%|getenv\W+{name}\b|environ\W+(?:get\W+)?{name}\b", self.text)
        )
