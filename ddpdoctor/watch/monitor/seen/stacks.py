"""The Python stacks of the threads that train: told by a thread of theirs, or where that cannot run, after a signal.

A signal is the last resort. It ends system calls of native code early; and where it finds the main thread between two
Python frames, faulthandler reads half a frame and ends the rank: 10 of 14,000 times on Python 3.12. So it is sent only
to a main thread that was seen to hold the GIL in native code, where its frames rest.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from ddpdoctor.host.process.handlers import handled
from ddpdoctor.host.stack import Frame, ask_main_thread, read_stack
from ddpdoctor.watch.event_log import DUMP, STACK
from ddpdoctor.watch.monitor.seen.questions import PATIENCE, ask, gather
from ddpdoctor.watch.monitor.seen.usage import AT_WORK, Usage, usages
from ddpdoctor.watch.settings import STACK_SIGNAL


def stacks(bases: Collection[Path], *, spared: Collection[int] = ()) -> dict[int, tuple[Frame, ...]]:
    """Return the stacks of processes, innermost frame first, by pid; those that do not tell are left out.

    ``spared`` are those that no signal is to interrupt.
    """
    before = usages(int(base.name) for base in bases)
    told = ask(bases, STACK)
    silent = [base for base in bases if int(base.name) not in {*told, *spared}]
    after = usages(int(base.name) for base in silent)
    held = [base for base in silent if _keeps_the_gil(before.get(int(base.name)), after.get(int(base.name)))]
    return {pid: read_stack(text) for pid, text in (told | _dumped(held)).items()}


def _keeps_the_gil(before: Usage | None, after: Usage | None) -> bool:
    """Whether a main thread was in native code while another one waited for the GIL.

    It slept all the time, or computed for most of it, and nothing kept the other one from a core: a main thread that
    ran Python would have let go of the GIL.
    """
    if before is None or after is None:
        return False
    if before.main == after.main:
        return after.state not in AT_WORK and before.state not in AT_WORK
    ran, waited = after.main.ran - before.main.ran, after.main.waited - before.main.waited
    return ran > PATIENCE / 2 and waited < PATIENCE / 10


def _dumped(bases: Collection[Path]) -> dict[int, str]:
    """Have the main threads of processes dumped by faulthandler."""
    asked = {}
    for base in bases if STACK_SIGNAL is not None else ():
        with suppress(OSError):  # it is gone, or takes no signal
            os.truncate(base.with_suffix(DUMP), 0)
            ask_main_thread(int(base.name), STACK_SIGNAL or 0)
            asked[int(base.name)] = base.with_suffix(DUMP)
    return gather(asked, _whole)


def dump_of_fork(pid: int, base: Path) -> tuple[Frame, ...]:
    """Return the stack of a process that a rank has forked, and whose only thread rests for good; none if it does not.

    It has the rank's handler of the signal, and writes to the rank's file; without a handler it would end.
    """
    if STACK_SIGNAL is None or STACK_SIGNAL not in (handled(pid) or ()):
        return ()
    path = base.with_suffix(DUMP)
    with suppress(OSError):
        os.truncate(path, 0)
        ask_main_thread(pid, STACK_SIGNAL)
        return read_stack(gather({pid: path}, _whole).get(pid, ""))
    return ()


def _whole(path: Path) -> str | None:
    """Read a dump once it has its end, which nothing marks: it is written at one go."""
    if not path.stat().st_size:
        return None
    time.sleep(0.05)
    return path.read_text(encoding="utf-8", errors="replace")
