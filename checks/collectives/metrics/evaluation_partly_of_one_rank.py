"""An evaluation returns a number that one rank has computed from its own share, beside what all have added up.

## What happens

A function adds up what the ranks have counted, and one of several sums is left out: the false negatives of an F1, the
union of an intersection over a union, the second of three averages. The result looks plausible, and is another one on
each rank. Rank 0 prints that of its share; a best model, an early stop or a schedule that goes by it differs between
the ranks.

## How to be sure

Print the result on each rank. ddpdoctor (`ddpdoctor run`) looks at what a function returns in which the ranks of an
evaluation have reduced or gathered something, three times, and compares: numbers with a fraction, and small tensors.
It reports one that differs between the ranks, where the source says that it comes from something that the function
itself has gathered over its batches, which no communication was given, and that the rest of the result has come from
what was.

Silent where the function asks for its rank: some of them may return nothing on purpose; and of times, and of sizes of
memory.

## How to mend it

Give all sums to the communication, most simply as one tensor:

    totals = torch.stack([true_positives, false_positives, false_negatives])
    dist.all_reduce(totals)

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, torch.distributed.all_reduce.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    EvaluationReturned,
    Evidence,
    Finding,
    Fix,
    Severity,
    Site,
    Summed,
    Training,
    place,
    watch,
)

from ..._evaluation.evaluations import shares_gradients
from ..._ledgers.mixed import mixed
from ...data.evaluation._own_counts import own_count
from ._own_parts import own_part

AILMENT = Ailment("DDP764", Severity.WARNING)
NOISE = 1e-4  # relative: what a GPU adds up in another order


@watch(EvaluationReturned)
def while_training(event: EvaluationReturned, training: Training) -> Iterator[Finding]:
    """Compare what a function returns on all ranks."""
    told = training.complete(EvaluationReturned, number=event.number, site=event.site)
    paths = {tuple(path for path, _ in each.values) for each in told.values()}
    if len(paths) != 1 or training.framework is not None or event.site is None:
        return
    if not all(shares_gradients(each.pid, training) for each in told.values()) or _is_told_already(event, training):
        return
    rows = [*zip(*(each.values for each in told.values()), strict=True)]
    apart = [row[0][0] for row in rows if _differ([value for _, value in row])]
    alike = [row[0][0] for row in rows if len({value for _, value in row}) == 1 and row[0][1] not in {0.0, 1.0}]
    found = own_part(event.site, apart, alike) if apart else None
    if found is None:
        return
    path, own, line = found
    values = {rank: dict(each.values)[path] for rank, each in told.items()}
    yield Finding(
        f"{event.site.function} returns a number of each rank's own: {own} is given to no communication, and the rest "
        "is of all ranks",
        (
            *(
                Evidence(f"returns {value:.6g}", "the same on all ranks", f"rank {rank}, {event.site}")
                for rank, value in [*values.items()][:8]
            ),
            Evidence(f"{own} comes from this rank's batches", "a sum over all ranks", f"{event.site.file}:{line}"),
        ),
        Fix(f"add up {own} over the ranks as well", diff=f"+dist.all_reduce({own})"),
        place(event.site._replace(line=line)),
    )  # fmt: skip


def _is_told_already(event: EvaluationReturned, training: Training) -> bool:
    """Whether what is returned is, in the source, a quotient of a sum of all ranks and a count of this one."""
    sums = [each.callers for each in training.of(Summed, pid=event.pid)]
    return any(own_count(each) is not None or mixed(Site(*each[0])) is not None for each in sums)


def _differ(values: list[float]) -> bool:
    return all(map(math.isfinite, values)) and max(values) - min(values) > NOISE * max(map(abs, values))
