"""The launchers that Python starts: by subprocess, by os.system, and by ``!`` in a notebook."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from ddpdoctor.source.launching.launch_script import LaunchScript
from ddpdoctor.source.launching.script_variables import COMMANDED
from ddpdoctor.source.launching.shell import Command, Shell
from ddpdoctor.source.launching.shell_words import Word
from ddpdoctor.source.launching.yaml.commands import listed, within

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddpdoctor.source.script import Script

STARTS = {f"subprocess.{name}" for name in ("run", "Popen", "call", "check_call", "check_output")}
BY_SHELL = {"os.system", "subprocess.getoutput", "subprocess.getstatusoutput"}
LAUNCHER = re.compile(r"torchrun|torch\.distributed\.(?:run|launch)|accelerate|deepspeed|mpirun|srun")


def commands_of(script: Script) -> LaunchScript | None:
    """Return what a Python file or a notebook starts as a launch script; None where it starts nothing."""
    cells = script.cells
    found = [each for line, text in (cells.shell if cells else ()) for each in within(Word(text, line, 0, 0))]
    if LAUNCHER.search(script.text):
        for call in script.nodes(ast.Call):
            if call.args:
                found += _started(script, call)
    if not found:
        return None
    text = cells.written if cells else script.text
    return LaunchScript(script.path, text, COMMANDED, Shell(tuple(found), ()))


def _started(script: Script, call: ast.Call) -> Iterator[Command]:
    name = script.resolve(call.func)
    given = {each.arg: each.value for each in call.keywords}
    first = call.args[0]
    begin = script.place(call)
    line = begin.line or 1
    is_shell = name in BY_SHELL or (
        name in STARTS and isinstance(shell := given.get("shell"), ast.Constant) and shell.value is True
    )
    environment = given.get("env")
    variables = tuple(_variables(script.value(environment) if environment is not None else None, line))
    if is_shell:
        text = _text(first)
        if text is not None:
            for each in within(Word(text, line, 0, 0)):
                yield Command((*variables, *each.assigned), each.words, is_certain=False)
    elif name in STARTS and isinstance(first, ast.List):
        words = [_word(each, line) for each in first.elts]
        if words and None not in words:
            for each in listed([word for word in words if word is not None]):
                yield Command((*variables, *each.assigned), each.words, is_certain=False)


def _variables(node: ast.expr | None, line: int) -> Iterator[tuple[str, Word]]:
    """Yield what ``dict(os.environ, X="1")`` and ``{**os.environ, "X": "1"}`` add to the environment."""
    pairs: list[tuple[object, ast.expr]] = []
    if isinstance(node, ast.Call):
        pairs = [(each.arg, each.value) for each in node.keywords]
    elif isinstance(node, ast.Dict):
        pairs = [(key.value, value) for key, value in zip(node.keys, node.values, strict=True)
                 if isinstance(key, ast.Constant)]  # fmt: skip
    for key, value in pairs:
        if isinstance(key, str) and isinstance(value, ast.Constant):
            yield key, Word(str(value.value), line, 0, 0)


def _word(node: ast.expr, line: int) -> Word | None:
    text = _text(node)
    if isinstance(node, ast.Starred):
        return Word("$unknown", line, 0, 0, is_open=True)
    if text is None:
        return Word("$unknown", line, 0, 0, is_open=True)
    return Word(text, line, 0, 0, is_open="$unknown" in text)


def _text(node: ast.expr) -> str | None:
    """Return a text, with a variable in the place of what is put into it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, (str, int)):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(each.value) if isinstance(each, ast.Constant) else "$unknown" for each in node.values)
    if isinstance(node, ast.Attribute) and node.attr == "executable":
        return "python"
    return None
