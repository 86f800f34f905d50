"""Every forward of the wrapped model fails, on all ranks, and the script catches it each time.

## What happens

A loop that skips bad batches (`except Exception: continue`) also skips an error of the model: a shape that does not
fit, a wrong name, a tensor on another device. It is raised in each step and on each rank, so the ranks stay together,
no collective hangs, and the script ends with status 0. Nothing was learnt; what it saved holds the weights it began
with.

## How to be sure

`ddpdoctor run` sees each exception that a forward of the wrapped model raises, and counts the forwards: from the first
one on, all have failed, with the same error at the same line, and no optimizer has stepped.

## How to mend it

Mend what the exception says. Then catch no more than what a bad batch raises, around the reading of the batch alone,
and count what is skipped: more than a few in a row is an error of its own.

## Versions and sources

Holds for all versions of torch. Source: Python's documentation of exceptions.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Ended,
    ErrorSeen,
    Evidence,
    Finding,
    Fix,
    Severity,
    StepFingerprinted,
    Training,
    place,
    watch,
)

AILMENT = Ailment("DDP708", Severity.ERROR)
FEWEST = 5  # forwards: fewer are tried on purpose, to find a batch size that fits, say


@watch(Ended)
def at_the_end(training: Training) -> Iterator[Finding]:
    """Compare the forwards that failed with those that were made."""
    ranks = sorted({each.rank for each in training.of(ErrorSeen) if each.rank is not None})
    failed = {rank: training.of(ErrorSeen, rank=rank) for rank in ranks}
    if not ranks or len(ranks) < training.world_size or training.of(StepFingerprinted):
        return
    if not all(map(_all_failed, failed.values())):
        return
    first = failed[ranks[0]][0]
    said = f"{first.error}: {first.text}" if first.text else first.error
    yield Finding(
        f"each of the first {len(failed[ranks[0]])} forwards failed, on all ranks, and the script went on: {said}",
        tuple(
            Evidence(f"{len(failed[rank])} forwards, {len(failed[rank])} times {said}", "a step", f"rank {rank}")
            for rank in ranks[:4]
        ),
        Fix(
            "mend this error, and catch only what reading a bad batch raises",
            diff="-    except Exception:\n-        continue\n+    except OSError:  # a batch that is not read\n"
            "+        skipped += 1",
        ),
        place(first.site),
    )


def _all_failed(errors: tuple[ErrorSeen, ...] | list[ErrorSeen]) -> bool:
    """Whether these are one error in the first forward, the second, and so on, with none between."""
    alike = {(each.error, each.site) for each in errors}
    return (
        len(errors) >= FEWEST and len(alike) == 1 and [each.forwards for each in errors] == [*range(1, len(errors) + 1)]
    )
