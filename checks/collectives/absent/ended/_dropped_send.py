"""A rank that ended before what it sent was done: nobody waited for the handle of its isend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpdoctor.check import Communication, Evidence, Finding, Fix, PeerLost, calls_at, last_name, place

from ...hangs._told import short

if TYPE_CHECKING:
    from ddpdoctor.check import Failed


def dropped(event: PeerLost, gone: int, lost: int | None) -> Communication | None:
    """Return the isend with which a rank ended, where the other one was to receive from it."""
    last = {each.rank: each.recent[-1] for each in event.progress if each.recent}
    sent, received = last.get(gone), last.get(-1 if lost is None else lost)
    if sent is None or received is None or sent.site is None:
        return None
    pair = (sent.operation, received.operation) == ("send", "recv")
    calls = {last_name(each.func) for each in calls_at(sent.site.file, sent.site.line)}
    matches = f" to {lost}" in sent.shapes and f" from {gone}" in received.shapes
    return sent if pair and matches and "isend" in calls else None


def told_dropped(message: Communication, gone: int, lost: Failed) -> Finding:
    return Finding(
        f"rank {gone} came to its end before its isend at {short(message.site)} was done, for which nobody waits: rank "
        f"{lost.rank} was to receive it",
        (
            Evidence(f"isend of {message.shapes}", "wait() of what isend returns, before the end", f"rank {gone}"),
            Evidence(lost.said, "", f"rank {lost.rank}"),
        ),
        Fix("wait for it before the program ends", diff="-dist.isend(x, 1)\n+work = dist.isend(x, 1)\n+work.wait()"),
        place(message.site, rank=gone),
    )
