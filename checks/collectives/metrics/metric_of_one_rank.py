"""A metric is computed from one rank's share of the evaluation, and told as that of all.

## What happens

A DistributedSampler gives each rank its share of the samples, in an evaluation as well. What a rank counts and sums
there is about its share alone: with eight ranks, the accuracy that rank 0 prints is that of an eighth of the data, and
the best model is chosen by it. The ranks come to different results: where each of them stops early, or restores its
best weights, they part.

## How to be sure

Print the metric on every rank: the numbers differ. Reported where a loop without gradients goes through a loader with
a DistributedSampler, sums are kept over the loop and printed or returned after it, and neither the file nor one in
its reach reduces or gathers them. Each sum is followed by itself: a loss that is reduced says nothing of the accuracy
that is returned beside it. Where one rank alone comes to that loop, nothing can be added up there: it needs a loader of
all samples. A loader of Lightning Fabric's `setup_dataloaders` is shared out as well, and so are those of Lightning's
Trainer: what `on_validation_epoch_end` prints of the batches that the steps have kept is of one process.

In a running training (`ddpdoctor run`): the second evaluation by a sampler with a share for each rank, and the last
one, after which nothing was exchanged before the training went on, but for barriers and what one rank has broadcast.
Not reported where several ranks write files meanwhile, which somebody puts together, nor where the script prints the
rank with what it has. The same after an evaluation whose number of samples alone is added up over the ranks, and
divides what was summed, also where the source of the function that adds up says so.

Evaluations without a loader, from `model.eval()` on, are compared by the rows that the model is given: reported are
the same rows in two evaluations, which no other rank has, in a function that keeps sums. In the file of the training:
a function without gradients that goes through a rank's part by hand, and returns a mean which nothing brings together.

## How to mend it

Add up counts and sums over the ranks, then divide.

    totals = torch.tensor([loss_sum, correct, count], device=device)
    dist.all_reduce(totals)
    loss, accuracy = totals[0] / totals[2], totals[1] / totals[2]

Where rank 0 alone evaluates, give its loader no DistributedSampler: `DataLoader(val_set)`.

## Versions and sources

Holds for torch 2.2 to 2.13; seen with torch 2.13 CPU. Source: PyTorch documentation, DistributedSampler;
torch.distributed.all_reduce.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Ended,
    Evaluated,
    EvaluatedByHand,
    Evidence,
    Finding,
    Fix,
    Monitored,
    Severity,
    Site,
    StepFingerprinted,
    Summed,
    Training,
    lint,
    place,
    tree_of,
    watch,
)

from ..._evaluation.evaluations import are_cut, by_hand, evaluation, one_number, sharded, shares_gradients
from ..._evaluation.metrics import adds_up, adds_up_by_hand, after_loop, after_loop_around, cuts_by_rank, says_rank
from ..._evaluation.parts import are_parts, how_many
from ..._evaluation.quotients import is_divisor
from ..._evaluation.rank_parts import told_alone
from ..._findings.places import file_of_first_step
from ..._ledgers.mixed import mixed
from ..._scripts.source import is_own
from ._epoch_end import printed_at_the_end
from ._evaluated_alone import evaluated_alone
from ._fabric import told_of_share
from .source._put_together import ADDED, WHOLE, fix, named
from .source._sums import unreduced
from .source._told_sums import told_after
from .source._written import write_parts, writes

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script

AILMENT = Ailment("DDP754", Severity.WARNING)
SECOND = 2  # evaluation
HANDED_OUT = {"broadcast", "broadcast_object_list"}
"""Operations that give all ranks what one of them has, and bring nothing together."""
CHANCE = 0.2  # of the rows: what is drawn for several evaluations, an episode say, meets again


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for sums over an evaluation that is shared out, in a project that reduces nothing."""
    known = script.frameworks if script.frameworks in ({"accelerate"}, {"horovod"}) else frozenset()
    if not is_own(script, known=known):
        return
    told = set()
    for each in evaluated_alone(script, project):
        use = told_after(script, each.loop, each.held) if each.loop not in told else None
        if use is not None:
            told.add(each.loop)
            yield Finding(
                f"one rank alone evaluates {named(each.loop.iter)}, which holds its share of the samples: what it "
                "tells is of that share",
                (script.seen(each.loop, "a loader of all samples"), each.sampler, each.guard, script.seen(use)),
                Fix("give the rank that evaluates all samples: a loader without a DistributedSampler", diff=WHOLE),
                script.place(each.loop),
            )
    found = list(unreduced(script, project, framework=known == {"accelerate"}))
    for loop, held, sampler in found:
        use = told_after(script, loop, held) if loop not in told else None
        if use is not None:
            told.add(loop)
            own = ", ".join(dict.fromkeys(name for each, name, _ in found if each is loop))
            yield Finding(
                f"what is summed over {named(loop.iter)} is of one rank's share, and is told as that of all",
                (
                    script.seen(loop, f"{own} of all ranks, put together behind the loop"),
                    sampler,
                    script.seen(use),
                ),
                fix(script, loop, held, sampler),
                script.place(loop),
            )


@lint
def of_fabric(script: Script) -> Iterator[Finding]:
    """Look for sums over a loader that Lightning Fabric has shared out, in a file that reduces nothing."""
    yield from told_of_share(script)


@lint
def of_lightning(script: Script, project: Around) -> Iterator[Finding]:
    """Look for what a module of Lightning prints at the end of an evaluation, of the batches of one process."""
    yield from printed_at_the_end(script, project)


@watch(Evaluated)
def while_training(event: Evaluated, training: Training) -> Iterator[Finding]:
    """Look for an evaluation of shares after which no rank has told another what it has counted."""
    ranks = evaluation(event, training)
    if event.site is None or not (sharded(ranks) or are_cut(ranks) or are_parts(ranks, training)):
        return
    if training.of(Monitored) or any(sent[0] not in HANDED_OUT for each in ranks.values() for sent in each.told.sent):
        return  # what decides by the metric is compared itself
    if not event.number and not event.at_end and not any(training.before(event, site=event.site)):
        return  # one in the midst of the training is not yet a habit
    if write_parts(ranks, training) or says_rank(event.site.file) or not adds_up(event.site):
        return
    yield Finding(
        f"what is counted over {next(iter(ranks.values())).started.dataset} is of one rank's share: "
        f"{len(ranks)} ranks evaluate a share each, and exchange nothing",
        tuple(
            Evidence(f"{how_many(each)}, then no communication", "an all_reduce of sums",
                     f"rank {rank}, the loop of {event.site}")
            for rank, each in ranks.items()
        )[:8],
        Fix("add up the sums and counts of all ranks, then divide", diff=ADDED),
        place(after_loop(event.site)),
    )  # fmt: skip


@watch(Evaluated)
def but_the_count(event: Evaluated, training: Training) -> Iterator[Finding]:
    """Look for an evaluation of shares after which the number of samples alone is added up."""
    ranks = evaluation(event, training)
    reduced = one_number([each.told.sent for each in ranks.values()])
    if not sharded(ranks) or reduced is None or reduced.reduction != "SUM" or event.site is None:
        return
    if mixed(reduced.site) is not None:
        return  # told where it is added up
    if any(each.samples is None or each.told.given != (each.samples,) for each in ranks.values()):
        return
    earlier = [each for each in training.of(Evaluated, pid=event.pid, loader=event.loader) if each is not event]
    if earlier or says_rank(event.site.file) or not (adds_up(event.site) and is_divisor(reduced.site)):
        return  # what is reduced could be hits, of a model that is always right
    yield Finding(
        f"the number of samples of {len(ranks)} ranks is added up, and what they have counted is not: a share is "
        "divided by the whole",
        tuple(
            Evidence(f"{each.samples}, the length of its share, given to all_reduce, and nothing else",
                     "the sums as well", f"rank {rank}, {reduced.site}")
            for rank, each in ranks.items()
        )[:8],
        Fix("add up the sums and counts of all ranks, then divide", diff=ADDED),
        place(reduced.site),
    )  # fmt: skip


@watch(Summed)
def but_the_count_by_hand(event: Summed, training: Training) -> Iterator[Finding]:
    """Look for a number of samples that is added up and divides what one rank has counted."""
    yield from _of_a_whole_count(event, training)


def _of_a_whole_count(event: Summed, training: Training) -> Iterator[Finding]:
    if not event.callers or event.rank != 0 or training.framework is not None:
        return
    if not shares_gradients(event.pid, training):
        return
    file, line, function = event.callers[0]
    found = mixed(Site(file, line, function))
    if found is None or found.by_own_count:
        return
    yield Finding(
        f"{found.summed} is added up over {training.world_size} ranks and divides {found.own}, which is this rank's "
        "own: a share is divided by the whole",
        (
            Evidence(f"{event.operation} adds {found.summed} up", f"{found.own} as well", str(event.site)),
            Evidence(found.quotient, "both of all ranks", f"{file}:{found.line}"),
        ),
        Fix("add up the sums and counts of all ranks, then divide", diff=ADDED),
        place(Site(file, line, function)),
    )


@watch(Ended)
def but_the_count_at_the_end(training: Training) -> Iterator[Finding]:
    """Look again at what was added up before the first step, when nobody knew yet what the ranks share."""
    for event in training.of(Summed, rank=0):
        yield from _of_a_whole_count(event, training)


@watch(EvaluatedByHand)
def without_a_loader(event: EvaluatedByHand, training: Training) -> Iterator[Finding]:
    """Look for rows that each rank has for itself, in each evaluation the same, after which nothing is sent."""
    ranks = by_hand(event, training)
    if not ranks or any(each.sent for each in ranks.values()) or training.of(Monitored):
        return
    before = training.complete(EvaluatedByHand, number=event.number - 1)
    same = bool(before) and all(before[rank].rows == each.rows for rank, each in ranks.items())
    fixed = event.number == SECOND and same and before[0].callers == event.callers
    if not fixed and not (event.number == 1 and event.at_end and cuts_by_rank(event.callers)):
        return
    if any(rank and writes(each.pid, before[rank].time if before else 0.0, each.time, training)
           for rank, each in ranks.items()):  # fmt: skip
        return  # its part, for rank 0 to read
    if not _are_parts([each.rows for each in ranks.values()]) or not adds_up_by_hand(event.callers):
        return
    file, line, _ = event.callers[0]
    if says_rank(file):
        return
    yield Finding(
        f"what is counted over an evaluation is of one rank's share: {len(ranks)} ranks evaluate rows of their own, "
        "and exchange nothing",
        tuple(
            Evidence(f"{len(each.rows)} rows that no other rank evaluates, then no communication",
                     "an all_reduce of sums", f"rank {rank}, {file}:{line}")
            for rank, each in ranks.items()
        )[:8],
        Fix("add up the sums and counts of all ranks, then divide", diff=ADDED),
        place(after_loop_around(Site(file, line, ""))),
    )  # fmt: skip


@watch(StepFingerprinted)
def of_a_part_cut_by_hand(event: StepFingerprinted, training: Training) -> Iterator[Finding]:
    """Look into the file of a training for a mean over a rank's part that is told as that of all."""
    file = file_of_first_step(event, training)
    if not file or training.world_size < SECOND or training.framework is not None or says_rank(file):
        return
    if not shares_gradients(event.pid, training):
        return
    for each in told_alone(tree_of(file).module):
        yield Finding(
            f"a mean over {each.counted} is of one rank's part: each rank goes through its own, and nothing is brought "
            "together",
            (
                Evidence("the loop is over this rank's part", "", f"{file}:{each.loop}"),
                Evidence(f"the mean of {each.counted} is returned", "an all_reduce of sum and count before it",
                         f"{file}:{each.line}"),
            ),
            Fix("add up the sums and counts of all ranks, then divide", diff=ADDED),
            place(Site(file, each.line, "")),
        )  # fmt: skip


def _are_parts(rows: list[tuple[float, ...]]) -> bool:
    """Whether the ranks have hardly a row in common, and all have some."""
    together = [each for part in rows for each in set(part)]
    return all(rows) and len(together) - len(set(together)) <= CHANCE * len(together)
