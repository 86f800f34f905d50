"""What the kernel knows of a process: since when it rests, in which call, and what lies in its sockets."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

LAST_RAN = re.compile(r"^se\.exec_start\s*:\s*([\d.]+)", re.MULTILINE)
ESTABLISHED = "01"


@dataclass(frozen=True, slots=True)
class Kernel:
    """``rested`` are the seconds since the main thread last had a core, None where the kernel does not tell.

    ``call`` is the function of the kernel that it rests in; ``connections`` counts TCP connections, ``unread`` and
    ``unsent`` the bytes that lie in them.
    """

    rested: float | None
    call: str
    connections: int
    unread: int
    unsent: int


def kernel(pid: int) -> Kernel:
    """Look at a process; of one that is gone nothing is known."""
    now, then = _last_ran("self"), _last_ran(str(pid))
    rested = max(0.0, (now - then) / 1000) if now is not None and then is not None else None
    return Kernel(rested, _text(f"/proc/{pid}/wchan").strip("0"), *_sockets(pid))


def _last_ran(pid: str) -> float | None:
    """Return when a main thread last had a core, in milliseconds of the scheduler's clock (Linux, kernel/sched)."""
    found = LAST_RAN.search(_text(f"/proc/{pid}/sched"))
    return float(found[1]) if found else None


def _sockets(pid: int) -> tuple[int, int, int]:
    own = set()
    for path in Path(f"/proc/{pid}/fd").glob("*"):
        try:
            if (target := str(path.readlink())).startswith("socket:["):
                own.add(target[8:-1])
        except OSError:
            continue
    connections = unread = unsent = 0
    for line in (_text(f"/proc/{pid}/net/tcp") + _text(f"/proc/{pid}/net/tcp6")).splitlines():
        parts = line.split()
        if len(parts) > 9 and parts[3] == ESTABLISHED and parts[9] in own:  # noqa: PLR2004 - the columns of the table
            sent, received = (int(each, 16) for each in parts[4].split(":"))
            connections, unsent, unread = connections + 1, unsent + sent, unread + received
    return connections, unread, unsent


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
