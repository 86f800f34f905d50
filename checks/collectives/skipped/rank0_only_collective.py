"""Rank 0 alone calls a collective.

## What happens

Logging, validation and saving are often put under `if rank == 0`. A collective among them (all_reduce of a metric, a
barrier, the state dict of a sharded model), or a forward of the DDP model with buffers, is then entered by rank 0
only. NCCL pairs it with the next collective of the others, whatever that is: wrong numbers, or a hang at a later
place that is not at fault. In the time-outs rank 0 shows another operation than all others at the same SeqNum.

## How to be sure

TORCH_DISTRIBUTED_DEBUG=DETAIL raises at the first pair that does not fit, with the lines of both ranks.
`ddpdoctor run` names the line that rank 0 waits in, and the condition that it is under; also where rank 0 ends at once,
since gloo aborts a process (exit code -6, "10100 vs 4") that gets more than it has room for.

In a source (`ddpdoctor lint`): the call stands where only one rank comes, it names no group, and no collective of the
file stands where only the other ranks come; or it stands in `with accelerator.main_process_first():` or its like.

## How to mend it

Let all ranks call the collective, and only print or save on rank 0. In evaluation on rank 0 alone, call
`model.module` instead of the DDP model.

A model that FSDP shards has no such way: its forward and all that gives whole weights gather the shards of all ranks
(what gives shards of `fully_shard` waits for nobody: shards-of-one-rank-saved). Call it on all ranks, and write what
it returns on one:

    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if rank == 0:
        torch.save(state, path)

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch.distributed documentation, "Collective functions"; measured with torch
2.13: a barrier after a forward of rank 0 alone hangs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    RANKS_LINE,
    Ailment,
    Evidence,
    Finding,
    Fix,
    Log,
    PeerLost,
    Place,
    Record,
    Severity,
    Stalled,
    lint,
    log_pattern,
    place,
)

from ..hangs._hangs import on_hang
from ..hangs._kinds import Hang
from ..hangs._lines import hang_in
from ..hangs._losses import Loss, on_loss
from ..hangs._told import noticed, short
from ..hangs.calls._alone import FORWARD, called_alone, died_where_it_came_alone
from ..hangs.calls._callers import ways_to
from ..hangs.handed._called import by_callers, told_of
from ..hangs.source._all_ranks import by_frameworks
from ..hangs.source._guards import skipped_by_those_who_ended
from ..hangs.source._one_rank import condition_at
from ..hangs.source._rewritten import shown
from ..hangs.source._sharded import sharded_alone
from ..hangs.source._source_alone import calls_of_one_rank, helpers_of_one_rank
from ..hangs.turns._first import in_turns
from ..timeouts._watchdog import Timeout, on_timeout, story_of
from ._guarded import WITHOUT_WRAPPER, under_a_condition

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP723", Severity.ERROR)
WAITS = "waits for the others until it times out"
OUTSIDE = Fix("call it outside of this branch, so that all ranks do")
BEHIND = Fix("call it behind the block, where all ranks come at once")
GATHERED = Fix(
    "gather the state on all ranks, and write it on one",
    diff="+state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, "
    "cpu_offload=True))\n+if rank == 0:\n+    torch.save(state, path)",
)
ON_ALL = Fix("call it on all ranks; what it returns is printed or written on one")


@on_timeout(Timeout.RANK_ZERO)
def in_logs(log: Log) -> Iterator[Finding]:
    """Rank 0 is in another operation than all the others, who agree."""
    waits = story_of(log).waits
    zero = next(wait for wait in waits if wait.rank == 0)
    other = next(wait for wait in waits if wait.rank != 0)
    yield Finding(
        f"rank 0 alone is in {zero}; the {len(waits) - 1} other ranks seen are in {other}",
        (zero.proof, other.proof),
        Fix(
            "let all ranks call the collective, and print or save on rank 0 only",
            diff="-if rank == 0:\n-    dist.all_reduce(metric)\n-    print(metric)\n"
            "+dist.all_reduce(metric)\n+if rank == 0:\n+    print(metric)",
        ),
        Place(rank=0, host=zero.record.node),
    )


@on_hang(Hang.GUARDED)
def while_training(event: Stalled) -> Iterator[Finding]:
    """The line that a rank waits in, or one that calls it, stands under a condition on the rank."""
    yield from under_a_condition(event)


@log_pattern(RANKS_LINE)
def over_hosts(record: Record, log: Log) -> Iterator[Finding]:
    """Put together where the watch of each host has seen its ranks wait."""
    if event := hang_in(record, log, Hang.GUARDED):
        yield from under_a_condition(event)


@on_loss(Loss.ALONE)
def where_it_ended_a_rank(event: PeerLost) -> Iterator[Finding]:
    """Gloo ends the rank that gets what belongs to another collective, or the others have left the program.

    A launcher ends the others as soon as it sees that: whether one of them noticed before is chance.
    """
    found = called_alone(event)
    assert found is not None  # noqa: S101 - else it would be another loss
    call = found.call
    told = told_of(call.site, call.operation, found.guard)
    ways = ways_to(call.site, None) if call.site else []
    tested = next((each for each in ways if condition_at(each)), call.site)
    fix = by_callers(ways, tested, found.guard) if tested and tested != call.site else None
    yield Finding(
        f"rank {found.rank} called {told.call} at {short(call.site)}{told.does}, {found.guard}: rank {found.other} "
        "has skipped it and gone on",
        (
            Evidence(
                f"{call.operation}{f' of {call.shapes}' if call.shapes else ''}, number {call.number} of its group",
                f"the same on rank {found.other}",
                f"rank {found.rank}",
            ),
            Evidence(shown(found.guard), "no condition on the rank around a collective", str(tested)),
            *noticed(event),
        ),
        WITHOUT_WRAPPER if call.operation == FORWARD else fix or told.fix,
        place(call.site, rank=found.rank),
    )


@on_loss(Loss.LONE)
def where_it_ended_the_rank_of_this_host(event: PeerLost) -> Iterator[Finding]:
    """Gloo ends the rank that gets what belongs to another collective; the ranks that went on are on other hosts."""
    found = died_where_it_came_alone(event)
    assert found is not None  # noqa: S101 - else it would be another loss
    call = found.call
    told = told_of(call.site, call.operation, found.guard)
    yield Finding(
        f"rank {found.rank} called {told.call} at {short(call.site)}{told.does}, {found.guard}, and is gone without an "
        "exception: the ranks of other hosts have skipped it and gone on",
        (
            Evidence(f"{call.operation}, the last that it began", "the same on all ranks", f"rank {found.rank}"),
            Evidence(shown(found.guard), "no condition on the rank around a collective", str(call.site)),
        ),
        told.fix,
        place(call.site, rank=found.rank),
    )


@on_loss(Loss.GUARDED)
def where_others_came_to_their_end(event: PeerLost) -> Iterator[Finding]:
    """The rank that lost them stands under a condition on the rank, in what all ranks have to call."""
    found = skipped_by_those_who_ended(event)
    assert found is not None  # noqa: S101 - else it would be another loss
    (test, site), lost = found, event.others[0]
    yield Finding(
        f"rank {lost.rank} communicates at {short(site)}, under `if {test}`: rank {event.ended[0]} has skipped it and "
        "come to its end",
        (
            Evidence(f"if {test}", "no condition on the rank around what all ranks have to call", str(site)),
            Evidence(lost.said, "", f"rank {lost.rank}"),
            Evidence("its program came to its end", "", f"rank {event.ended[0]}"),
        ),
        Fix(
            "call it on all ranks, and let one of them use the result",
            diff="-if rank == 0:\n-    save(model)\n+state = whole_state(model)   # on all ranks: it gathers\n"
            "+if rank == 0:\n+    torch.save(state, path)",
        ),
        place(site, rank=lost.rank),
    )


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for a collective that one rank alone is let through to, and that the others nowhere call for themselves."""
    for call, test in calls_of_one_rank(script):
        yield _in_source(script, call, test, f"is called by one rank alone, and {WAITS}")


@lint
def within_helpers(script: Script) -> Iterator[Finding]:
    """Look for a call of a function of the project, by one rank alone, in which all ranks are to meet."""
    for call, test, inner in helpers_of_one_rank(script):
        yield _in_source(script, call, test, f"is called by one rank alone, and calls {inner}: it {WAITS}")


@lint
def in_frameworks(script: Script) -> Iterator[Finding]:
    """Look for a method of a framework that all ranks have to call, where one rank alone comes."""
    for call, what, test in by_frameworks(script):
        says = f"is {what}, and one rank alone calls it: it waits until it times out"
        yield _in_source(script, call, test, says, ON_ALL)


@lint
def in_turns_of_processes(script: Script) -> Iterator[Finding]:
    """Look for a call in which all ranks meet, in a block that one process runs before the others."""
    for call, what, block in in_turns(script):
        says = f"{what}, where the others wait until the first process is done: it waits for them, and they for it"
        yield _in_source(script, call, block, says, BEHIND)


def _in_source(script: Script, call: ast.Call, test: ast.AST, says: str, fix: Fix = OUTSIDE) -> Finding:
    seen = (script.seen(call, "a call on all ranks"), script.seen(test))
    return Finding(f"{script.code(call.func)} {says}", seen, fix, script.place(call))


@lint
def of_shards(script: Script) -> Iterator[Finding]:
    """Look for a state dict of a model that FSDP shards on one way, or that a helper asks for its state dict."""
    for asked in sharded_alone(script):
        through = "" if asked.gathers is asked.call else f"by {' '.join(ast.unparse(asked.gathers).split())} "
        says = f"is called by one rank alone, and {through}gathers the shards of the model; {asked.made}: it {WAITS}"
        yield _in_source(script, asked.call, asked.test, says, GATHERED)
