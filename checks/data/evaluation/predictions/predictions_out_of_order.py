"""Predictions of all ranks are put one rank behind the other, and compared with labels in the data set's order.

## What happens

A DistributedSampler deals the samples out in turn: with two ranks, rank 0 has samples 0, 2, 4, ..., rank 1 has 1, 3, 5,
and so on. What `all_gather` gives is the ranks' predictions one behind the other: 0, 2, 4, ..., 1, 3, 5. Where that is
cut to the length of the data set and compared with its labels, most predictions meet the label of another sample. The
metric is that of guessing, or, in a file of predictions, each line is that of another sample. Nothing fails.

## How to be sure

Evaluate on one rank: the metric is another one. ddpdoctor (`ddpdoctor run`) reports an evaluation of shares after which
the ranks gathered one thing alone, at a line whose result the source joins, cuts (`[:n]`) and compares with something
that was not gathered.

## How to mend it

Gather the labels in the same way, or bring the predictions into their order, then cut:

    everybody = torch.stack(gathered, dim=1).flatten(0, 1)[: len(dataset)]

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, torch.utils.data.distributed:
`indices[rank:total_size:num_replicas]`.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import Ailment, Evaluated, Evidence, Finding, Fix, Place, Severity, Training, watch

from ...._evaluation.evaluations import Share, evaluation, sharded
from ._gathered import cut_and_compared

AILMENT = Ailment("DDP647", Severity.WARNING)


@watch(Evaluated)
def while_training(event: Evaluated, training: Training) -> Iterator[Finding]:
    """Look for shares that are dealt out in turn, and gathered by one line that joins them rank by rank."""
    ranks = evaluation(event, training)
    if not sharded(ranks) or not _are_dealt(ranks):
        return
    if any(each.site == event.site for each in training.before(event, loader=event.loader)):
        return  # looked at before
    lines = {(file, line) for each in ranks.values() for _, _, _, file, line in each.told.sent}
    operations = {sent[0] for each in ranks.values() for sent in each.told.sent}
    if len(lines) != 1 or not all("gather" in name for name in operations):
        return
    file, line = lines.pop()
    found = cut_and_compared(file, line)
    if found is None:
        return
    joined, at, compared = found
    count = len(ranks)
    yield Finding(
        f"the predictions of {count} ranks are put one behind the other, and compared with what is in the order of the "
        "data set",
        (
            Evidence(f"rank 0 has samples 0, {count}, {2 * count}, ... of {ranks[0].started.dataset}", "",
                     f"the loop of {event.site}"),
            Evidence(joined, "in turn: torch.stack(gathered, 1).flatten(0, 1)[:n]", f"{file}:{at}"),
            Evidence("compared one by one with what was not gathered", "", f"{file}:{compared}"),
        ),
        Fix(
            "bring the predictions into the order of the data set before they are cut",
            diff=f"-{joined}\n+torch.stack(gathered, dim=1).flatten(0, 1)[: len(dataset)]",
        ),
        Place(file=file, line=at),
    )  # fmt: skip


def _are_dealt(ranks: dict[int, Share]) -> bool:
    samplers = [each.started.sampler for each in ranks.values()]
    return 0 in ranks and all(
        each is not None and each.kind == "DistributedSampler" and not each.shuffle for each in samplers
    )
