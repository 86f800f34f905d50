"""Files that start trainings: shell and batch scripts, Dockerfiles, and YAML of jobs."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from ddpdoctor.findings import Edit, Evidence, Place
from ddpdoctor.source.launching import dockerfile, yaml_lines
from ddpdoctor.source.launching.headers import EXPORTS, SBATCH, SHORT, Header, Setting, options, settings
from ddpdoctor.source.launching.launchers import Launch, launches, scheduler_options
from ddpdoctor.source.launching.shell import Command, Shell, read_shell
from ddpdoctor.source.launching.shell_words import ShellError, Word

if TYPE_CHECKING:
    from ddpdoctor.source.launching.yaml_lines import Item

SHELL, DOCKERFILE, YAML = "shell", "Dockerfile", "YAML"
GPUS = re.compile(r"^gpu(?::[A-Za-z][\w.-]*)?:(\d+)(?:\([^)]*\))?$")


@dataclass
class LaunchScript:
    """A file that starts a training; ``path`` is as findings show it. What is asked of it is worked out once."""

    path: str
    text: str
    kind: str = SHELL

    @cached_property
    def shell(self) -> Shell:
        """Its commands; none where they cannot be followed to the end of the file."""
        try:
            if self.kind == SHELL:
                return read_shell(self.text)
            return dockerfile.commands(self.text) if self.kind == DOCKERFILE else Shell((), ())
        except ShellError:
            return Shell((), ())

    @cached_property
    def items(self) -> tuple[Item, ...]:
        """Its keys and values, of YAML."""
        return yaml_lines.items(self.text) if self.kind == YAML else ()

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
    def settings(self) -> tuple[Setting, ...]:
        """What it sets: by assignments, ``export``, ``ENV``, ``-e`` of docker, ``-x`` of mpirun and in YAML."""
        found = [each for command in self.shell.commands for each in settings(command)]
        found += [Setting(each.name, None, each.line, each.begin) for each in self.items if each.is_variable]
        return tuple(found)

    @cached_property
    def _values(self) -> dict[str, list[Setting]]:
        found: dict[str, list[Setting]] = defaultdict(list)
        for each in self.settings:
            found[each.name].append(each)
        return found

    def held(self, word: Word, depth: int = 5) -> Word:
        """Return the word that a variable was given, where the file sets it once and in every run; else the word."""
        match = re.fullmatch(r"\$(?:(\w+)|\{(\w+)\})", word.text) if word.is_open else None
        name = (match[1] or match[2]) if match else ""
        settings = self._values.get(name, [])
        if len(settings) != 1 or depth == 0 or self._is_loop(name):
            return word
        command, given = settings[0].command, settings[0].value
        if command is None or not command.is_certain or (command.words and command.words[0].text not in EXPORTS):
            return word
        return self.held(given, depth - 1) if given is not None else word

    def value(self, word: Word | None) -> str | None:
        """Return a word's text as the program gets it; None where that is not certain."""
        held = self.held(word) if word is not None else None
        return None if held is None or held.is_open else held.text

    def _is_loop(self, name: str) -> bool:
        return bool(re.search(rf"\b(?:for|select|read|getopts)\b[^\n]*\b{name}\b", self.text))

    def number(self, word: Word | None) -> int | None:
        """Return the number that a word is; None where that is not certain."""
        text = self.value(word)
        return int(text) if text is not None and text.isdecimal() and len(text) < 6 else None  # noqa: PLR2004 - as said

    @cached_property
    def launches(self) -> tuple[Launch, ...]:
        """The launchers that it starts."""
        return tuple(each for command in self.shell.commands for each in launches(self._expanded(command)))

    def _expanded(self, command: Command) -> Command:
        """Put the words of a variable that holds options in its place."""
        words: list[Word] = []
        for word in command.words:
            is_bare = word.is_open and self.text[word.begin : word.end] == word.text
            settings = self._values.get(word.text.strip("${}"), []) if is_bare else []
            held = settings[0].value if len(settings) == 1 and settings[0].command else None
            if held is None or not settings[0].command or not settings[0].command.is_certain or held.text.endswith("="):
                words.append(word)
            elif settings[0].command.line < word.line:
                words += [
                    replace(
                        word,
                        text=part,
                        reads=tuple(re.findall(r"\$\{?(\w+)", part)),
                        is_open=bool(re.search(r"[$`]", part)),
                    )
                    for part in held.text.split()
                ]
        return replace(command, words=tuple(words))

    def tasks(self, launch: Launch) -> tuple[int, Header | None] | None:
        """Return how often srun starts a launcher, by the headers; None where that is not certain."""
        options = scheduler_options(launch.before)
        own = {SHORT.get(name, name) for name in options}
        if launch.scheduler != "srun" or own & {
            "ntasks",
            "ntasks-per-node",
            "nodes",
            "nodelist",
            "w",
            "ntasks-per-gpu",
        }:
            return None
        if any(word.is_open and not word.text.startswith("-") for word in launch.before[1:]):
            return None
        nodes, each, total = self.count("nodes"), self.count("ntasks-per-node"), self.count("ntasks")
        if any(
            self._values.get(name) for name in ("SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", "SLURM_NPROCS", "SLURM_NNODES")
        ):
            return None
        if total is not None:
            return total, self.header("ntasks")
        return (nodes * each, self.header("ntasks-per-node")) if nodes and each else None

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
