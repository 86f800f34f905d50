"""Whether the kernel has frozen a process: its cgroup is, as ``docker pause`` and a scheduler's suspension do it.

Source: Documentation/admin-guide/cgroup-v1/freezer-subsystem.rst and cgroup-v2.rst (cgroup.freeze) of Linux.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from ddpdoctor.host.process.waits.wait import Awaited

NAMED = 60  # characters of a cgroup's name that are shown


def frozen(pid: int, proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> Awaited | None:
    """Return that a process waits to be thawed; None where its cgroup is not frozen, or nothing is known of it."""
    with suppress(OSError):
        for line in (proc / str(pid) / "cgroup").read_text().splitlines():
            number, controllers, path = line.split(":", 2)
            group = path.strip("/")
            if "freezer" in controllers.split(","):
                state, key, thaw = groups / "freezer" / group / "freezer.state", "FROZEN", "THAWED"
            elif number == "0":
                state, key, thaw = groups / group / "cgroup.events", "frozen 1", "0"
            else:
                continue
            with suppress(OSError):
                if key in state.read_text().splitlines():
                    switch = state if thaw == "THAWED" else state.with_name("cgroup.freeze")
                    return _thaw(path[:NAMED], f"echo {thaw} | sudo tee {switch}")
    return None


def _thaw(group: str, command: str) -> Awaited:
    return Awaited(
        f"its cgroup {group} to be thawed: it is frozen, and not one instruction of it is carried out",
        "thaw it: a container that is paused, or a job that its scheduler has suspended",
        f"docker unpause CONTAINER   # or scontrol resume JOB, or {command}",
    )
