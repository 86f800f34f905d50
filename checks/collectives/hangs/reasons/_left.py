"""What ended a rank before the end of its script: a line that ends it, or a signal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpdoctor.check import INTERRUPTED, Evidence, Fix, Left

if TYPE_CHECKING:
    from ddpdoctor.check import Training


def left_by(rank: int, training: Training) -> Left | None:
    """Return how a rank that has ended told that it was ended; None where it came to the end of its script."""
    return next((each for each in reversed(training.of(Left, rank=rank, ended=True)) if each.by), None)


def in_words(left: Left) -> str:
    """Return what ended a rank as the predicate of a sentence."""
    if left.by == INTERRUPTED:
        return "was interrupted (SIGINT)"
    return f"has left by {left.by}" + (f", where it handles {left.handled.partition(':')[0]}" if left.handled else "")


def evidence(left: Left) -> Evidence:
    """Return the line, as what was seen of a rank."""
    at = f" at {left.site}" if left.site else ""
    after = f", in the handler of {left.handled}" if left.handled else ""
    return Evidence(f"{left.by}{at}{after}", "all ranks end together", f"rank {left.rank}")


def let_it_end(left: Left) -> Fix:
    """Return what to do about a rank that leaves in the handler of an exception."""
    return Fix(
        f"mend this error of rank {left.rank}, and let it end the rank: the launcher then ends the others, and the job "
        "has a status that tells of it",
        diff=f"-    {left.by}\n+    raise",
    )
