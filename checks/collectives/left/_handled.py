"""A rank that waits in the handler of an exception, or where one ends a ``with``, told with the one that met none."""

from __future__ import annotations

from linecache import getline
from typing import TYPE_CHECKING

from ddpdoctor.check import Evidence, Finding, Fix, place

from ..hangs._told import seen, short, table

if TYPE_CHECKING:
    from ddpdoctor.check import Stalled

    from ..hangs.source._handlers import CaughtMore, Handling

OF_METHOD = (
    " def __exit__(self, kind, value, traceback):\n+    if kind is not None:\n"
    "+        return   # it goes on to its traceback, and the launcher ends the others\n     {call}(...)"
)
OF_GENERATOR = " try:\n     yield\n-finally:\n-    {call}(...)\n+except BaseException:\n+    raise\n+{call}(...)"


def in_its_handler(met: Handling, event: Stalled) -> Finding:
    """Return which rank has met the exception, and what it waits in since."""
    rank, handler = met.rank, met.handler
    ends = handler.said.startswith("with ")
    error = met.error or "an exception"
    came = f"`{handler.said}`, line {handler.line}"
    return Finding(
        (
            f"{error} has led rank {rank.rank} out of the `with` at line {handler.line}, at whose end it waits in "
            f"{rank.operation} at {short(rank.site)}; rank {met.other.rank} is in the `with` still, and waits in "
            f"{met.other.operation} at {short(met.other.site)}"
        )
        if ends
        else (
            f"rank {rank.rank} has caught {error} ({came}), and waits in {rank.operation} at {short(met.at)}; "
            f"rank {met.other.rank} has met none, and waits in {met.other.operation} at {short(met.tries)}"
        ),
        (
            Evidence(
                f"{error} under way, from line {handler.first} to {handler.last}" if ends else f"in the handler {came}",
                "no collective there",
                f"rank {rank.rank}, {short(met.at)}",
            ),
            *seen(event),
        ),
        _fix(met),
        place(rank.site if ends else met.at, rank=rank.rank),
        table=table(event),
    )


def _fix(met: Handling) -> Fix:
    said = met.handler.said
    if not said.startswith("with "):
        return Fix(
            "let the error end the training, or tell all ranks of it, and let all take the same way",
            diff=f"-{said}:\n-    ...\n+{said}:\n+    raise",
        )
    in_method = met.rank.site is not None and met.rank.site.function in {"__exit__", "__aexit__"}
    return Fix(
        f"wait for no rank where an exception ends a `with`: then {met.error} comes to the output, and can be mended",
        diff=(OF_METHOD if in_method else OF_GENERATOR).format(call=f"dist.{met.rank.operation}"),
    )


def told_by_counts(found: CaughtMore, event: Stalled) -> Finding:
    """Return which rank has caught more, as the handler itself counts."""
    said = getline(found.at.file, found.at.line).strip()
    return Finding(
        f"rank {found.rank} has caught {_times(found.times, 'exception')} at {short(found.at)} (`{said}`), and rank "
        f"{found.other} {found.others}: it has left out what rank {found.other} did not",
        (
            Evidence(f"{found.times}, as the handler counts", f"{found.others}, as rank {found.other}", str(found.at)),
            *seen(event),
        ),
        Fix(
            "let the error end the training, or skip the step on all ranks: decide by a flag that is reduced before it",
            diff=f" {said}\n+    raise   # or tell all ranks before the forward, and let all skip the batch",
        ),
        place(found.at, rank=found.rank),
        table=table(event),
    )


def _times(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number != 1 else ''}"
