"""The variables of a launch script, and the words that its shell puts in their place."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from ddpdoctor.source.launching import dockerfile, editor_tasks, makefile
from ddpdoctor.source.launching.headers import EXPORTS, Setting, settings
from ddpdoctor.source.launching.shell import Command, Shell, read_shell
from ddpdoctor.source.launching.shell_words import ShellError, Word
from ddpdoctor.source.launching.yaml.commands import Container, containers, variables
from ddpdoctor.source.launching.yaml.tree import documents

if TYPE_CHECKING:
    from ddpdoctor.source.launching.yaml.node import Node

SHELL, DOCKERFILE, YAML, MAKEFILE, EDITOR = "shell", "Dockerfile", "YAML", "Makefile", "launch.json"
TYPED = "command"
"""One command that is about to be started; others can stand beside it, on this host or on others."""
COMMANDED = "Python"
"""A Python file or a notebook, of which the commands that it starts are read."""
LOOPS = re.compile(r"\b(?:for|select|read|getopts)\b([^\n]*)")


@dataclass
class Variables:
    """The commands of a launch script, with what its variables hold."""

    path: str
    text: str
    kind: str = SHELL
    given: Shell | None = None

    @cached_property
    def shell(self) -> Shell:
        """Its commands; none where they cannot be followed to the end of the file."""
        try:
            if self.kind in {SHELL, TYPED}:
                return read_shell(self.text)
        except ShellError:
            return Shell((), ())
        if self.given is not None:
            return self.given
        readers = {DOCKERFILE: dockerfile.commands, MAKEFILE: makefile.commands, EDITOR: editor_tasks.commands}
        if self.kind in readers:
            return readers[self.kind](self.text)
        return Shell(tuple(each for one in self.containers for each in one.commands), ())

    @cached_property
    def containers(self) -> tuple[Container, ...]:
        """What is started, of YAML: containers, services, steps."""
        return tuple(containers(self.documents))

    @cached_property
    def documents(self) -> list[Node]:
        """Its documents as trees, of YAML."""
        return documents(self.text) if self.kind == YAML else []

    @cached_property
    def settings(self) -> tuple[Setting, ...]:
        """What it sets: by assignments, ``export``, ``ENV``, ``-e`` of docker, ``-x`` of mpirun and in YAML."""
        given = {id(word) for one in self.containers for word in one.environment.values()}
        found = [each for command in self.shell.commands for each in settings(command) if id(each.value) not in given]
        found += [
            Setting(name, None, line, begin)
            for name, line, begin in variables(self.documents)
            if self.text.startswith(name, begin)
        ]
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
        return name in self._looped

    @cached_property
    def _looped(self) -> frozenset[str]:
        """The words behind those of the shell that give a variable one value after another."""
        return frozenset(word for rest in LOOPS.findall(self.text) for word in re.findall(r"\w+", rest))

    def number(self, word: Word | None) -> int | None:
        """Return the number that a word is; None where that is not certain."""
        text = self.value(word)
        return int(text) if text is not None and text.isdecimal() and len(text) < 6 else None  # noqa: PLR2004 - as said

    def is_set(self, name: str) -> bool:
        """Whether the file sets a variable."""
        return name in self._values

    def expanded(self, command: Command) -> Command:
        """Put the words of a variable that holds options in its place."""
        words: list[Word] = []
        for word in command.words:
            if (array := self._array(word)) is not None:
                words += array
            else:
                words += self._parts(word)
        return replace(command, words=tuple(words))

    def _parts(self, word: Word, depth: int = 5) -> list[Word]:
        """Return the words that the shell makes of a variable without quotes; the word where that is not known."""
        is_bare = word.is_open and (depth < 5 or self.text[word.begin : word.end] == word.text)  # noqa: PLR2004 - as given
        held = self._text(word.text, word.begin) if is_bare and depth else None
        if held is None or held.endswith("="):
            return [word]
        parts = [
            replace(
                word, text=part, reads=tuple(re.findall(r"\$\{?(\w+)", part)), is_open=bool(re.search(r"[$`]", part))
            )
            for part in held.split()
        ]
        return [each for part in parts for each in self._parts(part, depth - 1)]

    def _text(self, variable: str, before: int) -> str | None:
        """Return what a variable holds at a place: what each run of the script gives it, and adds to it."""
        match = re.fullmatch(r"\$(?:(\w+)|\{(\w+)\})", variable)
        name = (match[1] or match[2]) if match else ""
        text: str | None = None
        for each in self._values.get(name, []):
            given, command = each.value, each.command
            if given is None or command is None or not command.is_certain:
                return None
            if (command.words and command.words[0].text not in EXPORTS) or re.search(r"\$\(|`", given.text):
                return None
            if each.begin >= before:
                continue
            own = re.compile(rf"\$(?:{name}\b|\{{{name}\}})")
            if text is None and (self.text.startswith(f"{name}+=", each.begin) or own.search(given.text)):
                return None  # it adds to what the environment holds
            added = (text or "") if self.text.startswith(f"{name}+=", each.begin) else ""
            text = added + own.sub(lambda _, held=text or "": held, given.text)  # type: ignore[misc]
        return None if text is None or self._is_loop(name) else text

    def _array(self, word: Word) -> tuple[Word, ...] | None:
        """Return the words of an array that stands in a word's place, where all of it is certain."""
        match = re.fullmatch(r"\$\{(\w+)\[[@*]\]\}", word.text) if word.is_open else None
        given = [each for each in self.shell.arrays if match and each[0].rstrip("+") == match[1]]
        is_sure = bool(given) and all(sure for _, _, sure in given) and not given[0][0].endswith("+")
        if not is_sure or any(not name.endswith("+") for name, _, _ in given[1:]):
            return None
        return tuple(each for _, words, _ in given for each in words)
