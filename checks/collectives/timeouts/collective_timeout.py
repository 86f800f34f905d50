"""A collective timed out, and the log does not show why.

## What happens

Every rank has to enter a collective. When one does not come, the others wait until the group's time-out (NCCL 10
minutes, 30 before torch 2.2; gloo 30) and then end: "Watchdog caught collective operation timeout:
WorkNCCL(SeqNum=...", or gloo's "Timed out waiting 1800000ms for recv operation to complete". These lines come from
the ranks that waited. The cause is in the one that did not come, and almost every fault of a rank can end here.

What decides, in this order: an earlier error of any rank; ranks that print no such line; numbers (SeqNum, OpType,
sizes) that differ between the ranks; whether it is the first collective of all; work on rank 0 that takes longer than
the time-out.

## How to be sure

Start again with `ddpdoctor run -- torchrun ...`, which compares what each rank calls while it hangs. Without it, set
`TORCH_NCCL_TRACE_BUFFER_SIZE=20000 TORCH_NCCL_DUMP_ON_TIMEOUT=1` and run `ddpdoctor explain` on the dumps of all
ranks; or run `py-spy dump --pid PID` on every rank while they wait: the one that is not in the collective is the
cause.

## How to mend it

Mend the rank that did not come. The log alone does not show which one it is, so the fix depends on what its stack
shows:

- it died or hangs in data loading, I/O or a lock: mend that;
- it is in another branch, or has another number of batches: let all ranks call the same collectives;
- it works longer than the time-out: do that work before the training, or pass `timeout=` to `init_process_group`;
- all ranks are in the collective: test the network and the GPUs,
  `ddpdoctor check --only network,gpu,nccl-collectives-fail`. Where it is the first collective of all, try
  NCCL_P2P_DISABLE=1.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch's ProcessGroupNCCL.cpp; gloo, transport/tcp/unbound_buffer.cc.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ddpdoctor.check import (
    JOINS,
    Ailment,
    Ambiguity,
    Evidence,
    Finding,
    Fix,
    Joined,
    Log,
    Position,
    Record,
    Role,
    Severity,
    Stalled,
    Training,
    calls_at,
    in_one_loop,
    log_pattern,
    place,
)

from ..hangs._hangs import on_hang
from ..hangs._kinds import Hang
from ..hangs._told import seen, short, table
from ._flight import ALONE, TOGETHER, proofs
from ._gloo import LATE as TIMED_OUT, differ, stands
from ._waits import STUCK
from ._watchdog import EARLY, Timeout, of_group, on_timeout, story_of

AILMENT = Ailment("DDP710", Severity.ERROR)
FIX = Fix(
    "find the rank that did not come: have every rank write down its last collectives",
    command="TORCH_NCCL_TRACE_BUFFER_SIZE=20000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 ddpdoctor run -- torchrun ...",
)
OF_GLOO = Fix(
    "find the rank that did not come: have torch compare what each rank calls",
    command="TORCH_DISTRIBUTED_DEBUG=DETAIL ddpdoctor run -- torchrun ...",
)
LATE = (
    "a rank died, or hangs outside of the collective (data loading, I/O, a lock)",
    "the ranks are in different places: another number of batches, another branch, another order or shape of calls",
    "a rank works longer than the time-out",
    "the network or the path between GPUs has stalled",
)
FIRST = (
    "the path between the GPUs does not work (NCCL_P2P_DISABLE=1 then helps)",
    "a rank prepares data, or downloads, longer than the time-out",
    "a rank died, or never came to the first collective",
)
FAILED = r"NCCL error|ncclRemoteError|terminated with exception|CUDA error: "
APART = (
    "the ranks call collectives in another order, or one of them calls one in a branch of its own",
    "the shapes of their tensors differ: one rank was done with a collective, the other was not",
    "the ranks have different numbers of batches",
)
UNLIKE = "the ranks call it in different groups, or with tensors of different shapes"
RECEIVING = "each of them waits to receive before it sends"
STALLED = (
    "a rank that the log does not show did not come",
    "the network between the hosts has stalled",
)
NEVER_COME = (
    "fewer processes were started than the world size says: nprocs of mp.spawn, or a launcher's number of processes",
    "ranks of another host did not come, or cannot reach this one",
)
NUMBERS = (
    "grep -rnE 'world_size|nprocs|nnodes' --include=*.py --include=*.sh .   # which number says more than were started"
)
ROOTED = {"broadcast": "src", "scatter": "src", "gather": "dst", "reduce": "dst"}
SHOWN = 6  # ranks
WATCH = "ddpdoctor run -- torchrun ...  # compares what each rank calls"
ASK = "py-spy dump --pid PID   # of every rank, while they wait: the one that is not in the collective"


@on_timeout(Timeout.UNKNOWN, role=Role.GENERIC)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Report who waits where, when no other check can say more."""
    story = story_of(log)
    early = story.waits[0].seq is not None and story.waits[0].seq <= EARLY
    yield Finding(
        f"{story.waiting}{of_group(story, log)}; the log does not show which rank did not come",
        (record.proof(match, "every rank enters the collective"), *(wait.proof for wait in story.waits[1:3])),
        FIX,
        record.place,
        ambiguity=Ambiguity(FIRST if early else LATE, ASK),
    )


@log_pattern(r"Some NCCL operations have failed or timed out", role=Role.GENERIC, context=(STUCK, FAILED))
def in_what_is_left_of_a_log(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Read the watchdog's last words where the lines above them, which tell more, are lost."""
    if log.first(STUCK) or log.first(FAILED):
        return
    yield Finding(
        "a watchdog ended this rank: an operation of NCCL failed or timed out, and the log does not say which",
        (record.proof(match, "the watchdog's line above it, which names the operation"),),
        FIX,
        record.place,
        ambiguity=Ambiguity(
            (*LATE, "NCCL itself failed"), "grep -E 'Watchdog caught|NCCL WARN|Error' LOGS_OF_ALL_RANKS"
        ),
    )


@log_pattern(TIMED_OUT, role=Role.GENERIC)
def in_logs_of_gloo(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Report gloo's time-out, and compare where the ranks waited, by the lines of their tracebacks."""
    several = stands(log)
    apart = differ(several)
    said = f"this rank waited {int(match[1]) / 1000:g} s in a collective for another rank, which did not come"
    ambiguity = Ambiguity(LATE, ASK)
    if apart:
        said = "the ranks waited in different places: " + "; ".join(map(str, several[:SHOWN]))
        ambiguity = Ambiguity(APART, WATCH)
    elif several[1:]:
        said = f"{len(several)} ranks waited in {several[0].doing} at {several[0].where}, and nothing arrived"
        ambiguity = Ambiguity((RECEIVING if several[0].doing == "recv" else UNLIKE, *STALLED), WATCH)
    yield Finding(
        said,
        (
            record.proof(match, "every rank enters the collective"),
            *(each.proof for each in several[:SHOWN] if several[1:]),
        ),
        Fix("let the watch compare what the ranks call, while they wait", command="ddpdoctor run -- torchrun ..."),
        record.place,
        ambiguity=ambiguity,
    )


@log_pattern(r"Application timeout caused pair closure", role=Role.GENERIC, context=(TIMED_OUT,))
def in_what_gloo_says_after_it(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Gloo closes all connections of a rank whose time-out struck; its next collective says no more than that."""
    if not log.first(TIMED_OUT):
        yield Finding(
            "an earlier collective of this rank timed out, and gloo closed its connections",
            (record.proof(match, "every rank enters the collective"),),
            FIX,
            record.place,
            ambiguity=Ambiguity(LATE, ASK),
        )


@log_pattern(TOGETHER, role=Role.GENERIC)
def in_dumps(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """All ranks of which there is a dump have come."""
    yield Finding(
        f"{match['said']}, and it does not end",
        proofs(record, "it ends when all ranks have come"),
        Fix(
            "test the network and the GPUs under this job",
            command="ddpdoctor check --only network,gpu,nccl-collectives-fail",
        ),
        record.place,
        ambiguity=Ambiguity((*LATE[3:], FIRST[0], "a GPU still works on what was issued before"), ASK),
    )


@log_pattern(ALONE, role=Role.GENERIC)
def in_one_dump(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """One rank alone knows where it waits, and not for whom."""
    yield Finding(
        match["said"],
        proofs(record, "dumps of all ranks"),
        FIX,
        record.place,
        ambiguity=Ambiguity(LATE, "ddpdoctor explain DUMPS_OF_ALL_RANKS"),
    )


@on_hang(Hang.SAME)
def while_training(event: Stalled, training: Training) -> Iterator[Finding]:
    """All ranks are in the same line, and still nothing arrives."""
    nccl = {each.backend for each in training.of(Joined)} != {"gloo"}
    first = event.ranks[0]
    groups = {each.rank: each.recent[-1].group for each in event.ranks if each.recent and each.recent[-1].group}
    differ = len(set(groups.values())) > 1
    told = tuple(Evidence(f"process group {group}", "one group", f"rank {rank}") for rank, group in groups.items())
    yield Finding(
        f"all ranks wait in {first.operation} at {short(first.site)}"
        + (", in different process groups" if differ else ", and nothing arrives"),
        (*(told if differ else ()), *seen(event)),
        Fix("call it in the same group on all ranks: each rank makes all groups, and all take the same one")
        if differ
        else FIX
        if nccl
        else OF_GLOO,
        place(first.site, rank=first.rank),
        table=table(event),
        ambiguity=None
        if differ
        else Ambiguity(NEVER_COME, NUMBERS)
        if first.operation in JOINS
        else Ambiguity((*_groups(event), *_roots(first), *(LATE[3:] if nccl else STALLED[1:]), *LATE[1:2]), ASK),
    )


def _groups(event: Stalled) -> tuple[str, ...]:
    """Return that a line of a loop can be in another group on each rank, where the calls are not known."""
    site = event.ranks[0].site
    calls = calls_at(site.file, site.line) if event.outside and site else ()
    given = [ast.unparse(each.value) for call in calls for each in call.keywords if each.arg == "group"]
    if not given or site is None or not in_one_loop(site.file, site.line, site.line):
        return ()
    told = f"the ranks are at that line in several groups, `group={given[0]}`, in another order on each"
    return (f"{told}: each waits for the next one, in a circle; `ddpdoctor run` tells the groups",)


def _roots(first: Position) -> tuple[str, ...]:
    """Yield the rank that a line names as the one that gives, or gets, where that is no number: no two need agree."""
    word = ROOTED.get(first.operation, "")
    calls = calls_at(first.site.file, first.site.line) if word and first.site else ()
    named = {
        ast.unparse(each.value)
        for call in calls
        for each in call.keywords
        if each.arg in {word, f"group_{word}"} and not isinstance(each.value, ast.Constant)
    }
    return tuple(f"the ranks name different ranks for {word}, which is `{each}` there" for each in sorted(named))
