"""One rank catches an exception and goes on, and so skips a collective that the others wait in.

## What happens

A training step in `try: ... except Exception: continue` (a corrupt sample, CUDA out of memory, a shape that does not
fit) is skipped by the rank that meets the error, and by no other. That rank averages no gradients in this step: the
others wait for it, or what they average next is paired with another step of its, and at the end of the epoch one rank
is a step behind. A barrier in `except` or `finally` is the same: one rank calls it, and the others are elsewhere. Over
gloo a collective of another size then ends a process (exit code -6), over NCCL all wait until
the time-out, and the numbers in between are wrong without a word.

## How to be sure

Where one rank waits in the handler of an exception, and another one in the lines that it is for, both lines are told.
`ddpdoctor stuck` also tells the class of an exception that has led a rank to the end of a `with`, where it waits.
`ddpdoctor run` sees the exceptions that torch and the loaders raise into the training's lines; it names one where
the rank has gone on after it and another rank had none there, and the training hangs, or a rank was lost. An exception
of the script's own is not seen by it: it is concluded where one rank has come to the end of a loader, another one with
as many batches waits in a step of the loop, and no way leads past a step but a handler. Where all
ranks come to their end, it names a rank that lost another one in the midst of its training, and caught that, too.

In a source (`ddpdoctor lint`): within a `try`, a `raise` under a test whether what the model made of the batch is
finite, a handler of it that only tells and goes on, and a call behind the `raise` in which all ranks meet. A step of
the wrapped model whose errors are caught in the loop, by a handler that goes on, is told as likely: it does harm once a
rank meets such an error.

## How to mend it

Let the error end the training, or find the bad sample before the loop (in the data set, with a replacement for it). To
skip a batch, all ranks must skip it: decide by a flag that is reduced with MAX before the forward.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: DDP's documentation, "Internal Design": gradients are averaged bucket by bucket in
the order of the backward, on all ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Ambiguity,
    Ended,
    ErrorSeen,
    Evidence,
    Finding,
    Fix,
    Left,
    PeerLost,
    Severity,
    Stalled,
    Training,
    lint,
    place,
    watch,
)

from ..hangs._hangs import on_hang
from ..hangs._kinds import Hang
from ..hangs._losses import Loss, on_loss
from ..hangs._told import noticed, seen, short, table
from ..hangs.calls._step_passed import left_out
from ..hangs.reasons._left import evidence, let_it_end
from ..hangs.reasons._swallowed import Swallowed, lost_and_swallowed, swallowed
from ..hangs.source._exits import step_skipped
from ..hangs.source._handlers import caught_more, handling
from ._handled import in_its_handler, told_by_counts
from ._raised import raised
from ._step_caught import caught_steps

if TYPE_CHECKING:
    from ddpdoctor.check import Script
from ._step_left_out import one_step_ahead, step_left_out

AILMENT = Ailment("DDP743", Severity.ERROR)
BY_A_FLAG = Fix(
    "let the error end the training, or skip the step on all ranks: by a flag that is reduced before the backward",
    diff="+failed = torch.tensor([int(is_bad)])   # is_bad: set where the error is caught\n"
    "+dist.all_reduce(failed, op=dist.ReduceOp.MAX)\n+if failed.item():\n+    continue\n loss.backward()",
)


@on_hang(Hang.SWALLOWED)
def while_training(event: Stalled, training: Training) -> Iterator[Finding]:
    """Yield the error, and who waits since."""
    if found := swallowed(event.ranks, training):
        yield _finding(found, seen(event), table=table(event))
    elif met := handling(event):
        yield in_its_handler(met, event)
    elif more := caught_more(event):
        yield told_by_counts(more, event)
    elif skipped := step_skipped(event, training):
        yield step_left_out(skipped, event, BY_A_FLAG)


@on_loss(Loss.SWALLOWED)
def where_a_rank_was_lost(event: PeerLost, training: Training) -> Iterator[Finding]:
    """Yield the error where gloo has ended a rank for a collective that is another one's."""
    if found := swallowed(event.progress, training):
        yield _finding(found, noticed(event))


@on_loss(Loss.HANDLED)
def where_a_handler_left_a_step_out(event: PeerLost) -> Iterator[Finding]:
    """Yield the handler by which a rank came past a step, whose next collective met the step of another one."""
    if found := left_out(event):
        yield one_step_ahead(found, event, BY_A_FLAG)


@watch(Ended)
def at_the_end(training: Training) -> Iterator[Finding]:
    """Yield a lost connection that a rank has caught as it catches a bad batch: all ranks end, with status 0."""
    found = lost_and_swallowed(training)
    if found is None:
        return
    error, left = found
    if left.handled:
        yield _left_in_its_handler(error, left)
        return
    yield Finding(
        f"rank {error.rank} lost rank {left.rank} at {short(error.site)}, and caught that as any other error: "
        f"rank {left.rank} had come to its end with fewer steps",
        (
            Evidence(f"{error.error}: {error.text}", "an error that ends the rank", f"rank {error.rank}"),
            Evidence("its program had come to its end before", "as many steps as the others", f"rank {left.rank}"),
        ),
        Fix(
            "catch what a batch can raise, and not what torch raises for a rank that is gone",
            diff="-except Exception:\n-    continue\n+except (ValueError, IndexError):\n"
            "+    ...   # and tell all ranks to skip it",
        ),
        place(error.site, rank=error.rank),
        ambiguity=Ambiguity(
            (
                f"rank {left.rank} has skipped a step: by an exception, or a condition of its own",
                f"rank {left.rank} had fewer batches",
            ),
            f"print the step and the exception in the handler: rank {left.rank} comes there first",
        ),
    )


def _left_in_its_handler(error: ErrorSeen, left: Left) -> Finding:
    return Finding(
        f"rank {left.rank} caught an exception, and left by {left.by} without a word; rank {error.rank} lost it at "
        f"{short(error.site)}, and caught that, too",
        (
            Evidence(left.handled, "an error that ends the job", f"rank {left.rank}"),
            evidence(left),
            Evidence(f"{error.error}: {error.text}", "", f"rank {error.rank}"),
        ),
        let_it_end(left),
        place(left.site, rank=left.rank),
    )


def _finding(found: Swallowed, proof: tuple[Evidence, ...], **rest: object) -> Finding:
    error, times = found.error, f"{found.times} times" if found.times > 1 else "once"
    said = f"{error.error}: {error.text}"
    return Finding(
        f"rank {found.rank} raised {error.error} at {short(error.site)}, and calls collectives while it handles it; "
        f"rank {found.other} had no such error"
        if error.handled
        else f"rank {found.rank} swallowed {error.error} at {short(error.site)} and went on, {times}: it skipped steps "
        f"that rank {found.other} did not skip",
        (
            Evidence(said, "an error ends the rank, or all ranks skip the step", f"rank {found.rank}"),
            Evidence(f"caught {times}", f"{found.others} times on rank {found.other}", f"rank {found.rank}"),
            *proof,
        ),
        Fix(
            "mend this error, and wait for no rank where it is handled: a barrier there meets other ranks' collectives",
            diff=" finally:\n-    dist.barrier()\n     dist.destroy_process_group()",
        )
        if error.handled
        else Fix(
            "let the error end the training, or skip the step on all ranks",
            diff="-except Exception:\n-    continue\n+except Exception:\n+    raise",
        ),
        place(error.site, rank=found.rank),
        **rest,  # type: ignore[arg-type]
    )


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for an exception that a rank raises by its own batch, and catches, with a collective between the two."""
    for found in raised(script):
        meets, test = script.code(found.meets.func), script.code(found.test)
        does = f"{meets}, which calls {found.inner}" if found.inner else meets
        yield Finding(
            f"a rank whose own batch raises here goes on without {does}: the others wait for it there",
            (
                script.seen(found.way, "a decision that all ranks take together"),
                script.seen(found.test),
                script.seen(found.handler),
                script.seen(found.meets),
            ),
            Fix(
                f"let all ranks come to {meets}, or skip the batch on all of them",
                diff=f"+bad = torch.tensor(int({test}), device=device)\n"
                f"+torch.distributed.all_reduce(bad, op=torch.distributed.ReduceOp.MAX)\n-if {test}:\n+if bad.item():",
            ),
            script.place(found.way),
        )


@lint
def of_a_step_in_source(script: Script) -> Iterator[Finding]:
    """Look for a step of a wrapped model whose errors each rank catches for itself."""
    for found in caught_steps(script):
        model, error = script.code(found.forward.func), script.code(found.handler.type) if found.handler.type else "any"
        yield Finding(
            f"a rank that meets an error in this step of {model} goes to its next batch, and the others wait for it",
            (
                script.seen(found.handler, "an error of one rank ends the training, or all ranks skip the step"),
                script.seen(found.forward),
            ),
            Fix(
                "let the error end the training; what a batch can be skipped for, ask before the step, on all ranks",
                diff="+bad = torch.tensor(int(not torch.isfinite(inputs).all()), device=device)\n"
                "+torch.distributed.all_reduce(bad, op=torch.distributed.ReduceOp.MAX)\n"
                f"+if bad.item():\n+    continue\n-try:\n {model}(...)",
            ),
            script.place(found.handler),
            ambiguity=Ambiguity(
                (f"a step of one rank raises ({error}: out of memory, a bad sample)", "no step ever raises: no harm"),
                "grep -n -i -e 'out of memory' -e skip train.log   # what the handler prints",
            ),
        )
