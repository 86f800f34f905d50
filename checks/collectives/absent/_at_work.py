"""What is to be done about a rank that works, or asks for something, while others wait for it."""

from __future__ import annotations

from collections.abc import Sequence

from ddpdoctor.check import (
    Doing,
    Finding,
    Fix,
    Position,
    Severity,
    Site,
    Stalled,
    place,
    question,
    repeats_until,
)

from ..hangs._told import seen, short, where
from ..timeouts._longer import longer
from ..timeouts._watchdog import named

SHOWN = 8  # ranks, or logs
OF_WORK = "let that line's work be done before the other ranks wait for it, or give the group more time than it takes"
MADE_BEFORE = "have what the loop asks for made before the other ranks wait for this one"
OF_LOOP = Fix(f"{MADE_BEFORE}, and let the loop end with an error after some time, so that the launcher ends them all")


def mend_of_loop(site: Site) -> Fix:
    """Return what to do about a loop that asks: also that it is to end, where it has no limit."""
    asked = question(site.file, site.line)
    return Fix(MADE_BEFORE) if asked is not None and asked.limited else OF_LOOP


def mend_of_search(until: str) -> Fix:
    """Return what to do about a loop that tries until it finds something, which need not be there."""
    return Fix(
        f"see whether this rank's share can ever end the loop ({until}), and give the loop a limit",
        diff="-while True:\n+for _ in range(10_000):\n     ...\n+else:\n"
        '+    raise RuntimeError(f"nothing found in the share of rank {dist.get_rank()}")',
    )


def mend_of_work(busy: Position, event: Stalled) -> Fix:
    """Return what to do about a rank that has been in one wait for a disk all the time, or is at work."""
    if busy.awaited is None or busy.doing is Doing.ASKING:
        return Fix(OF_WORK, diff=longer(each for rank in event.ranks for each in rank.stack or (rank.site,)))
    return Fix(
        "see why that disk, or that file server, does not answer; give large files a local disk",
        command=busy.awaited.command,
    )


def asks(busy: Position) -> bool:
    """Whether a rank asks again and again; one that computes does so as well in a loop that does nothing else."""
    if busy.doing is Doing.ASKING or busy.site is None:
        return busy.doing is Doing.ASKING
    return busy.doing is Doing.WORKING and question(busy.site.file, busy.site.line) is not None


def busiest(event: Stalled) -> Position:
    """Return the rank that is told of: one that asks, else one that works."""
    busy = (*event.doing(Doing.WORKING), *event.doing(Doing.ASKING))
    return next(filter(asks, busy), busy[0])


def at_work(event: Stalled, beside: str) -> Finding:
    """Return a note on the rank that asks or works, with what the loop around it asks, and what is said beside that."""
    busy = busiest(event)
    found = question(busy.site.file, busy.site.line) if asks(busy) and busy.site else None
    return Finding(
        f"rank {busy.rank} {where(busy)}{f' (`{found}`)' if found else ''}{beside}",
        seen(event),
        mend_of_loop(busy.site) if found and busy.site else mend_of_work(busy, event),
        place(busy.site, rank=busy.rank),
        severity=Severity.NOTE,
    )


def on_no_host(event: Stalled, quiet: Sequence[str]) -> Finding:
    """Return a note on the ranks of which no log tells, while all others wait at one line; ``quiet`` are such logs."""
    waiting = event.ranks[0]
    others = sorted({*range(event.world_size)} - {each.rank for each in event.ranks})
    more = f"; {', '.join(quiet[:SHOWN])} {'say' if quiet[1:] else 'says'} nothing of its ranks" if quiet else ""
    return Finding(
        f"{named([each.rank for each in event.ranks][:SHOWN])} wait in {waiting.operation} at {short(waiting.site)}, "
        f"and {named(others[:SHOWN])}, of which no log tells where {'they are' if others[1:] else 'it is'}, "
        f"{'have' if others[1:] else 'has'} not come{more}",
        seen(event),
        Fix(
            "see what the host of that rank does: it can be stopped, down or busy", command="ddpdoctor stuck   # there"
        ),
        place(waiting.site, rank=waiting.rank),
        severity=Severity.NOTE,
    )


def loop_around(site: Site) -> str:
    """Return the condition of the loop around a line, or that of its only way out."""
    return str(question(site.file, site.line) or repeats_until(site.file, site.line))
