"""Headers of Slurm's batch scripts, and variables that a script sets."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ddpdoctor.source.launching.shell import ASSIGNMENT, Command

if TYPE_CHECKING:
    from ddpdoctor.source.launching.shell_words import Word


SBATCH = re.compile(r"#SBATCH\s+(?P<options>[^#\n]*)")
SHORT = {"N": "nodes", "n": "ntasks", "c": "cpus-per-task", "a": "array", "G": "gpus", "J": "job-name", "o": "output"}
EXPORTS = {"export", "declare", "typeset", "readonly", "local"}


@dataclass(frozen=True, slots=True)
class Header:
    """An option of a batch script's header. ``is_read``: it stands before the first command, so Slurm reads it."""

    name: str
    value: str
    line: int
    is_read: bool


@dataclass(frozen=True, slots=True)
class Setting:
    """A variable that is set; ``begin`` is where its name stands in the text, ``where`` what sets it."""

    name: str
    value: Word | None
    line: int
    begin: int
    command: Command | None = None


def options(words: list[str]) -> list[tuple[str, str]]:
    """Return the options of a header by name and value, the value empty where there is none."""
    found: list[tuple[str, str]] = []
    for word in words:
        if word.startswith("--"):
            name, _, value = word[2:].partition("=")
            found.append((name, value))
        elif word.startswith("-") and len(word) > 1:
            found.append((word[1], word[2:]))
        elif found and not found[-1][1]:
            found[-1] = (found[-1][0], word)
    return found


def settings(command: Command) -> list[Setting]:
    """Return the variables that a command is given, or sets for what it starts."""
    found = [Setting(name, word, word.line, word.begin, command) for name, word in command.assigned]
    words = command.words
    head = words[0].text.rpartition("/")[2] if words else ""
    for place, word in enumerate(words):
        before = words[place - 1].text if place else ""
        match = ASSIGNMENT.match(word.text)
        if head == "docker" and re.match(r"(?:-e|--env)=", word.text):
            skip = word.text.index("=") + 1
            match = re.compile(r"([A-Za-z_]\w*)(?:=|$)").match(word.text, skip)
        if match is None or not (
            head in EXPORTS
            or head in {"env", "ENV"}
            or (before in {"-e", "--env", "-x", "-genv"})
            or "-e" in word.text[:2]
            or "--env" in word.text[:5]
        ):
            continue
        value = replace(word, text=word.text[match.end() :])
        found.append(Setting(match[1], value, word.line, word.begin + match.start(1), command))
    return found
