"""A metric that is no mean over samples is averaged over the ranks' shares.

## What happens

An accuracy is a mean over samples, so that the mean of equal shares is that of the whole. F1, AUC, average precision,
a correlation, a root mean square error, a perplexity, an intersection over a union are not: the mean of the ranks'
results is another number than the result of all samples, and depends on the number of GPUs. Nothing fails, and the
number looks plausible.

## How to be sure

Compute the metric from the predictions of all ranks: it differs. ddpdoctor (`ddpdoctor run`) reports an evaluation in
which each rank went through its share, and a single number of each, which such a function had computed, was averaged:
by ReduceOp.AVG, or summed up and divided by the number of ranks; without a loader, where the numbers of the ranks are
seen to differ. So of a number for each class, where one of your own methods computes them as quotients of counts that
it keeps (an intersection over a union), or a function divides what it has added up by what it has counted of each
class.

## How to mend it

Reduce what the metric is computed from, then compute it once. For F1, the counts:

    counts = torch.stack([true_positives, false_positives, false_negatives])
    dist.all_reduce(counts)

For a perplexity or a root mean square error, sum and count before `exp` or `sqrt`; for AUC, gather scores and labels.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: PyTorch documentation, torch.distributed.all_reduce;
scikit-learn documentation, "Metrics and scoring".
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    EpochStarted,
    Evaluated,
    Evidence,
    Finding,
    Fix,
    Severity,
    Site,
    Summed,
    Training,
    last_name,
    place,
    watch,
)

from ..._evaluation.evaluations import Reduced, are_cut, evaluation, one_number, sharded, shares_gradients
from ..._evaluation.quotients import computed_by, divides
from ..._evaluation.rank_parts import untrained_part
from ._ratios import quotient, ratio

AILMENT = Ailment("DDP642", Severity.WARNING)
MEANS = {"mean", "sum", "average"}
PLAIN = {"exp", "median", "sqrt"}
"""Functions that statistics of a training are computed with as well, whose mean over the ranks is meant."""
CLASSES = 1000  # numbers, one of each class
GRADIENTS = re.compile(r"\.grad\b|backward\(")
"""What says that a function trains, or tells of gradients, whose norms are no metric."""
COUNTS = "+dist.all_reduce(self.counts)   # of all ranks, before {name}() divides them\n"
PARTS = (
    "-score = {name}(of_this_rank)\n-dist.all_reduce(score)\n-score /= world_size\n"
    "+parts = [torch.empty_like(of_this_rank) for _ in range(world_size)]\n"
    "+dist.all_gather(parts, of_this_rank)\n+score = {name}(torch.cat(parts))"
)


@watch(Evaluated)
def while_training(event: Evaluated, training: Training) -> Iterator[Finding]:
    """Look for an evaluation of shares, of which one number that is no mean over samples is averaged."""
    ranks = evaluation(event, training)
    if not (sharded(ranks) or are_cut(ranks)):
        return
    sent = [each.told.sent for each in ranks.values()]
    found = _averaged([[(one,)] * len(sent) for one in sent[0]]) if len(set(sent)) == 1 else None
    if found is None:
        return
    name, several, reduced = found
    samples = ", ".join(f"{each.samples} on rank {rank}" for rank, each in [*ranks.items()][:8])
    yield Finding(
        f"the mean over the ranks of {name}() is not {name}() of all samples",
        (
            Evidence(f"each rank computes {name}() from its share: {samples}", "", f"the loop of {event.site}"),
            Evidence(f"{'some numbers' if several else 'one number'} of each rank, averaged",
                     f"{name}() once, from what all ranks have", str(reduced.site)),
        ),
        Fix(
            "reduce, or gather, what the metric is computed from, then compute it once",
            diff=(COUNTS if several else PARTS).format(name=name),
        ),
        place(reduced.site),
    )  # fmt: skip


def _averaged(sent: list[list[tuple[tuple[str, str, int, str, int], ...]]]) -> tuple[str, bool, Reduced] | None:
    """Return what has computed what is averaged over the ranks, whether it is several numbers, and where.

    ``sent`` has each communication that all ranks have made. None where all that is averaged are means over samples.
    """
    for each in sent:
        reduced, several = one_number(each, CLASSES), one_number(each) is None
        if reduced is not None and (
            reduced.reduction == "AVG" or (reduced.reduction == "SUM" and divides(reduced.site)[1])
        ):
            name = quotient(reduced.site) if several else computed_by(reduced.site)
            if name:
                return name, several, reduced
    return None


@watch(Summed)
def of_a_part_cut_by_hand(event: Summed, training: Training) -> Iterator[Finding]:
    """Look for such a number, another one on each rank, that is added up and divided by their number without a loader.

    What an evaluation with a loader averages is looked at with it.
    """
    told = training.by_rank(Summed, callers=event.callers)
    numbers = [each.given for each in told.values()]
    if not event.callers or len(told) < max(training.world_size, 2) or None in numbers or len(set(numbers)) == 1:
        return
    if training.framework is not None or not all(shares_gradients(each.pid, training) for each in told.values()):
        return
    site = Site(*event.callers[0])
    around = untrained_part(site)
    if around is None or not divides(site)[1] or GRADIENTS.search(ast.unparse(around)):
        return
    name = computed_by(site)
    if not name or _is_averaged(around, name) or training.of(EpochStarted, training=False):
        return
    if name in PLAIN and ".eval(" not in ast.unparse(around):
        return
    yield Finding(
        f"the mean over the ranks of {name}() is not {name}() of all samples",
        tuple(
            Evidence(f"{number:.6g}, what {name}() gives of this rank's part, is added up and divided by the ranks",
                     f"{name}() once, from what all ranks have", f"rank {rank}, {site}")
            for rank, number in [*zip(told, numbers, strict=True)][:8]
        ),
        Fix(
            "reduce, or gather, what the metric is computed from, then compute it once",
            diff=PARTS.format(name=name),
        ),
        place(site),
    )  # fmt: skip


@watch(Summed)
def of_each_class(event: Summed, training: Training) -> Iterator[Finding]:
    """Look for quotients by what each rank has counted of each class, that are added up and divided by the ranks."""
    if event.rank != 0 or event.elements == 1 or training.framework is not None or not event.callers:
        return
    site = Site(*event.callers[0])
    if not shares_gradients(event.pid, training) or not divides(site)[1] or not (quotients := ratio(site)):
        return
    yield Finding(
        f"the mean over the ranks of {quotients} is not that of all samples: each rank has counted others",
        (
            Evidence(f"{event.elements} numbers of each rank are added up, {quotients} among them, and divided by the "
                     "number of ranks", "both sides of the quotient added up over the ranks, and then divided",
                     str(site)),
        ),
        Fix(
            "add up both sides over the ranks, and divide then",
            diff="".join(f"+dist.all_reduce({side.strip()})\n" for side in quotients.split("/", 1)),
        ),
        place(site),
    )  # fmt: skip


def _is_averaged(around: ast.AST, name: str) -> bool:
    """Whether the results of a function are averaged in another one: one of each sample, as in ``x.exp().mean()``."""
    means = [each for each in ast.walk(around) if isinstance(each, ast.Call) and last_name(each.func) in MEANS]
    parts = [part for each in means for part in ast.walk(each)]
    return any(isinstance(each, ast.Call) and last_name(each.func).lower() == name for each in parts) or (
        name == "sqrt" and any(isinstance(each, ast.Pow) for each in parts)
    )
