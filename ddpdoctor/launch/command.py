"""Starts a command of the user's, and waits for it."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from ddpdoctor.facets import BadTarget


def start(command: Sequence[str], environ: Mapping[str, str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a command; ``options`` are those of subprocess.Popen.

    Raises:
        BadTarget: there is no such command.
    """
    try:
        return subprocess.Popen(command, env=dict(environ), **options)
    except OSError as exc:
        raise BadTarget(f"{command[0]}: {exc.strerror}") from exc


def wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Wait for the end of a process, for so long at most."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return
