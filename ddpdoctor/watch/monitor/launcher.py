"""A launcher that has started no rank yet, since it waits for other nodes; seen from outside."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from ddpdoctor.watch.events import LauncherWaits

LAUNCHERS = ("torchrun", "torch.distributed.run", "torch.distributed.launch")


def launcher_waits(pid: int, after: float) -> LauncherWaits | None:
    """Look for a torchrun of several nodes below a process that has met others, or listens for them, for so long.

    While it imports torch it has no socket, and once it has started ranks it has children.
    """
    for process, nodes in _without_ranks(pid):
        with suppress(psutil.Error):
            seconds = time.time() - process.create_time()
            if seconds > after and process.net_connections("tcp"):
                return LauncherWaits(pid=process.pid, time=time.time(), nodes=nodes, seconds=seconds)
    return None


def end_those_without_ranks(pid: int, number: int) -> None:
    """Send a signal to each torchrun of several nodes below a process that has no rank: nothing is lost with it.

    With static rendezvous it waits for the store in native code, and comes back to Python for no Ctrl-C.
    """
    for process, _ in _without_ranks(pid):
        with suppress(psutil.Error):
            process.send_signal(number)


def _without_ranks(pid: int) -> Iterator[tuple[psutil.Process, int]]:
    """Yield each torchrun of several nodes, from a process on down, that has no child; and how many nodes."""
    with suppress(psutil.Error):
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            with suppress(psutil.Error):
                nodes = nodes_of(process.cmdline())
                if nodes > 1 and not process.children():
                    yield process, nodes


def nodes_of(command: Sequence[str]) -> int:
    """Return how many nodes a torchrun waits for at least; 1 where the command is none, or does not say it."""
    names = [number for number, each in enumerate(command[:4]) if Path(each).name in LAUNCHERS]
    if not names:
        return 1
    for number, each in enumerate(command[names[0] + 1 :], names[0] + 1):
        option, _, value = each.partition("=")
        if option in {"--nnodes", "--nnode"}:
            given = value or (command[number + 1] if number + 1 < len(command) else "")
            least = given.partition(":")[0]
            return int(least) if least.isdecimal() else 1
        if each.endswith(".py"):
            break
    return 1
