r"""The launcher's command ends before its last line: the shell takes what follows for a command of its own.

## What happens

A command goes on over the next line where the backslash is the last character of the line. With a space behind it,
with a comment or an empty line in between, or with the backslash left out, the command ends there. The launcher starts
without the options below, or with no script at all, and the shell says "--master_port=29501: command not found", above
or below the output of a training that runs with other options than those that are written.

With the line ends of Windows each backslash is followed by a carriage return: `$'\r': command not found`, "bad
interpreter: /bin/bash^M", and sbatch refuses the script ("DOS line breaks").

## How to be sure

`cat -A run.sh` shows the end of each line as `$`: a continued one ends in `\$`, not in `\ $` or `\^M$`. In a file
(`ddpdoctor lint`): the line below the launcher's command begins with an option.

## How to mend it

Delete what stands behind the backslash, move the comment above the command, write the backslash; `dos2unix run.sh` for
the line ends, and `*.sh text eol=lf` in .gitattributes.

## Versions and sources

Source: Bash Reference Manual, "Escape Character"; Slurm, sbatch. Holds for every version of torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Severity, lint

if TYPE_CHECKING:
    from ddpdoctor.check import Command, Edit, Launch, LaunchScript

AILMENT = Ailment("DDP490", Severity.ERROR)
OPTION = re.compile(r"--?[A-Za-z][\w.-]*(?:[ =\t\\]|$)")


@lint
def in_launch_script(launch: LaunchScript) -> Iterator[Finding]:
    """Look for an option where a command begins, right below a launcher's command."""
    if launch.kind != "shell" or "\r" in launch.text:
        return
    for (before, each), (_, following) in pairwise(_with_launchers(launch)):
        if before is None or not following.words:
            continue
        lost = following.words[0]
        between = launch.text[each.words[-1].end : lost.begin]
        is_option = OPTION.match(lost.text) and launch.text[lost.begin] == "-"
        is_script = each.words[-1].text == " " or (lost.text.endswith(".py") and before.script is None)
        if not (is_option or is_script) or not re.fullmatch(r"(?:\s|\\|#[^\n]*)*", between):
            continue
        why, mend = _why(launch, lost.line)
        yield Finding(
            f"the command of {before.tool} ends above line {lost.line}: {why}, so {lost.text[:40]} is no part of it",
            (launch.seen(lost.line, "a line of the command above"),),
            Fix(mend, edits=_joined(launch, lost.line)),
            launch.place(lost.line, lost.begin),
        )


def _with_launchers(launch: LaunchScript) -> Iterator[tuple[Launch | None, Command]]:
    by_begin = {each.command.words[0].begin: each for each in launch.launches if each.command.words}
    for command in launch.shell.commands:
        yield by_begin.get(command.words[0].begin) if command.words else None, command


def _why(launch: LaunchScript, line: int) -> tuple[str, str]:
    above = launch.lines[line - 2]
    if re.search(r"\\[ \t]+$", above):
        return "there is a space behind its backslash", "delete the space behind the backslash"
    if above.lstrip().startswith("#"):
        return "a comment stands between its lines", "move the comment above the command"
    if not above.strip():
        return "an empty line stands between its lines", "delete the empty line"
    return "it has no backslash at its end", "end the line above with a backslash"


def _joined(launch: LaunchScript, line: int) -> tuple[Edit, ...]:
    """Return the edit that makes the line above go on; none where a line stands between."""
    above = launch.lines[line - 2]
    end = sum(len(each) + 1 for each in launch.lines[: line - 1]) - 1
    if match := re.search(r"[ \t]+$", above) if re.search(r"\\[ \t]+$", above) else None:
        return (launch.replaced(end - len(match[0]), end, ""),)
    if above.strip() and not above.lstrip().startswith("#") and "#" not in above and "\\" not in above[-1:]:
        return (launch.replaced(end, end, " \\"),)
    return ()


@lint
def line_ends(launch: LaunchScript) -> Iterator[Finding]:
    """Look for the line ends of Windows in a script that names its shell."""
    first = launch.text.partition("\n")[0]
    if launch.kind != "shell" or not re.match(r"#!\S*(?:sh|env +\w+)\r$", first) or not launch.launches:
        return
    yield Finding(
        "the script has the line ends of Windows: no shell of Linux runs it",
        (launch.seen(1, "lines that end in a line feed alone"),),
        Fix("write it with the line ends of Linux", command=f"sed -i 's/\\r$//' {launch.path}"),
        launch.place(1),
    )
