"""Command lines of launchers: their options, the script that they start, and the launcher that they stand behind."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ddpdoctor.source.launching.launcher_options import (
    ACCELERATE,
    DEEPSPEED,
    FLAGS,
    LAUNCH,
    TORCHRUN,
    VALUES,
    whole_name,
)

if TYPE_CHECKING:
    from ddpdoctor.source.launching.shell import Command
    from ddpdoctor.source.launching.shell_words import Word

MODULES = {LAUNCH: LAUNCH, "torch.distributed.run": TORCHRUN, "accelerate.commands.launch": ACCELERATE}
WRAPPERS = {"exec", "nohup", "time", "sudo", "env", "command", "setsid"}
RUNNERS = {"numactl", "taskset", "nsys", "stdbuf", "nice", "ionice", "timeout", "ddpdoctor", "uv", "poetry", "conda"}
RUNNERS |= {"mamba", "micromamba", "pixi", "pdm", "hatch", "pipenv", "rye", "catchsegv", "py-spy", "singularity"}
RUNNERS |= {"apptainer", "uvx"}
"""Programs that start another one, behind options of their own."""
SHELLS = re.compile(r"(?:.*/)?(?:ba|z|da)?sh$")
SCHEDULERS = {"srun": "srun", "mpirun": "mpirun", "mpiexec": "mpirun", "mpiexec.hydra": "mpirun", "orterun": "mpirun"}
PYTHONS = re.compile(r"(?:.*/)?python[\d.]*$")


@dataclass(frozen=True, slots=True)
class Launch:
    """A launcher's command line.

    ``options`` are by their names with hyphens, a flag with no value. ``is_open``: not all of its options are seen, and
    where they end is not certain; then there is no ``script``. ``outer`` are the launchers and schedulers that start
    this one, outermost first, ``before`` the words in front of it; ``handed`` is the script that it stands in, where a
    shell is handed one (``is_open``: it is expanded before). ``unknown`` is the first option that is none.
    """

    tool: str
    command: Command
    before: tuple[Word, ...]
    options: dict[str, Word | None]
    script: Word | None
    arguments: tuple[Word, ...]
    is_open: bool
    outer: tuple[str, ...] = ()
    handed: Word | None = None
    unknown: Word | None = None

    def is_of(self, commands: tuple[Command, ...]) -> bool:
        """Whether it stands in one of these commands of the file."""
        return any(self.command.words[-1] is each.words[-1] for each in commands if each.words)

    @property
    def line(self) -> int:
        """The line on which the command begins."""
        return self.command.line

    @property
    def scheduler(self) -> str:
        """What starts it several times, ``srun`` or ``mpirun``; empty where it is started once."""
        return next((SCHEDULERS[each] for each in self.outer if each in SCHEDULERS), "")


def launches(command: Command) -> list[Launch]:
    """Return the launchers of a command, each behind those that start it; none where something unknown starts one."""
    words = list(command.words)
    found: list[Launch] = []
    outer: list[str] = []
    at = 0
    while at < len(words):
        name = words[at].text.rpartition("/")[2]
        if (started := _tool(words, at)) is not None:
            tool, begin = started
            launch = _parsed(tool, command, at, begin, tuple(outer))
            found.append(launch)
            outer.append(tool)
            if launch.script is None:
                break
            at = words.index(launch.script)
            if _tool(words, at) is None:
                break
        elif name in SCHEDULERS:
            outer.append(name)
            at = _next_tool(words, at + 1)
        elif name in RUNNERS:
            at = _next_tool(words, at + 1)
        elif name in WRAPPERS or re.match(r"[A-Za-z_]\w*=", words[at].text):
            at += 1
        else:
            break
    return found


def handed_over(command: Command) -> tuple[int, Word] | None:
    """Return the script that a command hands to a shell (``srun bash -c '...'``), and where that shell stands."""
    words = command.words
    for place, word in enumerate(words[:-2]):
        if SHELLS.match(word.text) and re.fullmatch(r"-\w*c", words[place + 1].text):
            return place, words[place + 2]
    return None


def inner(outer: Command, given: tuple[Command, ...], place: int, script: Word) -> list[Launch]:
    """Return the launchers of a script that a command hands to a shell: what starts the shell starts them."""
    before = outer.words[:place]
    schedulers = tuple(each.text for each in before if each.text in SCHEDULERS)
    return [
        replace(
            each,
            before=(*before, *each.before),
            outer=(*schedulers, *each.outer),
            handed=script,
        )
        for command in given
        for each in launches(
            replace(
                command,
                is_certain=command.is_certain and outer.is_certain,
                in_background=command.in_background or outer.in_background,
                in_loop=command.in_loop or outer.in_loop,
            )
        )
    ]


def _next_tool(words: list[Word], at: int) -> int:
    """Return where a launcher's name stands behind a scheduler's options."""
    for place in range(at, len(words)):
        text = words[place].text
        if _tool(words, place) is not None:
            return place
        if PYTHONS.match(text) or text.endswith((".py", ".sh")) or text == "-c" or SHELLS.match(text):
            break
    return len(words)


def _tool(words: list[Word], at: int) -> tuple[str, int] | None:
    """Return the launcher whose name stands here, and where its options begin."""
    texts = [each.text for each in words[at : at + 4]]
    name = texts[0].rpartition("/")[2] if texts else ""
    if name in {"torchrun", "deepspeed"}:
        return (TORCHRUN if name == "torchrun" else DEEPSPEED), at + 1
    if name == "accelerate" and texts[1:2] == ["launch"]:
        return ACCELERATE, at + 2
    if PYTHONS.match(texts[0] if texts else ""):
        flags = 1 + sum(each in {"-u", "-O", "-B"} for each in texts[1:2])
        if texts[flags : flags + 1] == ["-m"] and len(texts) > flags + 1:
            module = MODULES.get(texts[flags + 1])
            return (module, at + flags + 2) if module else None
    return (MODULES[name], at + 1) if name in MODULES and at and words[at - 1].text == "-m" else None


def _parsed(tool: str, command: Command, name: int, at: int, outer: tuple[str, ...]) -> Launch:
    words = command.words
    flags, valued = set(FLAGS[tool].split()), set(VALUES[tool].split())
    options: dict[str, Word | None] = {}
    unknown = None
    while at < len(words) and (words[at].text.startswith("-") or words[at].is_open):
        word = words[at]
        key, equals, value = word.text.partition("=")
        key = key.lstrip("-").replace("_", "-") if len(key.lstrip("-")) > 1 else key.lstrip("-")
        key = whole_name(tool, key, flags | valued)
        if not word.text.startswith("-") or (key not in flags and key not in valued):
            # A script whose name the shell puts together is an open word as well.
            unknown = word
            break
        if equals:
            options[key] = _part(word, value)
        elif key in valued and at + 1 < len(words):
            options[key] = words[at + 1]
            at += 1
        else:
            options[key] = None
        at += 1
    script = words[at] if at < len(words) and unknown is None else None
    rest = words[at + 1 :] if script else ()
    return Launch(tool, command, words[:name], options, script, rest, unknown is not None, outer, unknown=unknown)


def _part(word: Word, text: str) -> Word:
    return replace(word, text=text)


def scheduler_options(before: tuple[Word, ...]) -> dict[str, Word | None]:
    """Return the options of srun or mpirun among the words before a launcher, without their hyphens."""
    found: dict[str, Word | None] = {}
    waiting = ""
    for word in before:
        text = word.text
        if text.startswith("--"):
            key, equals, value = text[2:].partition("=")
            found[key] = _part(word, value) if equals else None
            waiting = "" if equals else key
        elif re.match(r"-[A-Za-z]\d+$", text):
            found[text[1]] = _part(word, text[2:])
            waiting = ""
        elif text.startswith("-"):
            waiting = text[1:]
            found[waiting] = None
        elif waiting:
            found[waiting] = word
            waiting = ""
    return found
