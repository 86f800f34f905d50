"""The launcher is given a port that there is not.

## What happens

Ports are numbers up to 65535. torchrun refuses a greater one before it starts a rank: "The port number of the
rendezvous endpoint '127.0.0.1:66666' must be an integer between 0 and 65536". So does the store, where a script passes
the number on.

## How to be sure

Read the number in the command, or `echo $MASTER_PORT` in the shell that starts it.

## How to mend it

Take a free number from 1024 to 65535, as 29500; `--standalone` finds one itself on one node.

## Versions and sources

Seen with torch 2.13. Source: torch/distributed/elastic/rendezvous/utils.py, `parse_rendezvous_endpoint`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Severity, lint

if TYPE_CHECKING:
    from ddpdoctor.check import LaunchScript

AILMENT = Ailment("DDP457", Severity.ERROR)
OPTIONS = ("master-port", "main-process-port", "rdzv-endpoint")
GREATEST = 65535


@lint
def in_launch_script(launch: LaunchScript) -> Iterator[Finding]:
    """Read the ports that launchers are given, and that of the environment."""
    for each in launch.launches:
        for name in OPTIONS:
            value = launch.value(each.options.get(name)) or ""
            yield from _refused(launch, value.rpartition(":")[2], f"--{name.replace('-', '_')}", each.line)
    for setting in launch.settings:
        if setting.name == "MASTER_PORT" and setting.value is not None and not setting.value.is_open:
            yield from _refused(launch, setting.value.text, "MASTER_PORT", setting.line)


def _refused(launch: LaunchScript, text: str, name: str, line: int) -> Iterator[Finding]:
    if text.isdecimal() and int(text) > GREATEST:
        yield Finding(
            f"{name} is {text}, and ports end at {GREATEST}: nothing is started",
            (launch.seen(line, "a number from 1024 to 65535"),),
            Fix("take a port that there is", command="--master_port=29500"),
            launch.place(line),
        )
