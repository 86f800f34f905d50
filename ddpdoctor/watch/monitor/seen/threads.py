"""Whether the thread that trains is the only one of its process that can run any of the script's code."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.host.stack import read_stack
from ddpdoctor.watch.event_log import THREADS
from ddpdoctor.watch.monitor.seen.questions import ask
from ddpdoctor.watch.user_frames import is_users, is_watchs

if TYPE_CHECKING:
    from ddpdoctor.host.stack import Frame

SERVE = (
    "/concurrent/futures/thread.py", "/torch/utils/data/_utils/pin_memory.py", "/multiprocessing/queues.py",
    "/tqdm/_monitor.py",
)  # fmt: skip
"""Files whose threads only serve what the main thread gives them."""


def those_alone(bases: Iterable[Path]) -> set[int]:
    """Ask processes, by the paths of their files; return the pids of those that have no other such thread.

    One that does not answer is none of them.
    """
    told = ask(bases, THREADS)
    return {pid for pid, text in told.items() if all(map(is_idle, map(read_stack, text.split("\n\n"))))}


def is_idle(frames: tuple[Frame, ...]) -> bool:
    """Whether a thread is one of the watch, or only serves what the main thread gives it."""
    if any(is_watchs(each.file) for each in frames) or not frames:
        return True
    return any(each.file.endswith(SERVE) for each in frames) and not any(is_users(each.file) for each in frames)
