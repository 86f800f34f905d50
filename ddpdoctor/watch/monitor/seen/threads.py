"""The other threads of a process, and whether the one that trains alone can run any of the script's code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.host.stack import read_stack
from ddpdoctor.watch.event_log import NAMED, THREADS
from ddpdoctor.watch.monitor.seen.questions import ask
from ddpdoctor.watch.user_frames import is_users, is_watchs, users_sites

if TYPE_CHECKING:
    from ddpdoctor.host.stack import Frame
    from ddpdoctor.watch.events import Site

SERVE = (
    "/concurrent/futures/thread.py", "/torch/utils/data/_utils/pin_memory.py", "/multiprocessing/queues.py",
    "/tqdm/_monitor.py",
)  # fmt: skip
"""Files whose threads only serve what the main thread gives them."""
START = "/threading.py"


def those_alone(bases: Iterable[Path]) -> set[int]:
    """Ask processes, by the paths of their files; return the pids of those that have no other such thread.

    One that does not answer is none of them.
    """
    told = ask(bases, THREADS)
    return {pid for pid, text in told.items() if all(map(is_idle, map(read_stack, text.split("\n\n"))))}


def in_users_code(bases: Iterable[Path]) -> dict[int, tuple[tuple[str, Site], ...]]:
    """Return the other threads of processes that are in the user's code, by pid: their names and lines.

    Those that do not answer are left out.
    """
    return {pid: _in_users_code(text) for pid, text in ask(bases, THREADS).items()}


def _in_users_code(told: str) -> tuple[tuple[str, Site], ...]:
    found = []
    for text in told.split("\n\n"):
        frames = read_stack(text)
        site = None if is_idle(frames) else next(iter(users_sites(frames)), None)
        if site is not None:
            found.append((text.lstrip().partition("\n")[0].removeprefix(NAMED), site))
    return tuple(found)


def is_idle(frames: tuple[Frame, ...]) -> bool:
    """Whether a thread is one of the watch, or only serves what the main thread gives it."""
    if not frames or is_watchs(_target(frames).file):
        return True
    return any(each.file.endswith(SERVE) for each in frames) and not any(is_users(each.file) for each in frames)


def _target(frames: Sequence[Frame]) -> Frame:
    """Return the frame of the function that a thread was started for; within it the watch's hooks may be at work."""
    return next((each for each in reversed(frames) if not each.file.endswith(START)), frames[-1])
