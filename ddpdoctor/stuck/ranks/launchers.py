"""Launchers among the processes of this host: they are no ranks, and some of them have had ranks."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import psutil

from ddpdoctor.cluster.command import rendezvous
from ddpdoctor.stuck.looks.spy import stacks

if TYPE_CHECKING:
    from ddpdoctor.watch.events import LauncherWaits

IMPORTS = 1.0  # seconds of processor time that each rank takes at least: it imports torch
MEETS = "next_rendezvous"
"""The function of torch's agent in which it waits for the other nodes (elastic/rendezvous)."""


def is_launcher(command: str) -> bool:
    """Whether a command line, its words with spaces between them, is torchrun's or ``accelerate launch``."""
    return rendezvous(command.split()) is not None


def with_past(event: LauncherWaits) -> LauncherWaits | None:
    """Return what a launcher without a rank waits for, with whether it has had ranks; None where it need not wait.

    Those whose ranks have come to their end wait for the other nodes' ranks to do so: their stack tells them apart.
    """
    if _time_of_children(event.pid) < IMPORTS:
        return event
    stack = stacks([event.pid]).read.get(event.pid)
    if stack is None or not any(each.function.rpartition(".")[2] == MEETS for each in stack.frames):
        return None
    return replace(event, again=True, seconds=0.0)


def _time_of_children(pid: int) -> float:
    """Return the processor time of the children of a process that have ended."""
    with suppress(psutil.Error, AttributeError):
        return float(psutil.Process(pid).cpu_times().children_user)
    return 0.0
