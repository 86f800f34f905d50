"""The ranks are in different places of the program.

## What happens

Collectives pair by their number in the group, not by their line. When a rank skips one, or adds one (an
`if rank == 0`, a batch that takes another branch, one step more than the others), all later ones pair wrongly, and
the hang shows at one that is not at fault. The proof is a difference between ranks: at the same SeqNum another OpType
or NumelIn; another SeqNum; a watchdog's queue that is shorter (workMetaList_.size()=84 beside 103).

## How to be sure

Compare the stacks of the rank that differs and of another one: `py-spy dump --pid PID`, or the flight recorder's
dumps (TORCH_NCCL_TRACE_BUFFER_SIZE=20000), which `ddpdoctor explain` compares. `ddpdoctor run` shows where each rank
waits. Where one rank is past a loop that counts to what all ranks have alike, the loop has not ended earlier there: the
rank has left a call of it out, and the early returns and tests before that call are named.

## How to mend it

Put no collective, and no forward of a DDP model, under a condition that differs between the ranks. Decide on one rank
and broadcast the decision.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch's ProcessGroupNCCL.cpp; torch.distributed documentation, "Debugging
torch.distributed applications".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from ddpdoctor.check import (
    RANKS_LINE,
    Ailment,
    Ambiguity,
    Evidence,
    Finding,
    Fix,
    Log,
    PeerLost,
    Place,
    Record,
    Severity,
    Stalled,
    Training,
    log_pattern,
    place,
)

from ...._findings.few import few
from ...hangs._hangs import on_hang
from ...hangs._kinds import Hang
from ...hangs._lines import NOTHING_TOLD, counted, hang_in, loop_left_in_words, unequal_loaders
from ...hangs._losses import Loss, on_loss
from ...hangs._told import seen, short, table
from ...hangs.calls._apart import gone_on
from ...hangs.calls._members import passed_over
from ...hangs.source._exits import LeftBy, loop_left_by
from ...left._leave_together import mended
from ...timeouts._experts import EXPERTS, LEAVES, under_zero3
from ...timeouts._flight import CROSSED, LATE, proofs
from ...timeouts._waits import STUCK, place_of
from ...timeouts._watchdog import Timeout, named, on_timeout, story_of
from ._in_a_loop import after_a_loop, in_iterations
from ._in_finally import told_in_finally
from ._logging import told_as_logged
from ._returned_early import returned_early
from ._under_a_test import begun_under_a_test, under_a_test
from ._went_on import FIX, UNEVEN, left_out_by, went_on

AILMENT = Ailment("DDP712", Severity.ERROR)
QUEUE = r"Heartbeat monitor timed out![^\n]{0,999}workMetaList_\.size\(\)=(\d+)"
ELSEWHERE = "a branch or a loop differs between the ranks (rank == 0, number of batches, kind of batch)"


@on_timeout(Timeout.DIFFERENT)
def in_one_number(record: Record, log: Log) -> Iterator[Finding]:
    """The same number is not the same collective."""
    story = story_of(log)
    said = "; ".join(f"rank {wait.rank} in {wait}" for wait in few(story.waits, place_of))
    yield Finding(f"the ranks are in different collectives: {said}", story.evidence, FIX, record.place)


@on_timeout(Timeout.BEHIND)
def in_different_numbers(log: Log) -> Iterator[Finding]:
    """A rank is behind the others."""
    story = story_of(log)
    late = named(list(story.ranks))
    experts = under_zero3(log) if story.waits[0].op in {"_ALLGATHER_BASE", "ALLGATHER"} else ()
    yield Finding(
        f"{late} {'are' if len(story.ranks) > 1 else 'is'} behind the others, which wait in {story.waits[0]}",
        (*story.evidence, *experts),
        LEAVES if experts else FIX,
        Place(rank=story.ranks[0]),
        ambiguity=Ambiguity(
            (
                *((EXPERTS,) if experts else ()),
                ELSEWHERE,
                f"{late} hung or worked elsewhere (data loading, I/O)",
                "a transfer broke off half-way",
            ),
            f"py-spy dump --pid PID   # of {late}, and of one other rank, while they wait",
        ),
    )


@log_pattern(QUEUE, context=(QUEUE, STUCK))
def in_the_queues(record: Record, log: Log) -> Iterator[Finding]:
    """Compare the lengths of the watchdogs' queues, where several ranks print them."""
    sizes = {each.rank: (int(found[1]), each.proof(found)) for each, found in log.find(QUEUE) if each.rank is not None}
    first = log.first(QUEUE)
    if first and first[0] is record and not log.first(STUCK) and len({size for size, _ in sizes.values()}) > 1:
        fewest = min(size for size, _ in sizes.values())
        late = [rank for rank, (size, _) in sorted(sizes.items()) if size == fewest]
        yield Finding(
            f"{named(late)} issued fewer collectives than the others: {fewest} under way, up to "
            f"{max(size for size, _ in sizes.values())} elsewhere",
            tuple(proof for _, proof in few(sizes.values(), lambda each: each[0])),
            FIX,
            Place(rank=late[0]),
            ambiguity=Ambiguity(
                (ELSEWHERE, f"{named(late)} hung or worked elsewhere (data loading, I/O)"),
                f"py-spy dump --pid PID   # of {named(late)}, and of one other rank, while they wait",
            ),
        )


@log_pattern(LATE, supersedes=("rank-died-or-stuck",))
def in_dumps(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """A rank that lives, since it wrote a dump, has not called what the others wait in."""
    yield Finding(
        f"{match['said']}, where the others wait",
        proofs(record, "all ranks call it"),
        FIX,
        record.place,
        ambiguity=Ambiguity(
            (ELSEWHERE, f"{match['who']} hung or worked elsewhere (data loading, I/O)"),
            f"py-spy dump --pid PID   # of {match['who']}, and of one other rank, while they wait",
        ),
    )


@log_pattern(CROSSED, supersedes=("rank-died-or-stuck",))
def in_crossed_groups(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """The ranks wait for each other, in several groups or transfers."""
    yield Finding(
        f"{match['said']}, each for another one",
        proofs(record, "all ranks call the groups' collectives in one order"),
        FIX,
        record.place,
        ambiguity=Ambiguity(
            ("the ranks use several process groups in different orders", ELSEWHERE),
            "compare the lines above: they are where each rank waits",
        ),
    )


@on_hang(Hang.DIVERGED)
def while_training(event: Stalled, training: Training) -> Iterator[Finding]:
    """Yield where each rank waits, where nothing tells which of them is wrong."""
    yield (
        told_as_logged(event)
        or in_iterations(event)
        or told_in_finally(event, training)
        or begun_under_a_test(event)
        or left_out_by(event)
        or after_a_loop(event, training)
        or under_a_test(event)
        or returned_early(event)
        or _apart(event, seen(event))
    )


@log_pattern(RANKS_LINE)
def over_hosts(record: Record, log: Log) -> Iterator[Finding]:
    """Put together where the watch of each host has seen its ranks wait."""
    if event := hang_in(record, log, Hang.DIVERGED, Hang.EXITED):
        known = in_iterations(event) or after_a_loop(event, NOTHING_TOLD)
        found, (said, counts) = known or _apart(event, seen(event)), counted(log)
        left = "" if known else loop_left_in_words(log)
        lengths, loaders = unequal_loaders(log)
        more = "".join(f"; {each}" for each in (left, said, lengths) if each)
        fix = SAME_DATA if lengths else UNEVEN if left and said else found.fix
        if not lengths and (ways := loop_left_by(event, NOTHING_TOLD)) is not None and ways.loop.exits:
            found, fix = replace(found, ambiguity=_ways_out(ways)), mended(ways, None)
        yield replace(found, message=f"{found.message}{more}", evidence=(*found.evidence, *counts, *loaders), fix=fix)


def _ways_out(left: LeftBy) -> Ambiguity | None:
    """Return how a rank can have left a loop early, as its source tells; None where there is one way."""
    ends = ("its items were used up on this rank",) if left.loop.ends_itself else ()
    told = "print the rank and the step at each of these lines: one rank comes there first"
    return None if left.loop.only else Ambiguity((*map(str, left.loop.exits), *ends), told)


SAME_DATA = Fix(
    "give all hosts the same data and the same batch size, so that all ranks have as many batches",
    command="find DATA -type f | wc -l   # DATA: the folder that the loader reads, on each host\n"
    "ddpdoctor check --data DATA -- torchrun ...   # on each host: compares the folders",
)


def _apart(event: Stalled, evidence: tuple[Evidence, ...]) -> Finding:
    return Finding(
        "the ranks wait for each other in different places: "
        + "; ".join(
            f"rank {position.rank} in {position.operation} at {short(position.site)}" for position in event.ranks[:4]
        ),
        evidence,
        FIX,
        place(event.ranks[0].site, rank=event.ranks[0].rank),
        table=table(event),
        ambiguity=Ambiguity(
            (
                "a loop ends earlier on one rank (break, other number of batches)",
                "a branch differs between the ranks",
            ),
            "compare the two lines above: one of them is reached by some ranks only",
        ),
    )


@on_loss(Loss.DIVERGED)
def by_those_who_lost_it(event: PeerLost, training: Training) -> Iterator[Finding]:
    """Yield who had left the loop that another rank was in, where one of them is gone without a word."""
    found = gone_on(event, training)
    assert found is not None  # noqa: S101 - else it would be another loss
    yield went_on(found, event)


@on_hang(Hang.OUTSIDE)
def passed_over_by_torch(event: Stalled, training: Training) -> Iterator[Finding]:
    """Yield who waits in a collective, and who called it with a group that does not have it."""
    found = passed_over(event, training)
    assert found is not None  # noqa: S101 - else it would be another hang
    position, others = found
    who = f"rank{'s' if len(others) > 1 else ''} {', '.join(map(str, others[:8]))}"
    yield Finding(
        f"rank {position.rank} waits in {position.operation} at {short(position.site)}; {who} called it there "
        f"with a group that {'they are' if len(others) > 1 else 'it is'} not in, which torch passes over",
        (
            Evidence(f"{position.operation} was passed over", "the group of which the rank is a member", who),
            *seen(event),
        ),
        Fix(
            "let each rank take the group that has it",
            diff=" groups = [dist.new_group(ranks) for ranks in layout]\n"
            "+own = next(each for each, ranks in zip(groups, layout) if dist.get_rank() in ranks)\n"
            "-dist.all_reduce(tensor, group=groups[index])\n+dist.all_reduce(tensor, group=own)",
        ),
        place(position.site, rank=others[0]),
        table=table(event),
    )
