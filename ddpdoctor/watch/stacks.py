"""The Python stack of another process's main thread, as faulthandler writes it: without root, ptrace or the GIL."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import NamedTuple

from ddpdoctor.watch.recorder import STACK_SIGNAL

FRAME = re.compile(r'  File "(.*)", line (\d+) in (.*)')
THREAD = re.compile(r"(?:Current thread|Thread) 0x([0-9a-f]+)")
PATIENCE = 2.0  # seconds: the handler runs at once unless the process is stopped


class Frame(NamedTuple):
    """One frame, innermost first in a stack."""

    file: str
    line: int
    function: str


def stacks(files: dict[int, Path]) -> dict[int, tuple[Frame, ...]]:
    """Ask processes (by pid) for their stacks; those that do not answer are left out."""
    sizes = {pid: path.stat().st_size for pid, path in files.items() if STACK_SIGNAL is not None and path.is_file()}
    for pid in list(sizes):
        try:
            os.kill(pid, STACK_SIGNAL or 0)
        except (ProcessLookupError, PermissionError):
            del sizes[pid]
    until = time.monotonic() + PATIENCE
    found: dict[int, tuple[Frame, ...]] = {}
    while len(found) < len(sizes) and time.monotonic() < until:
        time.sleep(0.02)
        for pid, size in sizes.items():
            if pid not in found and files[pid].stat().st_size > size:
                time.sleep(0.05)  # the rest of the dump follows at once
                found[pid] = parse(files[pid].read_text(encoding="utf-8", errors="replace"), size)
    return found


def parse(text: str, offset: int = 0) -> tuple[Frame, ...]:
    """Give the main thread's frames out of the dump at ``offset``; the file's first line is that thread's identity."""
    main = int(text.partition("\n")[0] or "0", 16)
    frames: list[Frame] = []
    inside = False
    for line in text[offset:].splitlines():
        if match := THREAD.match(line):
            if inside and frames:
                break
            inside = int(match[1], 16) == main
        elif inside and (match := FRAME.match(line)):
            frames.append(Frame(match[1], int(match[2]), match[3]))
    return tuple(frames)
