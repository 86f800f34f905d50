"""Attaches the watch that this process's environment asks for."""

from __future__ import annotations

from ddpdoctor.watch.install import Attached
from ddpdoctor.watch.settings import inherited


def attach() -> Attached | None:
    """Attach, if the process was started by ``ddpdoctor run`` or ``ddpdoctor check -- COMMAND``."""
    settings = inherited()
    return None if settings is None else Attached(settings)
