"""What is to be done about a rank that works, or asks for something, while others wait for it."""

from __future__ import annotations

from ddpdoctor.check import (
    Doing,
    Fix,
    Position,
    Site,
    Stalled,
    question,
    repeats_until,
)

from ..timeouts._longer import longer

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


def loop_around(site: Site) -> str:
    """Return the condition of the loop around a line, or that of its only way out."""
    return str(question(site.file, site.line) or repeats_until(site.file, site.line))
