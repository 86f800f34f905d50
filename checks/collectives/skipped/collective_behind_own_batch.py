"""A call in which all ranks meet stands behind a test that each rank's own batch decides.

## What happens

A rank gathers, reduces or waits for the others only if its batch has something to tell (`if wrong.any()`, `if count`,
`if loss < best`), or skips a backward whose loss is not finite. Each rank has a batch of its own, so that one rank
calls what another leaves out: it waits for ever, is paired with a later call (wrong numbers), or ends the other rank
("10100 vs 4" over gloo). The traceback shows an innocent line: that of the rank that went on.

## How to be sure

ddpdoctor (`ddpdoctor run`) knows the last calls of each rank and how many forwards it has made: here a rank is in the
call, another one has gone on without it, and in the source a test around the call is made of the batch, of what the
model returned for it, or of the loss, and was not exchanged before.

## How to mend it

Let all ranks make the call each time, with zeros where a rank has nothing, or decide together:

    needed = torch.tensor(float(wrong.any()), device=device)
    dist.all_reduce(needed, op=dist.ReduceOp.MAX)
    if needed:
        dist.all_gather(...)

A step whose loss is not finite on one rank is skipped on all: exchange `torch.isfinite(loss)` before backward.

## Versions and sources

Holds for torch 2.2 and later, and all frameworks; seen with torch 2.13 and accelerate 1.15, gloo. Source: PyTorch
documentation, "Collective functions".
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpdoctor.check import (
    FILTER,
    Ailment,
    Evidence,
    Finding,
    Fix,
    PeerLost,
    Severity,
    Stalled,
    Table,
    Training,
    batch_exit,
    place,
)

from ..hangs._hangs import on_hang
from ..hangs._kinds import Hang
from ..hangs._losses import Loss, on_loss
from ..hangs._told import noticed, seen, short, table
from ..hangs.source._batches import BACKWARD, Behind, behind_a_batch, behind_at_loss

AILMENT = Ailment("DDP782", Severity.ERROR)
BY_FILTER = Fix(
    "let the handler run on all ranks, and decide within it by a number that is reduced",
    diff="-@trainer.on(Events.ITERATION_COMPLETED(event_filter=wanted))\n+@trainer.on(Events.ITERATION_COMPLETED)\n"
    " def handler(engine):\n+    if idist.all_reduce(float(wanted(engine, 0))) == 0:   # called by all ranks\n"
    "+        return",
)
AGREE = (
    "+flag = torch.tensor(float({test}), device=device)\n"
    "+torch.distributed.all_reduce(flag, op=torch.distributed.ReduceOp.MAX)   # called by all ranks"
)


@on_hang(Hang.BATCH)
def while_training(event: Stalled, training: Training) -> Iterator[Finding]:
    """Report the call, and the test that it stands behind."""
    if found := behind_a_batch(event.ranks):
        yield _finding(found, training, seen(event), table(event))


@on_loss(Loss.BATCH)
def by_those_who_lost_it(event: PeerLost, training: Training) -> Iterator[Finding]:
    """Report it where one of the ranks is gone: gloo ends a process that gets more bytes than it has room for."""
    if found := behind_a_batch(event.progress) or behind_at_loss(event):
        proof = noticed(event)
        yield _finding(found, training, proof, None)


def _finding(found: Behind, training: Training, proof: tuple[Evidence, ...], positions: Table | None) -> Finding:
    under = "" if found.at == found.site else f" at {short(found.site)}"
    return Finding(
        f"rank {found.rank} calls {found.call} at {short(found.at)}, {found.test}{under}: "
        f"rank {found.other}, whose batch is another one, has gone on without it",
        (
            Evidence(found.test, "a test that all ranks answer alike", str(found.site)),
            Evidence(f"rank {found.other} {found.later}", f"{found.call}, as rank {found.rank}", f"rank {found.other}"),
            *proof,
        ),
        _fix(found, training),
        place(found.at, rank=found.rank),
        table=positions,
    )


def _fix(found: Behind, training: Training) -> Fix:
    framework = training.framework
    agree = framework.agree if framework and framework.agree else AGREE
    if found.test.startswith(FILTER):
        return BY_FILTER
    test = found.test.removeprefix("under `if ").removeprefix("where `").removesuffix("`").removesuffix("` is false")
    away = batch_exit(found.site.file, found.site.line)
    holds = found.test.startswith("under")
    if found.call == BACKWARD:
        return _of_backward(agree, test, away, holds=holds)
    old = f"-if {test}:\n" if holds else ""
    call = f"     {found.call}(...)" if found.at == found.site else f"     ...   # {short(found.site)}"
    if away:
        diff = f"-{'else' if holds else f'if {test}'}: {away}\n+if not flag > 0: {away}\n {call.strip()}"
    else:
        diff = f"{old}+if flag > 0:\n{call}"
    return Fix(
        "decide together, or call it on all ranks each time, with zeros where a rank has nothing",
        diff=f"{agree.format(test=test if holds else _negated(test))}\n{diff}",
    )


def _of_backward(agree: str, test: str, away: str, *, holds: bool) -> Fix:
    """Return how all ranks skip a backward where one of them does."""
    told = agree.format(test=_negated(test) if holds else test)
    old = f"-if {test}:\n" if holds else ""
    if away:
        leave = f"-{'else' if holds else f'if {test}'}:\n+if flag > 0:\n     optimizer.zero_grad()\n     {away}"
    else:
        leave = f"{old}+if not flag > 0:\n     loss.backward()"
    return Fix("skip the backward on all ranks, or on none: decide together", diff=f"{told}\n{leave}")


def _negated(test: str) -> str:
    """Return the opposite of a test, which is the text of one expression."""
    node = ast.parse(test, mode="eval").body
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return ast.unparse(node.operand)
    return f"not {test}" if isinstance(node, (ast.Call, ast.Name, ast.Attribute, ast.Compare)) else f"not ({test})"
