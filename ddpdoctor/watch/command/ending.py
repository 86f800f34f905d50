"""The end of a command that was started for a look at it: whatever it has started ends with it."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil

from ddpdoctor.watch.settings import VARIABLE

if TYPE_CHECKING:
    import subprocess

DEAD = 10.0  # seconds in which what was killed is gone


def end_all(process: subprocess.Popen[bytes], session: str) -> None:
    """Kill a command that leads a process group, and all that it started, wherever that went.

    Each inherits the session's folder: torchrun starts each rank in a process group of its own, and ranks whose
    launcher is gone belong to nobody.
    """
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    until = time.monotonic() + DEAD
    while (left := _left(process, session)) and time.monotonic() < until:
        for each in left:
            with suppress(psutil.Error):
                each.kill()
        psutil.wait_procs(left, 1.0)
    process.wait()


def _left(process: subprocess.Popen[bytes], session: str) -> list[psutil.Process]:
    found = []
    for each in psutil.process_iter():
        with suppress(psutil.Error):
            is_ours = each.pid == process.pid or (
                each.pid != os.getpid() and session in each.environ().get(VARIABLE, "")
            )
            if is_ours and each.status() != psutil.STATUS_ZOMBIE:
                found.append(each)
    return found
