"""A variable stands in single quotes, so the launcher gets its name in place of its value.

## What happens

The shell puts no value into single quotes: `--rdzv_endpoint='$MASTER_ADDR:29500'` hands torchrun a dollar and a name.
It looks for a host of that name and waits until its time-out, or refuses the number.

## How to be sure

`echo '$MASTER_ADDR:29500'` prints the name. In a file (`ddpdoctor lint`): a value of one of the launcher's own options
holds a variable in single quotes, and no second shell reads it. `accelerate launch` reads where the others are only
for several machines.

## How to mend it

Double quotes: `--rdzv_endpoint="$MASTER_ADDR:29500"`; for what a command says, `"$(...)"`.

## Versions and sources

Source: Bash Reference Manual, "Single Quotes". Holds for every version of torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Severity, launched_by, lint

if TYPE_CHECKING:
    from ddpdoctor.check import Edit, Launch, LaunchScript, Word

AILMENT = Ailment("DDP493", Severity.ERROR)
VARIABLE = re.compile(r"\$(?:\{\w+\}|[A-Za-z_]\w*)")
COMMAND = re.compile(r"[\w./-]+(?: [^'\"`]*)? \$")
"""A command in the quotes, which was to be run there: its words, and then a variable."""
OF_SEVERAL = {"main-process-ip", "machine-rank"}
"""What Accelerate reads where there are several machines."""


@lint
def in_launch_script(launch: LaunchScript) -> Iterator[Finding]:
    """Look for a variable that the shell leaves in the value of an option."""
    if launch.kind not in {"shell", "command"}:
        return
    for each in launch.launches:
        for name, word in each.options.items():
            raw = launch.text[word.begin : word.end] if word is not None and each.handed is None else ""
            match = VARIABLE.search(word.text) if word is not None and not word.reads and not word.is_open else None
            if word is None or match is None or not re.search(r"'[^']*\$", raw) or _is_unread(each, name):
                continue
            option = f"--{name.replace('-', '_')}"
            if COMMAND.match(word.text):
                yield Finding(
                    f"{option} is the text {word.text}: the shell runs no command in single quotes",
                    (launch.seen(word.line, f'"$({word.text})"'),),
                    Fix("let the shell run it", command=f'{option}="$({word.text})"'),
                    launch.place(word.line, word.begin),
                )
                continue
            yield Finding(
                f"{option} is {word.text}, a name and no value: the shell puts nothing into single quotes",
                (launch.seen(word.line, f'"{word.text}"'),),
                Fix("write double quotes", command=f'{option}="{word.text}"', edits=_doubled(launch, word)),
                launch.place(word.line, word.begin),
            )


def _is_unread(launch: Launch, name: str) -> bool:
    """Whether Accelerate is told, or takes it, that there is one machine: it does not ask where the others are."""
    machines = launch.options.get("num-machines")
    is_one = machines.text == "1" if machines is not None else "config-file" not in launch.options
    return launch.tool == "accelerate launch" and name in OF_SEVERAL and is_one


def _doubled(launch: LaunchScript, word: Word) -> tuple[Edit, ...]:
    """Return the edits that make the quotes of a word double ones; none where that gives another sign a meaning."""
    raw = launch.text[word.begin : word.end]
    if re.search(r'["\\`\n!]|\$\(', raw):
        return ()
    places = [word.begin + number for number, char in enumerate(raw) if char == "'"]
    return tuple(launch.replaced(each, each + 1, '"') for each in places)


@lint
def on_another_host(launch: LaunchScript) -> Iterator[Finding]:
    """Look for a variable of this script in what ssh starts on another host, in single quotes."""
    if launch.kind not in {"shell", "command"}:
        return
    for command in launch.shell.commands:
        words = command.words
        handed = words[-1] if len(words) > 2 and words[0].text == "ssh" else None  # noqa: PLR2004 - ssh HOST COMMAND
        if handed is None or handed.is_open or launch.text[handed.begin : handed.begin + 1] != "'":
            continue
        own = set(re.findall(r"\b(\w+)=", handed.text))
        for each in launched_by(handed):
            given = ((name, word, NAME.fullmatch(word.text)) for name, word in each.options.items() if word is not None)
            for name, word, match in given:
                if match is None or match["name"] in own or not launch.is_set(match["name"]):
                    continue
                option = f"--{name.replace('-', '_')}"
                yield Finding(
                    f"{option} is empty on that host: {word.text}, in single quotes, is a variable of this script",
                    (launch.seen(handed.line, "double quotes around what ssh is handed"),),
                    Fix("write double quotes, so that this shell puts its value in", command='ssh host "..."'),
                    launch.place(handed.line),
                )


NAME = re.compile(r"\$\{?(?P<name>\w+)\}?")
