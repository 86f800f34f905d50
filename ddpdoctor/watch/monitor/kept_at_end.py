"""Ranks that never end since they wait for a thread of their own, which nobody is left to wake.

Nothing is concluded but from all of this: since --hang-after nothing of the process has come to run; its main thread is
in the join of a thread, or at the interpreter's end, which joins all that are no daemons; and each other thread of
Python's waits without a limit of time for a queue, a lock, an event or a thread of this process, or only serves. Or a
process of multiprocessing is at its end, and the thread of a queue writes to a pipe that nobody reads.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import TYPE_CHECKING

from ddpdoctor.host.stack import read_stack
from ddpdoctor.source.text.lines import calls_at
from ddpdoctor.watch.event_log import STACK, THREADS
from ddpdoctor.watch.events import KeptAtEnd, Site
from ddpdoctor.watch.monitor.seen.questions import ask
from ddpdoctor.watch.monitor.seen.threads import is_idle
from ddpdoctor.watch.user_frames import is_users

if TYPE_CHECKING:
    from ddpdoctor.host.stack import Frame
    from ddpdoctor.watch.monitor.rank import Rank

QUEUES = "/multiprocessing/queues.py"
WAITS = ("/queue.py", "/threading.py")


def kept_at_end(ranks: Collection[Rank], after: float) -> list[KeptAtEnd]:
    """Return the ranks that are kept so, of those that have stood for so many seconds."""
    suspects = [each for each in ranks if each.alive and not each.stopped and each.activity.still >= after]
    bases = [each.reader.base for each in suspects]
    mains, others = (ask(bases, STACK), ask(bases, THREADS)) if bases else ({}, {})
    found = []
    for each in suspects:
        pid = each.reader.pid
        main = read_stack(mains.get(pid, ""))
        sites = _waiting(others.get(pid, ""))
        feeds = _ends_a_queue(main) and _feeds_a_full_pipe(others.get(pid, ""))
        if feeds:
            found.append(
                KeptAtEnd(
                    pid=pid, time=time.time(), rank=each.rank, site=None, threads=1, joined="", feeds=True,
                    seconds=time.monotonic() - each.since,
                )
            )  # fmt: skip
        elif _joins(main) and sites:
            found.append(
                KeptAtEnd(
                    pid=pid, time=time.time(), rank=each.rank, site=sites[0], threads=len(sites),
                    joined=next((str(_site(frame)) for frame in main if is_users(frame.file)), ""),
                    seconds=time.monotonic() - each.since,
                )
            )  # fmt: skip
    return found


def _joins(main: tuple[Frame, ...]) -> bool:
    """Whether the innermost frames are those of the join of a thread, without a limit, or of the interpreter's end."""
    inner = _inner(main, "/threading.py")
    called = {frame.function for frame in inner}
    caller = main[len(inner)] if len(inner) < len(main) else None
    if "_shutdown" in called:
        return caller is None
    return "join" in called and caller is not None and is_users(caller.file) and _is_unlimited(caller, {"join"})


def _ends_a_queue(main: tuple[Frame, ...]) -> bool:
    """Whether the process is about to end, and waits until what it has put into a queue is written."""
    inner = _inner(main, "/threading.py")
    caller = main[len(inner)] if 0 < len(inner) < len(main) else None
    return caller is not None and caller.file.endswith(QUEUES) and caller.function == "_finalize_join"


def _feeds_a_full_pipe(text: str) -> bool:
    """Whether the thread that writes it stands in the call that writes, and nobody of the user's is in its way."""
    threads = [read_stack(each) for each in text.split("\n\n")]
    feeds = [each for each in threads if any(frame.file.endswith(QUEUES) for frame in each)]
    return any(
        each[0].file.endswith("/multiprocessing/connection.py") and "_send" in each[0].function for each in feeds
    )


def _waiting(text: str) -> list[Site]:
    """Return the user's lines at which threads wait without a limit; none where another thread can do anything."""
    sites = []
    for frames in filter(None, map(read_stack, text.split("\n\n"))):
        if is_idle(frames):
            continue
        inner = _inner(frames, *WAITS)
        if len(inner) == len(frames):
            return []
        caller = frames[len(inner)]
        if not is_users(caller.file) or not _is_unlimited(caller, {"get", "wait", "join", "acquire"}):
            return []
        sites.append(_site(caller))
    return sites


def _inner(frames: tuple[Frame, ...], *files: str) -> tuple[Frame, ...]:
    count = next((number for number, frame in enumerate(frames) if not frame.file.endswith(files)), len(frames))
    return frames[:count]


def _is_unlimited(frame: Frame, methods: set[str]) -> bool:
    """Whether a line makes one call, of such a method, with nothing that says how long it lasts."""
    calls = calls_at(frame.file, frame.line)
    named = [call for call in calls if getattr(call.func, "attr", "") in methods]
    return len(named) == 1 and not named[0].args and not named[0].keywords


def _site(frame: Frame) -> Site:
    return Site(frame.file, frame.line, frame.function)
