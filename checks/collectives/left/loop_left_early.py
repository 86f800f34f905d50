"""One rank leaves a loop that the others are still in: a break, a return, or the end of what it goes through.

## What happens

Early stopping, a loss that is not finite, a limit of time, a batch that is empty: the rank that sees it alone takes
the `break` or the `return`, and calls whatever comes after the loop. The others wait in the loop's next collective
for it, for ever over NCCL; over gloo they fail when it ends ("Connection closed by peer"). The same holds for a loop
with a collective in each pass, over what each rank has of its own: the batches of its share of a validation, say.

## How to be sure

`ddpdoctor run` compares the lines that the ranks are at: one is in the loop, the other past it. The ways out of the
loop are read off the source; where only one is left (the loop ends by itself on no rank: a pass over a loader that was
not used up, a range of literals, `while True`), it is named.

In a source (`ddpdoctor lint`): a test of what a rank has summed over its share of an evaluation, which nothing reduces,
stands before a `break` or a `return` of the loop over the epochs; or a test of what is in a rank's own batch, as of a
loss that is no number, before a way past the backward.

## How to mend it

Decide together: reduce the decision with MAX before the test, so that all ranks take it in the same step.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch.distributed documentation, "Collective functions".
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Ambiguity,
    Evidence,
    Finding,
    Fix,
    PeerLost,
    Place,
    Severity,
    Site,
    Stalled,
    Table,
    Training,
    lint,
    place,
)

from ..hangs._hangs import on_hang
from ..hangs._kinds import Hang
from ..hangs._losses import Loss, on_loss
from ..hangs._told import noticed, seen, short, table
from ..hangs.calls._apart import broken_off, mismatch
from ..hangs.calls._compared import first_mismatch
from ..hangs.calls._once_more import OnceMore, more_than_the_lost, once_more
from ..hangs.calls._step_passed import left_out
from ..hangs.source._exits import LeftBy, loop_left_before_the_end, loop_left_by, step_skipped
from ._leave_together import SKIP_TOGETHER, mended, together
from ._own_batch import left_by_own_batch
from ._own_stop import left_by_own_sums
from ._step_left_out import one_step_ahead, step_left_out

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script

AILMENT = Ailment("DDP744", Severity.ERROR)


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for an end of the training that each rank decides by what it has summed over its own share."""
    for way, test, loop, sampler in left_by_own_sums(script, project):
        yield Finding(
            f"each rank decides by its own share whether to leave the loop: {script.code(test)} holds on one rank "
            "earlier than on another, which waits for it in the next step",
            (script.seen(way, "all ranks leave in the same round"), script.seen(test), script.seen(loop), sampler),
            Fix(
                "add up the sums of all ranks before the test, or let one rank decide for all",
                diff="+stop = torch.tensor(int(stop), device=device)\n"
                "+torch.distributed.all_reduce(stop, op=torch.distributed.ReduceOp.MAX)\n+if stop.item():\n+    break",
            ),
            script.place(way),
        )


@lint
def by_own_batch(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a way past the backward that a rank takes by what is in its own batch."""
    for way, test, backward in left_by_own_batch(script, project):
        skips = isinstance(way, ast.Continue)
        left = "leaves out the step" if skips else "leaves the loop"
        yield Finding(
            f"a rank {left} here by what is in its own batch: the others wait for its gradients at "
            f"{script.code(backward.func)}",
            (script.seen(way, f"each rank {left}, or none does"), script.seen(test), script.seen(backward)),
            SKIP_TOGETHER if skips else together(None),
            script.place(way),
            severity=Severity.WARNING,
        )


ONCE_BEHIND = Fix(
    "sum up in the loop, and call the collective once behind it; or give all ranks as many passes",
    diff="+total = torch.zeros(1)\n for batch in batches:   # as many as this rank has\n-    dist.all_reduce(count)\n"
    "+    total += count\n+dist.all_reduce(total)",
)


@on_hang(Hang.EXITED)
def while_training(event: Stalled, training: Training) -> Iterator[Finding]:
    """Yield the way out that the rank took, or those that it can have taken."""
    if skipped := step_skipped(event, training):
        yield step_left_out(skipped, event, SKIP_TOGETHER)
    elif found := loop_left_by(event, training):
        yield _finding(found, seen(event), table(event), training)


@on_loss(Loss.EXITED)
def where_a_rank_was_lost(event: PeerLost, training: Training) -> Iterator[Finding]:
    """Yield it where the rank has ended, and another one lost it."""
    if found := loop_left_before_the_end(event, training) or broken_off(event, training):
        proof = noticed(event)
        yield _finding(found, proof, None, training)


@on_loss(Loss.PAST_STEP)
def where_a_step_was_left_out(event: PeerLost) -> Iterator[Finding]:
    """Yield the way past a step that a rank has taken, whose next collective met the step of another one."""
    if found := left_out(event):
        yield one_step_ahead(found, event, SKIP_TOGETHER)


@on_hang(Hang.PASSES)
def of_a_loop_with_a_collective(event: Stalled) -> Iterator[Finding]:
    """Yield the loop that makes a collective in each pass, and had more passes on one rank."""
    found = once_more(first_mismatch(event.ranks), event.ranks)
    assert found is not None  # noqa: S101 - else it would be another hang
    yield _passes(found, seen(event), table(event))


@on_loss(Loss.PASSES)
def of_a_loop_that_ended_a_rank(event: PeerLost, training: Training) -> Iterator[Finding]:
    """Yield the same where gloo has ended a rank over the size of what the other one calls behind the loop."""
    if found := once_more(mismatch(event, training), event.progress) or more_than_the_lost(event):
        yield _passes(found, noticed(event), None)


def _passes(found: OnceMore, proof: tuple[Evidence, ...], positions: Table | None) -> Finding:
    call, theirs = found.call, found.theirs or "DDP's own exchange"
    loop = Site(call.site.file, found.line, "") if call.site else None
    return Finding(
        f"rank {found.rank} calls {call.operation} at {short(call.site)} once more than rank {found.other}, in the "
        f"loop at {short(loop)}, `{found.runs}`; rank {found.other} has left it, and "
        f"{'calls' if found.theirs else 'is in'} {theirs} at {short(found.at)}",
        (
            Evidence(f"number {call.number} of its group is {call.operation} in the loop", "", f"rank {found.rank}"),
            Evidence(f"it is {theirs}, behind the loop", "as many passes on all ranks", f"rank {found.other}"),
            *proof,
        ),
        ONCE_BEHIND,
        place(loop, rank=found.rank),
        table=positions,
    )


def _finding(left: LeftBy, proof: tuple[Evidence, ...], positions: Table | None, training: Training) -> Finding:
    loop, only = left.loop, left.loop.only
    at = f"{Path(loop.file).name}:{loop.line}"
    by = f" by {only}" if only else "" if loop.exits else ", whose items were used up there"
    causes = [*map(str, loop.exits), *(["its items were used up on this rank"] if loop.ends_itself else [])]
    return Finding(
        f"rank {left.rank} has left the loop at {at}{by}; rank {left.other} is still in it, at {short(left.site)}",
        (
            *([Evidence(str(only), "all ranks leave the loop in the same step", f"rank {left.rank}")] if only else []),
            *proof,
        ),
        mended(left, training.framework),
        Place(file=loop.file, line=only.line if only else loop.line, rank=left.rank),
        table=positions,
        ambiguity=None
        if only or not loop.exits
        else Ambiguity(tuple(causes), "print the rank and the step at each of these lines: one rank comes there first"),
    )
