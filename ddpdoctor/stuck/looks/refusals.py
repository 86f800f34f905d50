"""Why py-spy reads no stack of a process, and what lifts that."""

from __future__ import annotations

import os
import sys
from pathlib import Path

INSTALL = "py-spy is not installed, so no Python line is known: pip install 'ddpdoctor[stuck]'"
AGAIN = "pip install --force-reinstall --no-deps py-spy"
SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
RIGHTS = ("permission denied", "operation not permitted", "os error 1)", "os error 13)")


def advice() -> str:
    """Return why the kernel refuses, and what lifts that here."""
    if os.geteuid() == 0:
        return (
            "this container has no right to look into processes (CAP_SYS_PTRACE), so no Python line is known: "
            "docker run --cap-add=SYS_PTRACE, or kubectl debug -it POD --profile=sysadmin --target=CONTAINER "
            "--image=IMAGE"
        )
    return (
        f"the kernel{_scope()} lets only root look into these processes, so no Python line is known: "
        f"sudo {sys.executable} -m ddpdoctor stuck"
    )


def _scope() -> str:
    try:
        return f" (kernel.yama.ptrace_scope={int(SCOPE.read_text())})"
    except (OSError, ValueError):
        return ""
