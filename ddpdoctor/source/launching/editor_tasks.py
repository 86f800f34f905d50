"""VS Code's launch.json as commands: a module or program, its arguments and variables."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from ddpdoctor.source.launching.shell import Command, Shell
from ddpdoctor.source.launching.shell_words import Word

if TYPE_CHECKING:
    from typing import Any

NOTES = re.compile(r"(\"(?:[^\"\\\n]|\\.)*\")|//[^\n]*|/\*[\s\S]*?\*/")
LAST_COMMA = re.compile(r"(\"(?:[^\"\\\n]|\\.)*\")|,(?=\s*[}\]])")
AGENT = re.compile(r"(?:.*/)?(?:torchrun|torch/distributed/run\.py|accelerate|deepspeed)$")


def commands(text: str) -> Shell:
    """Read the configurations; a file that is no JSON says nothing."""
    bare = LAST_COMMA.sub(lambda match: match[1] or "", NOTES.sub(lambda match: match[1] or "", text))
    try:
        held = json.loads(bare)
        configurations = [each for each in held["configurations"] if isinstance(each, dict)]
    except (ValueError, KeyError, TypeError, RecursionError):
        return Shell((), ())
    return Shell(tuple(each for one in configurations if (each := _command(one, text)) is not None), ())


def _command(held: dict[str, Any], text: str) -> Command | None:
    name, module, program = held.get("name"), held.get("module"), held.get("program")
    arguments, variables = held.get("args", []), held.get("env", {})
    if not isinstance(arguments, list) or not isinstance(variables, dict):
        return None
    begin = max(text.find(f'"{name}"'), 0)
    if isinstance(module, str):
        head, key = ["python", "-m", module], module
    elif isinstance(program, str) and AGENT.match(program.replace("\\", "/")):
        base = program.replace("\\", "/").rpartition("/")[2]
        head, key = ["torchrun" if base == "run.py" else base], program
    else:
        return None
    begin = max(text.find(f'"{key}"', begin), begin)
    line = text.count("\n", 0, begin) + 1

    def word(part: object) -> Word:
        return Word(str(part), line, begin, begin, is_open="${" in str(part) and "workspaceFolder" not in str(part))

    return Command(
        tuple((str(key), word(value)) for key, value in variables.items()),
        tuple(map(word, (*head, *arguments))),
        is_certain=True,
    )
