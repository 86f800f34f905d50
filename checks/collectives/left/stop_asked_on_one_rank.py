"""One rank alone tells Lightning, the transformers Trainer or Ignite to end the training, or to evaluate.

## What happens

`trainer.should_stop = True` (Lightning), `control.should_training_stop = True` (transformers) and `engine.terminate()`
(Ignite) hold for the rank that says so. Where a callback does it under `if trainer.is_global_zero`, or by what only
this rank knows (its own loss, its clock, a file on its host), that rank leaves the loop; the others begin the next step
and wait for it: "Connection closed by peer" over gloo, a time-out over NCCL. With the Trainer's
`control.should_evaluate = True` and `should_log` that rank gathers predictions, or the loss, which the others do not.

## How to be sure

ddpdoctor (`ddpdoctor run`) keeps the lines that set these flags, and how many forwards the rank had made: here a rank
has set it, and another one has begun a step after that without it.

## How to mend it

Decide together, then set it on all ranks. Lightning:

    trainer.should_stop = trainer.strategy.reduce_boolean_decision(stop, all=False)

transformers:

    stop = torch.tensor(float(stop), device=args.device)
    torch.distributed.all_reduce(stop)
    control.should_training_stop = bool(stop.item())   # should_evaluate and should_log likewise

Ignite:

    if idist.all_reduce(float(stop)) > 0:
        engine.terminate()

## Versions and sources

Source: lightning/pytorch/loops/fit_loop.py and callbacks/early_stopping.py; transformers/trainer_callback.py;
ignite/engine/engine.py. Seen with lightning 2.6, transformers 5.23, ignite 0.5 and torch 2.13 CPU.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Fix,
    PeerLost,
    Place,
    Severity,
    Stalled,
    Table,
    Training,
    last_name,
    one_rank_only,
    place,
    tree_of,
)

from ..hangs._hangs import on_hang
from ..hangs._kinds import Hang
from ..hangs._losses import Loss, on_loss
from ..hangs._told import noticed, seen, short, table
from ..hangs.reasons._stops import StopOfSome, stop_of_some_ranks

if TYPE_CHECKING:
    from ddpdoctor.check import StopAsked

AILMENT = Ailment("DDP781", Severity.ERROR)
STOP = Fix(
    "decide together, and set it on all ranks",
    diff="-if stop:\n-    control.should_training_stop = True\n"
    "+stop = torch.tensor(float(stop), device=args.device)\n"
    "+torch.distributed.all_reduce(stop)   # called by all ranks\n"
    "+control.should_training_stop = bool(stop.item())",
)
MEET = Fix(
    "set it by what all ranks know, such as the step; or decide together",
    diff="-if state.is_world_process_zero and wanted:\n-    control.{flag} = True\n"
    "+wanted = torch.tensor(float(wanted), device=args.device)\n"
    "+torch.distributed.all_reduce(wanted)   # called by all ranks\n"
    "+control.{flag} = bool(wanted.item())",
)
FIXES = {
    "should_stop": Fix(
        "decide together, and set it on all ranks",
        diff="-if stop:\n-    trainer.should_stop = True\n"
        "+trainer.should_stop = trainer.strategy.reduce_boolean_decision(stop, all=False)   # called by all ranks",
    ),
    "should_training_stop": STOP,
    **{each: replace(MEET, diff=MEET.diff.format(flag=each)) for each in ("should_evaluate", "should_log")},
    "terminate": Fix(
        "decide together, and end it on all ranks",
        diff="-if stop:\n-    engine.terminate()\n"
        "+if idist.all_reduce(float(stop)) > 0:   # called by all ranks\n+    engine.terminate()",
    ),
}
SETS = {
    "should_stop": "sets trainer.should_stop",
    "should_training_stop": "sets control.should_training_stop",
    "terminate": "calls terminate()",
    "should_evaluate": "sets control.should_evaluate",
    "should_log": "sets control.should_log",
}
LEADS_TO = {"should_evaluate": "evaluates", "should_log": "gathers the loss to log it"}


@on_hang(Hang.ASKED)
def while_training(event: Stalled, training: Training) -> Iterator[Finding]:
    """Report the line that set it."""
    if found := stop_of_some_ranks(event.ranks, training):
        yield _finding(found, seen(event), table(event))


@on_loss(Loss.ASKED)
def by_those_who_lost_it(event: PeerLost, training: Training) -> Iterator[Finding]:
    """Report it where the rank has come to its end, and another one lost it."""
    if found := stop_of_some_ranks(event.progress, training):
        yield _finding(found, noticed(event), None)


OF_HANDLER = Fix(
    "let all ranks decide by the same number: one of Ignite's metrics, or one that is reduced",
    diff="-score_function=lambda engine: score\n"
    "+score_function=lambda engine: idist.all_reduce(score) / idist.get_world_size()   # called by all ranks",
)


def _finding(found: StopOfSome, proof: tuple[Evidence, ...], positions: Table | None) -> Finding:
    asked = found.asked
    if asked.by:
        return _of_handler(found, proof, positions)
    guard = one_rank_only(asked.site.file, asked.site.line) if asked.site else ""
    return Finding(
        f"rank {found.rank} alone {SETS[asked.flag]} at {short(asked.site)}{guard and f', {guard}'}: "
        f"{asked.framework} {LEADS_TO.get(asked.flag, 'ends the training')} there, and rank {found.other} goes on and "
        "waits for it",
        (
            Evidence(f"{SETS[asked.flag]} after {asked.steps} steps", "the same on all ranks", f"rank {found.rank}"),
            Evidence("has not, and is further by at least one forward", "", f"rank {found.other}"),
            *proof,
        ),
        FIXES[asked.flag],
        place(asked.site, rank=found.rank),
        table=positions,
    )


def _of_handler(found: StopOfSome, proof: tuple[Evidence, ...], positions: Table | None) -> Finding:
    """Report a handler of the framework's own, where the script makes it."""
    asked = found.asked
    return Finding(
        f"{asked.by} ends the training on rank {found.rank} alone, by what that rank has seen: rank {found.other} goes "
        "on and waits for it",
        (
            Evidence(f"terminate() after {asked.steps} steps", "on all ranks, or on none", f"rank {found.rank}"),
            Evidence("has not, and is further by at least one forward", "", f"rank {found.other}"),
            *proof,
        ),
        OF_HANDLER,
        _made(asked) or place(asked.site, rank=found.rank),
        table=positions,
    )


def _made(asked: StopAsked) -> Place | None:
    """Return the one line of the file that makes such a handler; None where there is not just one."""
    calls = tree_of(asked.site.file).of(ast.Call) if asked.site else []
    lines = [each.lineno for each in calls if last_name(each.func) == asked.by]
    return Place(file=asked.site.file, line=lines[0]) if asked.site and len(lines) == 1 else None
