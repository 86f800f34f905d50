"""By which signals ranks were ended, as only the process knows that has started them: torchrun, or mp.spawn's parent.

It writes a file of its own into the session's folder as it fails of that: one line a process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from signal import Signals
from typing import NamedTuple

EXITS = ".exits"
TERMINATED = 15
SAY_ALL = frozenset({4, 7, 8, 9, 11, TERMINATED})
"""SIGILL, SIGBUS, SIGFPE, SIGKILL, SIGSEGV, SIGTERM: nothing that the others say tells more than such a signal.

SIGABRT is how torch itself gives up.
"""


class Exit(NamedTuple):
    """A process of a rank that a signal has ended, and its number on its host."""

    pid: int
    signal: int
    local_rank: int

    @property
    def text(self) -> str:
        """The words of torchrun for it."""
        name = Signals(self.signal).name if self.signal in set(Signals) else "N/A"
        ended = f"failed (exitcode: -{self.signal}) local_rank: {self.local_rank} (pid: {self.pid})"
        return f"{ended}: Signal {self.signal} ({name}) received by PID {self.pid}"


def exits_in(exc: BaseException) -> list[Exit]:
    """Return the processes that a signal has ended, of those whose failures an exception gathers."""
    kind = type(exc).__name__
    if kind == "ChildFailedError":  # torchrun's
        failures = getattr(exc, "failures", {}).values()
        found = [(each.pid, each.exitcode, each.local_rank) for each in failures]
    elif kind == "ProcessExitedException":  # mp.spawn's
        found = [(getattr(exc, "error_pid", 0), getattr(exc, "exit_code", 0), getattr(exc, "error_index", 0))]
    else:
        return []
    asked = any(code not in {0, -TERMINATED} for _, code, _ in found)  # what a launcher asks of the others then
    return [Exit(pid, -code, rank) for pid, code, rank in found if code < 0 and not (asked and code == -TERMINATED)]


def tell(session: str, exits: list[Exit]) -> None:
    """Write what this process knows of those that it has started."""
    if session and exits:
        text = "".join(f"{each.pid} {each.signal} {each.local_rank}\n" for each in exits)
        with suppress(OSError):
            (Path(session) / f"{os.getpid()}{EXITS}").write_text(text, encoding="utf-8")


def told(session: str) -> Iterator[Exit]:
    """Yield what was written."""
    for path in Path(session).glob(f"*{EXITS}"):
        with suppress(OSError, ValueError):
            for line in path.read_text(encoding="utf-8").splitlines():
                yield Exit(*map(int, line.split()))
