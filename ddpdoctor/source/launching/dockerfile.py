"""A Dockerfile as commands: what RUN, CMD and ENTRYPOINT start, and what ENV sets."""

from __future__ import annotations

import json
import re
from dataclasses import replace

from ddpdoctor.source.launching.shell import Command, Shell, read_shell
from ddpdoctor.source.launching.shell_words import ShellError, Word

INSTRUCTION = re.compile(
    r"^[ \t]*(RUN|CMD|ENTRYPOINT|ENV)[ \t]+((?:[^\n]*\\\r?\n)*[^\n]*)", re.MULTILINE | re.IGNORECASE
)


def commands(text: str) -> Shell:
    """Read a Dockerfile; an instruction that is not understood says nothing."""
    found: list[Command] = []
    for match in INSTRUCTION.finditer(text):
        line = text.count("\n", 0, match.start(2)) + 1
        found += _read(match[1].upper(), match[2], line, match.start(2))
    return Shell(tuple(found), ())


def _read(what: str, rest: str, line: int, begin: int) -> list[Command]:
    if what in {"CMD", "ENTRYPOINT"} and rest.lstrip().startswith("["):
        return _listed(rest, line, begin)
    try:
        read = [each.moved(begin) for each in read_shell(rest, line).commands]
    except ShellError:
        return []
    if what != "ENV":
        return read
    words = [word for each in read for word in (*(_whole(each)), *each.words)]
    if words and "=" not in words[0].text and len(words) > 1:  # ENV NAME value
        words = [replace(words[0], text=f"{words[0].text}={words[1].text}", is_open=True)]
    return [Command((), (Word("ENV", line, begin, begin), *words), is_certain=True)]


def _whole(command: Command) -> list[Word]:
    return [replace(word, text=f"{name}={word.text}") for name, word in command.assigned]


def _listed(rest: str, line: int, begin: int) -> list[Command]:
    try:
        words = json.loads(rest)
    except ValueError:
        return []
    if not isinstance(words, list) or not words or not all(isinstance(each, str) for each in words):
        return []
    return [Command((), tuple(Word(each, line, begin, begin) for each in words), is_certain=True)]
