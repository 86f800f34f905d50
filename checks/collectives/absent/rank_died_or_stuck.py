"""One rank is gone or hangs, and all the others wait for it.

## What happens

A rank that was killed, that crashed in native code, or that hangs in a lock or in its data loading prints nothing;
the others print the time-outs. Its number is what they leave out: the rank without a watchdog line where all others
have one, the one missing in Horovod's "[ready ranks: ...]" or listed under its "Stalled ranks:" or "Missing ranks:",
the one that gloo's monitored barrier or torch's desync report names. "NCCL communicator was aborted" is what the
surviving ranks raise when their group is torn down for it.

## How to be sure

Read that rank's own log. `dmesg -T | grep -iE "killed process|out of memory|xid|segfault"` on its host shows whether
the kernel ended it. `ddpdoctor run` says that a rank stands still where its counters and its stack have not moved for
--hang-after, and neither it nor what it has started has used a processor, a disk or moved data meanwhile.
`py-spy dump --pid PID` shows where it is if the process still lives; a process that is gone
gives no answer.

## How to mend it

Mend what that rank's log, or its stack, shows. Nothing is wrong on the ranks that wait.

## Versions and sources

Holds for torch 2.2 to 2.13 and Horovod. Source: torch's ProcessGroupNCCL.cpp, TraceUtils.h and ProcessGroupGloo.cpp;
Horovod, stall_inspector.cc.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import (
    RANKS_LINE,
    Ailment,
    Ambiguity,
    Crashed,
    Doing,
    Evidence,
    Failed,
    Finding,
    Fix,
    Log,
    PeerLost,
    Position,
    Record,
    Role,
    Severity,
    Stalled,
    Training,
    log_pattern,
    place,
)

from ..._hosts.store import OF_AGENTS
from ..hangs._hangs import on_hang
from ..hangs._kinds import GONE, Hang
from ..hangs._lines import hang_in
from ..hangs._losses import Loss, on_loss
from ..hangs._lost import KERNEL, REVIVE, barrier_of_threads, lines, mend_of, taken_itself, what_keeps, who_waits
from ..hangs._told import seen, table, where
from ..timeouts._flight import SILENT, proofs
from ..timeouts._watchdog import Timeout, on_timeout, story_of
from ..unequal._submitted import STALLED_WARNING, TENSORS, submit_others
from ._gone import gone_or_stuck, last_call, lost_by

AILMENT = Ailment("DDP720", Severity.ERROR)
FROM_RANK_0 = r"but received errors while waiting for send/recv from rank 0"
READY = r"\[ready ranks: ([\d, ]+)"
STALLED = r"^(?:(?P<rank>\d+)!?: )?\[[^\]\n]*(?:[Aa]llreduce|[Aa]llgather|[Bb]roadcast)"
NOT_PASSED = r"Ranks? (\d[\d, ]*) failed to pass monitoredBarrier in \d+ ms"
BELOW = 64  # lines: Horovod lists a rank in a line, below its warning
MISSING = r"\[missing ranks: ?([\d, ]+)"


@on_timeout(Timeout.ABSENT)
def by_its_silence(log: Log) -> Iterator[Finding]:
    """All ranks of the group but a few wait."""
    story = story_of(log)
    yield gone_or_stuck(list(story.ranks), f"{story.waiting}, and all others came", story.evidence)


@log_pattern(
    STALLED_WARNING,
    context=(READY, MISSING, STALLED, TENSORS),
    waits=True,
)
def by_horovods_list(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Horovod lists who is ready, or who is missing."""
    gone = {int(rank) for _, found in log.find(MISSING) for rank in re.findall(r"\d+", found[1])}
    for each, found in log.find(STALLED):
        rank = each.rank if found["rank"] is None else int(found["rank"])
        if rank is not None and each.source == record.source and 0 < each.line - record.line <= BELOW:
            gone.add(rank)
    for _, found in log.find(READY):
        ready = {int(rank) for rank in re.findall(r"\d+", found[1])}
        gone |= set(range(max(ready) + 1)) - ready
    if submit_others(record, log):
        return  # collective-order-mismatch
    yield gone_or_stuck(
        sorted(gone),
        "Horovod waits for tensors",
        (record.proof(match, "all ranks submit them"),),
        OTHERS,
    )


OTHERS = "it submits other tensors: a branch by its rank, a parameter that is frozen there, another model"


@log_pattern(NOT_PASSED, waits=True)
def by_the_monitored_barrier(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Rank 0 says who did not come."""
    ranks = [int(rank) for rank in re.findall(r"\d+", match[1])]
    yield gone_or_stuck(ranks, "it is missing at the barrier", (record.proof(match, "all ranks come to the barrier"),))


@log_pattern(
    r"\[(\d+)\] (?:finished collective #\d+, but didn't join collective #\d+|joined but didn't finish collective #\d+)",
    waits=True,
)
def by_the_desync_report(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """TORCH_NCCL_DESYNC_DEBUG=1 names the lagging ranks."""
    yield gone_or_stuck(
        [int(match[1])], "it did not join the others' collective", (record.proof(match, "all ranks join it"),)
    )


@log_pattern(r"wait timeout after \d+ms, keys: /(?!default_pg/\d+//cpu//)\S*//cpu//", waits=True)
def by_an_address_that_is_not_there(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Gloo leaves the address of each rank in the store when a group is made; one did not come (a later group)."""
    yield gone_or_stuck(
        [], "it did not come to the making of a group", (record.proof(match, "all ranks call new_group"),)
    )


@log_pattern(
    r"wait timeout after (?P<ms>\d+)ms, keys: /\S*//cuda//\d+|(?:DistStoreError|RuntimeError): Socket Timeout",
    waits=True,
)
def by_a_key_that_is_not_there(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Rank 0 of a group leaves NCCL's id in the store when it comes to the group's first collective."""
    if re.search(OF_AGENTS, record.text):
        return  # hosts-missing
    if match["ms"]:
        said, expected = (
            "it did not come to the first collective of its group",
            "NCCL's id, left in the store by rank 0",
        )
    else:
        said, expected = "it did not leave in the store what this rank waits for", "a value in the store"
    yield gone_or_stuck([], said, (record.proof(match, expected),))


@log_pattern(r"wait timeout after \d+ms, keys: /(?P<what>broadcast_from|send_to)/(?P<who>\d+)/\d+", waits=True)
def by_a_process_of_vllm(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """A group of vLLM's own (StatelessProcessGroup) hands objects on through the store, a barrier too."""
    told = [int(match["who"])] if match["what"] == "broadcast_from" else []
    yield gone_or_stuck(
        told,
        "it left no object in the store of vLLM's own group (StatelessProcessGroup), for which this process waits",
        (record.proof(match, "each process of the group comes to its broadcast or barrier"),),
    )


@log_pattern(FROM_RANK_0, context=(NOT_PASSED,), waits=True)
def by_those_at_the_monitored_barrier(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """The others came; rank 0 alone, where it came itself, knows who did not."""
    if not log.first(NOT_PASSED):
        yield gone_or_stuck(
            [],
            "this rank came to the barrier, and rank 0, whose log names who did not, gave no answer",
            (record.proof(match, "rank 0 answers when all ranks have come"),),
        )


@log_pattern(FROM_RANK_0, role=Role.CONSEQUENCE, context=(NOT_PASSED,))
def by_those_who_came(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Rank 0 has said who did not come."""
    if log.first(NOT_PASSED):
        yield gone_or_stuck(
            [],
            "this rank came to the barrier; rank 0 says who did not",
            (record.proof(match, "all ranks come to the barrier"),),
        )


@log_pattern(r"NCCL communicator was aborted|Horovod has been shut down\. This", role=Role.CONSEQUENCE)
def by_the_survivors(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """The group was torn down under this rank."""
    yield gone_or_stuck(
        [], "the group was torn down", (record.proof(match, "the group lives until the training ends"),)
    )


@log_pattern(SILENT)
def by_the_dump_that_is_not_there(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """A process that lives writes its flight recorder's dump when the others do."""
    who = match["who"]
    yield Finding(
        match["said"],
        proofs(record, f"a dump of {who}"),
        Fix(f"read the log of {who}, and the kernel's on its host", command=KERNEL),
        ambiguity=Ambiguity(
            (f"{who} died (memory, signal, GPU)", "the dump lies on another host, or was not named"),
            "ddpdoctor explain DUMPS_OF_ALL_HOSTS LOGS_OF_ALL_RANKS",
        ),
    )


@on_hang(Hang.GONE, Hang.STANDS)
def while_training(event: Stalled, training: Training) -> Iterator[Finding]:
    """Yield which rank is gone, or stands outside of all communication, and who waits for it."""
    gone = [position for position in event.ranks if position.doing in GONE]
    lost = (gone or event.doing(Doing.STANDING))[0]
    if training.of(Crashed, pid=lost.pid):
        return  # which has been told, with its line
    if not gone and not any(each.stack or each.awaited or each.workers for each in event.ranks):
        yield Finding(
            f"all {len(event.ranks)} ranks stand still, and where is not known: each can wait for any other",
            seen(event),
            Fix("let py-spy read their stacks", command="pip install py-spy\nddpdoctor stuck"),
            table=table(event),
        )
        return
    failed = training.of(Failed, pid=lost.pid)
    said = failed[-1].text.strip().splitlines()[-1] if failed else ""
    keeps = what_keeps(lost, event)
    known = barrier_of_threads(lost.site) or taken_itself(lost)
    awaits = next((each.awaited for each in lost.workers), None) or lost.awaited
    yield Finding(
        f"rank {lost.rank} {where(lost)}{keeps}; {who_waits(event)}",
        (*((Evidence(said, "", f"rank {lost.rank}"),) if said else ()), *seen(event), *lines(lost)),
        Fix(
            _mend(lost) if known else mend_of(lost, event) or _mend(lost),
            command=(awaits and awaits.command) or REVIVE[lost.doing].format(pid=lost.pid),
        ),
        place((failed[-1] if failed else lost).site, rank=lost.rank),
        table=table(event),
    )


@on_hang(Hang.APART)
def apart_from_other_hosts(event: Stalled) -> Iterator[Finding]:
    """Yield where a rank of this host stands: whether the ranks of others wait for it is not seen from here."""
    lost = event.ranks[0]
    yield Finding(
        f"rank {lost.rank} {where(lost)}{what_keeps(lost, event)}, for {lost.seconds:.0f} s: no fault, as long as it "
        "goes on; the ranks of other hosts wait for it as soon as they communicate",
        (*seen(event), *lines(lost)),
        Fix(
            f"where it does not go on, {(lost.awaited and lost.awaited.mend) or _mend(lost)}",
            command=(lost.awaited and lost.awaited.command) or REVIVE[lost.doing].format(pid=lost.pid),
        ),
        place(lost.site, rank=lost.rank),
        severity=Severity.NOTE,
    )


@log_pattern(RANKS_LINE)
def over_several_hosts(record: Record, log: Log) -> Iterator[Finding]:
    """Yield the rank that stands on one host, while those of the others wait, by the lines of all hosts."""
    event = hang_in(record, log, Hang.STANDS)
    if event is None:
        return
    lost = event.doing(Doing.STANDING)[0]
    yield Finding(
        f"rank {lost.rank} {where(lost)}{what_keeps(lost, event)}; {who_waits(event)}",
        seen(event),
        Fix(
            (lost.awaited and lost.awaited.mend) or f"mend what keeps rank {lost.rank}",
            command=f"ddpdoctor stuck   # on the host of rank {lost.rank}",
        ),
        place(lost.site, rank=lost.rank),
    )


def _mend(lost: Position) -> str:
    if lost.doing is Doing.FAILED:
        return f"mend what rank {lost.rank} has failed of: its traceback, or its last lines, are in its output"
    if taken_itself(lost):
        return "make it a threading.RLock(), which a thread can take twice, or do not take it again inside of it"
    if barrier_of_threads(lost.site):
        return "ranks are processes: let them meet in dist.barrier(), once init_process_group has been called"
    return f"mend what keeps rank {lost.rank}"


@on_loss(Loss.SILENT)
def by_those_who_lost_it(event: PeerLost) -> Iterator[Finding]:
    """Yield which rank is gone without a word, where the others fail for want of it."""
    yield lost_by(event)


@on_loss(Loss.UNSEEN)
def by_its_last_call(event: PeerLost) -> Iterator[Finding]:
    """Yield the last call of a rank that is gone without a word, where all of this host are, and others are not seen.

    It is a note: torchrun ends the ranks of a host in the same way where one of another host has failed.
    """
    for each in event.progress:
        if each.rank in event.gone and each.recent:
            yield last_call(each)
            return
