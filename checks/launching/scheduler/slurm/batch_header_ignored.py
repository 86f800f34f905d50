"""Lines of #SBATCH stand below a command, where Slurm does not read them.

## What happens

sbatch reads the header of a script up to its first command. What is asked for below it (nodes, tasks, GPUs) is a
comment: the job gets the cluster's defaults, often one task on one node without a GPU, and the ranks that never start
are waited for.

## How to be sure

`scontrol show job JOBID` shows what the job got. In a file (`ddpdoctor lint`): the line of the first command is above
that of the option.

## How to mend it

Move the lines above the first command; only comments and empty lines are allowed between them.

## Versions and sources

Source: Slurm, sbatch(1): "sbatch will stop processing further #SBATCH directives once the first non-comment
non-whitespace line has been reached in the script". Holds for every version of torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Severity, lint

if TYPE_CHECKING:
    from ddpdoctor.check import Edit, LaunchScript

AILMENT = Ailment("DDP467", Severity.ERROR)
SIZES = {"nodes", "ntasks", "ntasks-per-node", "gres", "gpus", "gpus-per-node", "gpus-per-task", "cpus-per-task"}


APART = re.compile(r"#[ \t]+SBATCH[ \t]+-")


@lint
def with_a_space(launch: LaunchScript) -> Iterator[Finding]:
    """Look for a script in which all the options stand behind ``# SBATCH``: of one with others, they are put out."""
    if launch.headers or not launch.lines[0].startswith("#!"):
        return
    late = [(line, comment) for line, comment in launch.shell.comments if APART.match(comment)]
    if not late or not all(launch.lines[line - 1] == comment for line, comment in late):
        return
    right = re.sub(r"#[ \t]+SBATCH", "#SBATCH", late[0][1])
    yield Finding(
        "Slurm does not read its options: a space stands between # and SBATCH",
        (launch.seen(late[0][0], right),),
        Fix("write #SBATCH in one word", edits=tuple(_joined(launch, *each) for each in late)),
        launch.place(late[0][0]),
    )


def _joined(launch: LaunchScript, line: int, comment: str) -> Edit:
    """Return the edit that takes the space out of a line."""
    begin = sum(len(each) + 1 for each in launch.text.split("\n")[: line - 1])
    return launch.replaced(begin, begin + comment.index("S"), "#")


@lint
def in_launch_script(launch: LaunchScript) -> Iterator[Finding]:
    """Look for the first option that comes too late and says how large the job is."""
    late = [each for each in launch.headers if not each.is_read and each.name in SIZES]
    if not late or not launch.lines[0].startswith("#!"):
        return
    first = min(launch.shell.commands, key=lambda command: command.line)
    yield Finding(
        f"Slurm does not read --{late[0].name}={late[0].value}: it stands below the first command",
        (launch.seen(late[0].line, f"above line {first.line}"), launch.seen(first.line)),
        Fix("move the lines of #SBATCH above the first command"),
        launch.place(late[0].line),
    )
