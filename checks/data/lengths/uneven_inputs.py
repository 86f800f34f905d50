"""The ranks have different numbers of batches.

## What happens

DDP averages gradients in each backward, and waits for all ranks. The rank with the most batches waits in its
last steps for ranks that have none left: the training hangs at the end of the epoch until the timeout (NCCL:
10 minutes, gloo: 30), or pairs the wrong collectives. Usual causes: files or lines that are split unevenly,
`drop_last=False` on shares whose lengths differ, a filter that drops samples.

## How to be sure

Print the number of batches on each rank, counted, not `len(loader)`, which an IterableDataset
estimates. ddpdoctor reads an epoch's batches from the sampler, or loads them, up to a limit; what was not
seen is not judged.

In a running training (`ddpdoctor run`) the lengths of the loaders are compared in the first pass, before
anything hangs, where the loop takes all that there is; in a hang, a rank that has left the loop while another
is in it is named with its number of batches.

## How to mend it

A sampler that pads or drops (DistributedSampler), `drop_last=True` on equal shares, the
smallest number for all ranks (`itertools.islice`), or `with Join([model]):` around the loop.

In a log only Join says it outright: "Detected at least one rank that exhausted inputs. Throwing across all ranks."

Not reported where the sources use Join; a note where the factory's name says evaluation.

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU: the longer rank times out. Source: PyTorch tutorial,
"Distributed Training with Uneven Inputs Using the Join Context Manager".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Ambiguity,
    Evidence,
    Finding,
    Fix,
    Log,
    NotRun,
    OrderSeen,
    PeerLost,
    Record,
    Severity,
    Stalled,
    Table,
    Training,
    log_pattern,
    place,
    probe,
    watch,
)

from ...collectives.hangs._hangs import on_hang
from ...collectives.hangs._kinds import Hang
from ...collectives.hangs._losses import Loss, on_loss
from ...collectives.hangs._told import noticed, seen, short, table
from ...collectives.hangs.calls._apart import gone_on
from ...collectives.hangs.calls._compared import uneven, unlike_passes
from .._passes import reducer, same_pass
from .._words import SHOWN, at, counted, unless_a_framework_splits
from ._ended_first import ended_first, together
from ._loops import runs_to_the_end

if TYPE_CHECKING:
    from ddpdoctor.check import LoaderExam

AILMENT = Ailment("DDP607", Severity.ERROR)
# The samplers whose len() is the number of samples that they give.
EXACT = {"DistributedSampler", "RandomSampler", "SequentialSampler", "SubsetRandomSampler"}


@probe
def by_counting(loader: LoaderExam) -> Iterator[Finding]:
    """Count the batches on each rank."""
    ranks = loader.several()
    seen = [rank.counted() for rank in ranks]
    ended = [number for number, complete in seen if complete]
    if not ended:
        raise NotRun("no rank came to the end of its epoch in the time of the examination")
    fewest = min(ended)
    if max(number for number, _ in seen) <= fewest or fewest == 0 or loader.source.joins:
        return
    unless_a_framework_splits(loader)
    words = [counted(number, "batch") + ("" if complete else " and more") for number, complete in seen]
    short = next(
        rank.rank for rank, (number, complete) in zip(ranks, seen, strict=True) if (number, complete) == (fewest, True)
    )
    yield Finding(
        f"the ranks have different numbers of batches, {fewest} on rank {short} and up to "
        f"{max(number for number, _ in seen)} on others: DDP waits for ever at batch {fewest + 1}",
        tuple(
            Evidence(text, counted(fewest, "batch"), f"rank {rank.rank}, " + ("sampler" if rank.plain else "loaded"))
            for rank, text in zip(ranks, words, strict=True)
        ),
        Fix(
            "give all ranks the same number of batches",
            diff=f"+from itertools import islice\n-for batch in loader:\n+for batch in islice(loader, {fewest}):",
        ),
        at(loader),
        severity=Severity.NOTE if loader.for_evaluation else None,
        table=Table(
            ("rank", "batches", "data set", "samples in it"),
            tuple(
                (rank.rank, text, rank.dataset, "" if rank.length is None else rank.length)
                for rank, text in zip(ranks, words, strict=True)
            ),
        ),
    )


@log_pattern(r"Detected at least one rank that exhausted inputs")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Join with throw_on_early_termination=True has counted them."""
    yield Finding(
        "a rank has no batch left, and others have: the ranks have different numbers of batches",
        (record.proof(match, "the same number of batches on all ranks"),),
        Fix(
            "give all ranks the same number of batches, or let Join shadow those that have none",
            diff="-with Join([model], throw_on_early_termination=True):\n+with Join([model]):",
        ),
        record.place,
    )


@log_pattern(r"Timed out receiving the shared seed from the distribtued store on Rank (?P<rank>\d+)", waits=True)
def where_one_began_anew(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """A loader of a DataPipe asks rank 0 for a seed in each pass."""
    yield Finding(
        f"rank {match['rank']} began a pass over its data, and rank 0 did not begin that pass in time",
        (record.proof(match, "all ranks begin each pass together"),),
        Fix(
            "give all ranks the same number of batches",
            diff="-pipe = pipe.sharding_filter()\n+pipe = pipe.sharding_filter().fullsync()   # of torchdata",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "the ranks have different numbers of batches: rank 0 is still in the pass before",
                "rank 0 failed, or works elsewhere (a checkpoint, an evaluation)",
                "a loader is passed through on some ranks alone",
            ),
            "py-spy dump --pid PID   # of rank 0, while the others wait",
        ),
    )


CLOSED = (
    r"Connection closed by peer \[(?:127\.|::1)"
    r"|(?:readv?|writev?|Read error|Write error) \[(?:127\.|::1)[^\]\s]*\]:\d+: "
    r"(?:Connection reset by peer|Broken pipe)"
)
ALONE = r"<NO_OTHER_FAILURES>"
STOPPED = r"exitcode {1,3}: -15 \(pid: \d+\)"  # by torchrun, once another had failed: it was alive until then
SPAWNED = r"-- Process \d+ terminated with the following error"
CRASHED = r"exitcode {1,3}: -(?!15\b)\d+"


@log_pattern(f"{ALONE}|{STOPPED}", context=(CLOSED, CRASHED))
def where_the_others_ended_well(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Of the ranks of this host one failed, since another had closed its connections; that one had no failure."""
    closed = log.first(CLOSED)
    errors = {other.error for other in log.records if other.error and not re.search(CLOSED, other.text)}
    if closed is None or log.first(CRASHED) or any("ChildFailedError" not in error for error in errors):
        return
    if log.first(SPAWNED):  # its peers are other processes of mp.spawn, of which torchrun says nothing
        return
    ranks = sorted(log.ranks(CLOSED) | log.ranks(f"{ALONE}|{STOPPED}"))
    left = f"a rank other than {', '.join(map(str, ranks))}" if ranks else "a rank"
    waiting = "those were" if len(ranks) > 1 else "another was"
    yield Finding(
        f"{left} came to its end without an error while {waiting} still in a step with it",
        (closed[0].proof(closed[1], "all ranks end together"), record.proof(match, "a failure of the other rank, too")),
        Fix("give all ranks the same number of batches", diff="+DataLoader(..., drop_last=True)"),
        closed[0].place,
        ambiguity=Ambiguity(
            (
                "the ranks have different numbers of batches (shares of unequal length, different batch sizes)",
                "one rank leaves the script early (sys.exit, return)",
            ),
            "ddpdoctor run -- torchrun --standalone "
            f"--nproc_per_node={max(2, len(ranks) + 1, *(each + 1 for each in ranks))} {script(closed[0])}",
        ),
    )


def script(record: Record) -> str:
    """Return the name of the user's own file; one that stands for it where the log has none."""
    return (record.place.file or "train.py").replace("\\", "/").rpartition("/")[2]


@on_hang(Hang.UNEVEN)
def in_a_hang(event: Stalled, training: Training) -> Iterator[Finding]:
    """One rank is through with its batches, or left the loop, while another goes on in it."""
    counts = uneven(event, training)
    done, batches = next(iter(counts.items()))
    going = next(each for each in event.ranks if each.rank not in counts)
    left = next(each for each in event.ranks if each.rank == done)
    yield Finding(
        f"rank {done} left the loop after {batches} batches and waits in {left.operation} at {short(left.site)}; "
        f"rank {going.rank} is in the loop still, in {going.operation} at {short(going.site)}",
        (Evidence(f"{batches} batches in this epoch", "as many as on the other ranks", f"rank {done}"), *seen(event)),
        together(training.framework),
        place(going.site, rank=going.rank),
        table=table(event),
    )


@on_loss(Loss.UNEVEN)
def by_those_who_lost_it(event: PeerLost, training: Training) -> Iterator[Finding]:
    """One rank was through with its batches and had gone on; the sizes that met ended one of the processes."""
    found = gone_on(event, training)
    assert found is not None  # noqa: S101 - else it would be another loss
    call = found.call
    yield Finding(
        f"rank {found.rank} had no batch left after {found.batches} and went on to {call.operation} at "
        f"{short(call.site)}; rank {found.other} was in the loop still"
        + (f", at {short(found.site)}" if found.site else ""),
        (
            Evidence(f"{found.batches} batches in this epoch", "as many as on the other ranks", f"rank {found.rank}"),
            Evidence(f"{found.others} forwards", f"{found.forwards}", f"rank {found.other}"),
            *noticed(event),
        ),
        together(training.framework),
        place(found.site or call.site, rank=found.other),
    )


@on_loss(Loss.FEWER)
def where_one_has_ended(event: PeerLost, training: Training) -> Iterator[Finding]:
    """One rank had fewer batches in a pass that all came to the end of, and so its script ended first."""
    counts = unlike_passes(training)
    yield ended_first(event, next(rank for rank in event.ended if rank in counts), counts, training.framework)


@watch(OrderSeen)
def while_training(event: OrderSeen, training: Training) -> Iterator[Finding]:
    """Compare the lengths of the loaders in the first pass, where the loop takes all that there is."""
    ranks = same_pass(event, training)
    lengths = [each.started.batches for each in ranks.values() if each.sampler and each.sampler.kind in EXACT]
    counts = [length for length in lengths if length is not None]
    sizes = {each.started.batch_size for each in ranks.values()}
    if not ranks or len(counts) < len(ranks) or len(set(counts)) == 1 or len(sizes) > 1:
        return  # of different batch sizes another check speaks
    if any(each.order.joins or not each.order.whole for each in ranks.values()):
        return
    if event.site is None or not runs_to_the_end(event.site):
        return
    least, most = (list(ranks)[counts.index(number)] for number in (min(counts), max(counts)))
    yield Finding(
        f"the ranks have different numbers of batches, {min(counts)} on rank {least} and {max(counts)} on rank {most}: "
        f"{reducer(training)} will wait for ever for the one that has none left",
        tuple(
            Evidence(
                f"{counted(number, 'batch')} of {each.started.batch_size} from {each.started.length} samples",
                counted(min(counts), "batch"),
                f"rank {rank}'s loader",
            )
            for number, (rank, each) in zip(counts, ranks.items(), strict=True)
        )[:SHOWN],
        Fix(
            "give all ranks the same number of batches",
            diff=f"+from itertools import islice\n-for batch in loader:\n+for batch in islice(loader, {min(counts)}):",
        ),
        place(event.site),
    )
