"""The Python processes of this host, as the kernel shows them: none is asked."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from ddpdoctor.host.process.threads import thread_folders
from ddpdoctor.stuck.ranks.identity import READ, Identity, identity
from ddpdoctor.watch.monitor.stands.siblings import HELPERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SPAWNED = "from multiprocessing.spawn import spawn_main"
TORCH = "libtorch_cpu"
JOINED = {"pt_gloo_runloop": "gloo", "pt_nccl_": "nccl"}
"""Names of threads that a process group of torch starts (ProcessGroupGloo.cpp, ProcessGroupNCCL.cpp), and its backend.
"""


@dataclass(frozen=True, slots=True)
class Python:
    """A process that runs Python; ``identity`` is None where it was told no rank. ``environ`` has what is read of it.

    ``backends`` are those of its process groups.
    """

    pid: int
    parent: int
    command: str
    environ: dict[str, str]
    identity: Identity | None
    started: float

    @property
    def has_torch(self) -> bool:
        """Whether it has loaded torch."""
        try:
            return TORCH in Path(f"/proc/{self.pid}/maps").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return False

    @property
    def backends(self) -> tuple[str, ...]:
        """The backends of its process groups, by the threads that these have started."""
        return backends(self.pid)


def pythons() -> tuple[dict[int, Python], int]:
    """Return all processes that run Python, by pid, and how many of other users' could not be read."""
    found, closed = {}, 0
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and _runs_python(process):
                found[process.pid] = _read(process)
        except psutil.AccessDenied:
            closed += _may_be_python(process)
        except (psutil.Error, OSError):
            continue
    return found, closed


def identities() -> set[Identity]:
    """Return what all processes were told, of whatever program: a rank can be a shell for a while."""
    found = set()
    for process in psutil.process_iter():
        try:
            found.add(identity(process.environ()))
        except (psutil.Error, OSError):
            continue
    return {each for each in found if each is not None}


def _runs_python(process: psutil.Process) -> bool:
    name = Path(process.exe()).name
    words = process.cmdline()
    return name.startswith("python") and not is_own(words) and not any(each in " ".join(words) for each in HELPERS)


def is_own(words: Sequence[str]) -> bool:
    """Whether a command runs this program; torchrun that is to start it is none."""
    script = next((each for each in words[1:] if not each.startswith("-")), "")
    return Path(script).name == "ddpdoctor"


def _may_be_python(process: psutil.Process) -> bool:
    try:
        return process.name().startswith("python")
    except psutil.Error:
        return False


def _read(process: psutil.Process) -> Python:
    environ = process.environ()
    return Python(
        process.pid, process.ppid(), " ".join(process.cmdline()),
        {name: environ[name] for name in READ if name in environ}, identity(environ), process.create_time(),
    )  # fmt: skip


def backends(pid: int) -> tuple[str, ...]:
    """Return the backends of a process's groups, by the names of its threads; none before it has joined one."""
    names = set(_thread_names(pid))
    return tuple(sorted({each for start, each in JOINED.items() if any(name.startswith(start) for name in names)}))


def _thread_names(pid: int) -> Iterator[str]:
    for path in thread_folders(pid):
        try:
            yield (path / "comm").read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            continue
