"""Whether a debugger has stopped a process: gdb after ``attach``, or one whose user has gone for the night.

Source: proc_pid_status(5), ``State`` and ``TracerPid``; ptrace(2).
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from ddpdoctor.host.process.open_files import command_of
from ddpdoctor.host.process.waits.wait import Awaited

STATE = "t"  # not T, which is that of a signal


def traced(pid: int, proc: Path = Path("/proc")) -> Awaited | None:
    """Return that a process waits for its debugger; None where none has stopped it, as strace, which looks on."""
    with suppress(OSError, ValueError, IndexError):
        lines = (proc / str(pid) / "status").read_text().splitlines()
        told = dict(each.split(":", 1) for each in lines if ":" in each)
        tracer = int(told["TracerPid"]) if told["State"].split()[0] == STATE else 0
        if tracer:
            return Awaited(
                f"process {tracer} ({command_of(tracer)}), a debugger that has stopped it",
                "let the debugger detach: detach, or quit, at its prompt",
                f"kill {tracer}   # where nobody sits at its prompt",
                tracer,
                typed=True,
            )
    return None
