"""A variable is set in a script and not exported, so no process that it starts has it.

## What happens

`MASTER_ADDR=node1` on a line of its own sets a variable of the shell. What the shell starts does not have it: the
ranks end with "environment variable MASTER_ADDR expected, but not set", or NCCL and CUDA do as if nobody had said
anything. `MASTER_ADDR = node1`, with spaces, sets nothing at all: the shell looks for a program of that name.

## How to be sure

`MASTER_ADDR=node1; env | grep MASTER_ADDR` prints nothing. In a file (`ddpdoctor lint`): a variable that torch, NCCL or
CUDA read is set on a line of its own, above a command that starts ranks; nothing else in the file names it, and
nothing can have exported it (`source`, `set -a`, a job of Slurm for CUDA_VISIBLE_DEVICES). Open MPI's mpirun gives its
ranks on other hosts no variable of the shell but those that `-x` names, exported or not. torchrun sets MASTER_ADDR
and MASTER_PORT itself: in front of it they are no more than idle.

## How to mend it

    export MASTER_ADDR=node1

or before the command, on its line: `MASTER_ADDR=node1 python train.py`.

## Versions and sources

Source: Bash Reference Manual, "Environment"; POSIX, Shell Command Language, 2.12. Holds for every version of torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Severity, lint

from ...launching._launchers import SCRIPT

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Command, LaunchScript

AILMENT = Ailment("DDP126", Severity.WARNING)
READ_BY_RANKS = re.compile(
    r"(?:MASTER_(?:ADDR|PORT)|CUDA_VISIBLE_DEVICES|CUDA_LAUNCH_BLOCKING|NCCL_[A-Z_]+|GLOO_SOCKET_IFNAME|OMP_NUM_THREADS"
    r"|TORCH_(?:NCCL|DISTRIBUTED|CPP)_[A-Z_]+|TOKENIZERS_PARALLELISM|PYTORCH_CUDA_ALLOC_CONF)$"
)
MAY_EXPORT = re.compile(
    r"^\s*(?:source|\.|eval)\s|^\s*set\s+(?:-\w*a|-o\s+allexport)|^#!.*-a\b|\bmodule\s+load", re.MULTILINE
)
STARTS = re.compile(r"^(?:.*/)?(?:python[\d.]*|torchrun|accelerate|deepspeed|srun|mpirun|mpiexec)$")
FOR_ALL = {"CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"}
"""What Slurm gives its jobs: to set an exported variable changes it for those that are started."""


@lint
def in_launch_script(launch: LaunchScript) -> Iterator[Finding]:
    """Look for a variable of the ranks that only the shell has."""
    if launch.kind != "shell" or MAY_EXPORT.search(launch.text):
        return
    starts = [each for each in launch.shell.commands if each.words and STARTS.match(each.words[0].text)]
    last = max((each.line for each in starts), default=0)
    own = {each.line for each in launch.launches}
    reading = [each for each in starts if each.line not in own and not OWN_ADDRESS.search(_said(each))]
    plain = max((each.line for each in reading), default=0)
    for setting in launch.settings:
        command = setting.command
        if command is None or command.words or not command.is_certain or not READ_BY_RANKS.match(setting.name):
            continue
        said = [each for each in launch.lines if re.search(rf"^[^#]*\b{setting.name}\b", each)]
        below = plain if setting.name.startswith("MASTER_") else last
        if len(said) > 1 or setting.line >= below:
            continue
        if setting.name in FOR_ALL and launch.headers:
            continue
        yield Finding(
            f"{setting.name} is set for the shell alone: what line {below} starts does not have it",
            (launch.seen(setting.line, f"export {setting.name}=..."), launch.seen(below)),
            Fix(
                "export it",
                edits=(launch.replaced(setting.begin, setting.begin, "export "),),
            ),
            launch.place(setting.line, setting.begin),
        )


OWN_ADDRESS = re.compile(r"^mpi|deepspeed|accelerate|lightning|horovod", re.IGNORECASE)
"""What finds the address of the master in another way, and sets it for its ranks."""


def _said(command: Command) -> str:
    return " ".join(each.text for each in command.words)


@lint
def with_spaces(launch: LaunchScript) -> Iterator[Finding]:
    """Look for an assignment that has spaces around its sign: a command of that name."""
    for command in launch.shell.commands:
        is_export = bool(command.words) and command.words[0].text == "export"
        words = command.words[1:] if is_export else command.words
        if len(words) < 2 or not READ_BY_RANKS.match(words[0].text) or launch.kind != "shell":  # noqa: PLR2004 - a = b
            continue
        if words[1].text.startswith("=") and not words[1].text.startswith("=="):
            name = words[0].text
            value = words[2].text if words[2:] else words[1].text[1:]
            yield Finding(
                f"{name} is not set: with a space before the = "
                + (f"export takes {name} alone" if is_export else f"the shell looks for a program named {name}"),
                (launch.seen(command.line, f"export {name}=..."),),
                Fix("write it without spaces", command=f"export {name}={value}"),
                launch.place(command.line, words[0].begin),
            )


MEETING = ("MASTER_ADDR", "MASTER_PORT")
HOSTS = {"-H", "-host", "--host"}
GIVES_ALL = re.compile(r"(?:^|\s)(?:-x|--?mca|--?genv\w*|-envall)\s")


@lint
def behind_mpirun(launch: LaunchScript, project: Around) -> Iterator[Finding]:
    """Look for ranks of Open MPI on several hosts, whose script meets where variables of this shell alone say."""
    told = [each for each in launch.settings if each.name in MEETING and each.command and each.command.is_certain]
    for command in launch.shell.commands:
        words = [launch.value(each) or each.text for each in command.words]
        said = " ".join(words)
        listed = next((value for name, value in pairwise(words) if name in HOSTS), "")
        hosts = {each.partition(":")[0] for each in listed.split(",")} - {""}
        text = next((found for name in SCRIPT.findall(said) if (found := project.beside(name))), "")
        by_variables = "init_process_group" in text and "OMPI_COMM_WORLD_RANK" in text and "MASTER_ADDR" not in text
        if words[:1] != ["mpirun"] or len(hosts) < 2 or GIVES_ALL.search(said) or not by_variables:  # noqa: PLR2004
            continue
        if not told or "init_method" in text:
            continue
        missing = " ".join(f"-x {each.name}" for each in told)
        yield Finding(
            f"the ranks on the other hosts of {', '.join(sorted(hosts))} have no {told[0].name}: mpirun gives them no "
            "variable of this shell",
            (launch.seen(command.line, f"mpirun {missing} ..."), launch.seen(told[0].line)),
            Fix("name the variables to mpirun", command=f"mpirun {missing} ..."),
            launch.place(command.line),
        )
        return
