"""Launchers of one script that run at the same time on one host, and are given one port."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddpdoctor.check import Launch, LaunchScript

WAITS = {"wait", "sleep"}


def port_of(launch: LaunchScript, each: Launch) -> str | None:
    """Return the port that a launcher is given as a number; None where there is none, or it is not certain."""
    port = launch.value(each.options.get("master-port") or each.options.get("main-process-port"))
    return port if port is not None and port.isdecimal() and port != "0" else None


def beside(launch: LaunchScript) -> Iterator[tuple[Launch, str, int]]:
    """Yield each launcher that finds its port taken by one that it does not wait for, and the line of that one.

    The line is that of the launcher itself where a loop starts it in the background, and waits for none.
    """
    waits = [each.line for each in launch.shell.commands if each.words and each.words[0].text in WAITS]
    looped = any(each.in_loop and each.words and each.words[0].text in WAITS for each in launch.shell.commands)
    taken: dict[str, Launch] = {}
    for each in launch.launches:
        port = port_of(launch, each)
        if port is None or each.outer or {"node-rank", "machine-rank"} & each.options.keys():
            continue
        first = taken.get(port)
        if first is not None and each.command.is_certain and not any(first.line < line < each.line for line in waits):
            yield each, port, first.line
        elif each.command.in_background and each.command.in_loop and not looped:
            yield each, port, each.line
        elif each.command.in_background and each.command.is_certain:
            taken[port] = each
