"""A rank none of whose threads comes to run Python, since one of them keeps the GIL in native code, and rests there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.host.process.waits.wait import Awaited

if TYPE_CHECKING:
    from ddpdoctor.stuck.looks.look import Seen

ASKS = 20  # times a second: a thread that waits for the GIL looks each 5 ms whether it is free (ceval_gil.c)


def of_gil(seen: Seen) -> Awaited | None:
    """Return that a rank waits for the GIL: one thread had it at each look, at one line, and never came to run."""
    kept = seen.stack.gil
    if kept is None or len(seen.looks) < 2 or any(each.gil != kept for each in seen.looks):  # noqa: PLR2004 - two looks
        return None
    before, now = seen.own.quiet, seen.own.last
    if before is None or now is None or before.threads.get(kept.number) != now.threads.get(kept.number):
        return None
    if now.main.turns - before.main.turns < ASKS * (now.time - before.time):
        return None
    at = f"{Path(kept.at.file).name}:{kept.at.line}"
    return Awaited(
        f"the GIL, which its thread {kept.name} keeps in native code at {at}",
        f"have the call at {at} let go of the GIL while it waits (ctypes.CDLL instead of PyDLL, "
        "Py_BEGIN_ALLOW_THREADS, py::gil_scoped_release, `with nogil`), or make it in a process of its own",
        f"py-spy dump --native --pid {seen.pid}",
    )
