"""A rank works alone for longer than the collectives' time-out.

## What happens

Rank 0 downloads, tokenises or validates while the others wait for it in a barrier. After 10 minutes (NCCL; 30 before
torch 2.2) they end: "Watchdog caught collective operation timeout" for one of the first collectives, mostly of one
element, with a progress bar of the data preparation beside it. If the wait is before the group's first transfer, the
words are "is setting up NCCL communicator and retrieving ncclUniqueId from [0] ... store->get('0') got error: Socket
Timeout" (or "wait timeout after 600000ms").

## How to be sure

The time that the progress bar shows is about the time-out. With prepared data the training starts. While the others
wait, `py-spy dump --pid PID` of rank 0 shows what it does; `ddpdoctor run` names the rank that works, and its line.
A rank works as long as it, a thread of it or a process that it has started computes, waits for a core or for a disk,
moves data, or asks for something again and again. Only one that did nothing of all that for --hang-after stands still.
One that asks for a file which another rank makes behind its own collective, or whose path is another one on each rank
(`tempfile.mkdtemp()`), waits for ever: both lines are named. So is the name of a file that no line makes.

## How to mend it

Best first: prepare the data in a run of its own, so that all ranks find it in the cache; or give the group more time,
`init_process_group(timeout=timedelta(hours=3))` (in accelerate InitProcessGroupKwargs, in the HF Trainer
`ddp_timeout`); or wait in a barrier of a gloo group.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch's ProcessGroupNCCL.cpp, broadcastUniqueNCCLID; torch.distributed
documentation, "init_process_group".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ddpdoctor.check import (
    RANKS_LINE,
    Ailment,
    Ambiguity,
    Doing,
    Evidence,
    Failed,
    Finding,
    Fix,
    Left,
    Log,
    Position,
    Record,
    Severity,
    Stalled,
    TimedOut,
    Training,
    Whereabouts,
    log_pattern,
    place,
    search,
    watch,
)

from ..hangs._hangs import on_hang
from ..hangs._kinds import Hang
from ..hangs._lines import hang_in, waited_for_others
from ..hangs._lost import thread_awaited, what_keeps, who_waits
from ..hangs._told import seen, short, where
from ..hangs.source._one_rank import DEFAULT
from ..timeouts._longer import USUAL, longer
from ..timeouts._watchdog import Timeout, named, on_timeout, story_of
from ..timeouts.group_timeout_too_short import FEW
from ._at_work import (
    asks,
    at_work,
    busiest,
    loop_around,
    mend_of_loop,
    mend_of_search,
    mend_of_work,
    on_no_host,
)
from ._made_behind import told_by_its_file, told_unmade

AILMENT = Ailment("DDP711", Severity.ERROR)
SHOWN = 8  # ranks
WATCH = "ddpdoctor stuck   # on each of the other hosts, while it hangs"
ELSEWHERE = "ddpdoctor stuck --hosts HOST,HOST2   # over ssh; --via names what else runs a command there"
FIX = Fix(
    "prepare the data before the training, or give the group more time",
    diff=USUAL,
)


@on_timeout(Timeout.SLOW)
def beside_a_bar(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """A bar of data preparation that ran when the others gave up."""
    story = story_of(log)
    limit = f"the time-out of {story.waits[0].limit // 1000} s" if story.waits[0].limit else "the time-out"
    yield Finding(
        f"data was still being prepared when {limit} expired: {story.waiting}",
        (record.proof(match, "the ranks that wait have time for it"), *story.evidence),
        FIX,
        record.place,
    )


@log_pattern(r"store->get\('[^'\n]*'\) got error: (?:Socket Timeout|wait timeout|Timeout waiting)", waits=True)
def before_the_first_transfer(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Rank 0 writes the key when it enters the group's first collective; the store itself answers."""
    yield Finding(
        "the group's first rank did not come to its first collective in time; its store still answers",
        (record.proof(match, "rank 0 enters the collective within the time-out"),),
        FIX,
        record.place,
        ambiguity=Ambiguity(
            ("rank 0 is busy alone (data, download, a question on its terminal)", "rank 0 hangs or has failed"),
            "py-spy dump --pid PID   # of rank 0, while the others wait",
        ),
    )


@on_hang(Hang.WORKS)
def while_training(event: Stalled) -> Iterator[Finding]:
    """Yield who works while the others wait: no fault yet, and nothing is ended for it."""
    if never := told_by_its_file(event):
        yield never
        return
    busy = busiest(event)
    waiting = next(position for position in event.ranks if position.doing is Doing.WAITING)
    site, keeps = busy.site, thread_awaited(busy) or told_unmade(busy) or what_keeps(busy, event)
    tries = search(site.file, site.line) if site and busy.doing is Doing.WORKING and not asks(busy) else None
    loop = loop_around(site) if site and (asks(busy) or event.outside) else f"while True, {tries}" if tries else ""
    yield Finding(
        f"rank {busy.rank} {where(busy)}{keeps + ',' if keeps else ''} while rank {waiting.rank} waits for it in "
        f"{waiting.operation}: no hang, as long as it ends before the group's time-out",
        (*seen(event), *((Evidence(loop, "", f"rank {busy.rank}, the loop around {short(site)}"),) if loop else ())),
        mend_of_search(str(tries))
        if tries
        else mend_of_loop(site)
        if asks(busy) and loop and site
        else mend_of_work(busy, event),
        place(busy.site, rank=busy.rank),
        severity=Severity.NOTE,
    )


@on_hang(Hang.AWAY)
def alone_on_this_host(event: Stalled) -> Iterator[Finding]:
    """Yield what the ranks of this host do while those of other hosts, which are not seen, can wait for them."""
    seconds = f", for {busiest(event).seconds:.0f} s, and no rank of this host has met those of others meanwhile"
    yield at_work(event, f"{seconds}: no hang, as long as it ends; they wait for it as soon as they communicate")


@log_pattern(RANKS_LINE)
def over_several_hosts(record: Record, log: Log) -> Iterator[Finding]:
    """Yield who works or asks on one host, while ranks of the others wait for it, by the lines of all hosts."""
    if event := hang_in(record, log, Hang.WORKS):
        yield at_work(event, f"; {who_waits(event)}: no hang, as long as it ends")
    elif event := waited_for_others(record, log):
        telling = {each.source for each, _ in log.find(RANKS_LINE)}
        yield on_no_host(event, sorted(Path(each).name for each in {*log.lengths} - telling))


LIMIT = re.compile(r"Timed out waiting (\d+)ms for|failed to pass monitoredBarrier in (\d+) ms")


@watch(Failed)
def as_the_time_ran_out(event: Failed, training: Training) -> Iterator[Finding]:
    """Yield which rank was elsewhere at the moment at which another one's wait ran out, and where.

    Where that of the group is a few seconds, that is what is wrong: group-timeout-too-short. A barrier has its own.
    """
    limit = LIMIT.search(event.text)
    seconds = int(limit[1] or limit[2]) / 1000 if limit else 0.0
    at_barrier = limit is not None and limit[2] is not None
    away = _away(event, training) if seconds > FEW or at_barrier else []
    if not away:
        return
    first = away[0]
    yield Finding(
        f"rank {first.rank} was still in {first.site.function if first.site else ''} at {short(first.site)} when the "
        f"wait of rank {event.rank} at {short(event.site)} ran out, after {seconds:g} s",
        tuple(
            Evidence(
                f"at {each.site}" + (f", inside {each.function}" if each.function else ""),
                "in the collective",
                f"rank {each.rank}, then",
            )
            for each in away[:SHOWN]
        ),
        Fix(
            "let all ranks share that work, or give the group more time than it takes; if it never ends, look at it",
            diff=f"-dist.monitored_barrier(timeout=timedelta(seconds={seconds:g}))\n"
            "+dist.monitored_barrier(timeout=timedelta(minutes=30))"
            if at_barrier
            else longer((first.site, event.site)),
            command=f"py-spy dump --pid PID   # of rank {first.rank}, while the others wait",
        ),
        place(first.site, rank=first.rank),
    )


def _away(event: Failed, training: Training) -> list[Whereabouts | Position]:
    """List the ranks that were in no collective, as the wait ran out or, where they were gone by then, shortly before.

    None that has failed or ended, or stood still before; and none where the wait was in a group of some ranks.
    """
    looked = next(iter(training.of(TimedOut, pid=event.pid)), None)
    if looked is None or not looked.groups <= {"", *DEFAULT}:
        return []
    over = {each.pid for kind in (Failed, Left) for each in training.of(kind)}
    hangs = training.of(Stalled)
    over |= {each.pid for hang in hangs for each in hang.doing(Doing.STANDING, Doing.STOPPED)}
    seen: list[Whereabouts | Position] = [each for each in looked.ranks if each.site]
    if not seen and hangs and any(each.pid == event.pid and each.site == event.site for each in hangs[-1].ranks):
        seen = [*hangs[-1].doing(Doing.WORKING, Doing.ASKING)]
    return [each for each in seen if not each.operation and each.site and each.pid not in over]


@on_hang(Hang.UNSEEN)
def elsewhere(event: Stalled) -> Iterator[Finding]:
    """Yield who waits here, where the ranks of other hosts are not seen: no fault, as they can be at work."""
    here = {position.rank for position in event.ranks}
    others = [rank for rank in range(event.world_size) if rank not in here]
    waiting = event.doing(Doing.WAITING)[0]
    yield Finding(
        f"all ranks of this host wait, rank {waiting.rank} in {waiting.operation} at {short(waiting.site)}; "
        f"{named(others[:SHOWN])}{' and more' if others[SHOWN:] else ''}, which this host does not see, "
        f"{'have' if others[1:] else 'has'} not come",
        (
            *seen(event),
            *(
                Evidence("all that was sent to it is acknowledged", "", f"{each.peer}, the kernel's account")
                for each in event.peers[:SHOWN]
                if not each.unacked
            ),
        ),
        Fix(
            "see what the ranks of the other hosts do: `ddpdoctor run` says it there, where they run under it",
            command=WATCH,
        )
        if not event.outside
        else Fix("look at the other hosts, too, and put what was seen there together", command=ELSEWHERE),
        place(waiting.site, rank=waiting.rank),
        severity=Severity.NOTE,
    )
