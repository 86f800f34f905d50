"""A checkpoint has no file of this rank: fewer ranks saved it.

## What happens

Some parts of a checkpoint lie in a file for each rank: the states of the random generators (`random_states_1.pkl`,
`rng_state_1.pth`), the shards of an optimizer. A rank that finds none of its own raises FileNotFoundError. Rank 0 saved
alone (`if accelerator.is_main_process: accelerator.save_state()`), the run that saved had fewer ranks, or each host
wrote the files of its own ranks to a disk that the others do not see.

## How to be sure

`ls` in the folder of the checkpoint: how many such files there are, on each host. Accelerate's `load_state` passes over
the random states that it does not find, and tells it in a line of level INFO alone.

In a source (`ddpdoctor lint`): `accelerator.save_state()` stands where the main process alone comes.

## How to mend it

Let all ranks save. Where the files are of another number of ranks, leave the random states out: training goes on, with
other random numbers.

## Versions and sources

Holds for torch 2.2 and later: the words are those of accelerate and transformers in reports; seen with accelerate 1.15:
the main process alone has saved, and no error follows. Sources:
accelerate/checkpointing.py, `load_accelerator_state`; transformers/trainer.py, `_load_rng_state`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    ACCELERATOR,
    Ailment,
    Ambiguity,
    Finding,
    Fix,
    Log,
    Record,
    Severity,
    lint,
    log_pattern,
)

from ..._hosts.launched import REMOVING
from ...collectives.hangs.source._all_ranks import others_have_a_branch

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP840", Severity.ERROR)
MISSING = (
    r"FileNotFoundError: \[Errno 2\] No such file or directory: '(?P<folder>[^'\n]{0,300}?)/?"
    r"(?P<stem>rng_state|random_states?|scheduler|sampler|(?:[\w.]*_)?(?:rank|model_states|optim_states))_0*(?P<rank>\d+)"
    r"(?P<rest>[^/'\n]{0,80})'"
)
NUMBERS = "automatic_checkpoint_naming"
SAVES = re.compile(r"torch\.save\(|save_pretrained\(|_save_checkpoint|\bopen\([^\n]*['\"][wax]b?['\"]")


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for ``save_state`` of Accelerate, each process of which has random states of its own to write."""
    for call in script.nodes(ast.Call) if "save_state" in script.text else ():
        match call.func:
            case ast.Attribute(attr="save_state", value=owner) if script.is_a(owner, ACCELERATOR):
                guard = script.one_rank_guard(call)
            case _:
                continue
        if guard is None or others_have_a_branch(script, guard.test, call) or NUMBERS in script.text:
            continue  # where it numbers its folders it waits for all: rank0-only-collective
        yield Finding(
            f"{script.code(call.func)} is called by the main process alone: the random states of the others are not "
            "saved, and a resumed training draws other numbers on them",
            (script.seen(call, "a call of all processes"), script.seen(guard.test)),
            Fix(
                "let all processes call it: what one of them is to write it writes alone",
                diff=f"-if {script.code(guard.test)}:\n-    {script.code(call)}\n+{script.code(call)}",
            ),
            script.place(call),
            severity=Severity.NOTE,
        )


@log_pattern(MISSING, plain=True)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Read whose file it is."""
    if SAVES.search(record.text) or re.search(REMOVING, record.text):
        return  # it is being written, or deleted
    ranks = sorted(log.ranks(MISSING))
    owner = int(match["rank"])
    folder = match["folder"] or "."
    alone = "rank 0 saved alone"
    fewer = "the run that saved had fewer ranks"
    local = "each host saved the files of its own ranks on a disk of its own"
    own = record.rank is not None and owner == record.rank
    yield Finding(
        f"the checkpoint {folder} has no file of rank {owner}: fewer ranks saved it"
        + (f" than the {max(ranks) + 1} or more that load it" if own else ""),
        (record.proof(match, f"a file {match['stem']}_N{match['rest']} of each rank"),),
        Fix(
            "let all ranks save",
            diff="-if accelerator.is_main_process:\n-    "
            "accelerator.save_state(folder)\n+accelerator.save_state(folder)",
        ),
        record.place,
        ambiguity=Ambiguity((alone, fewer, local), f"ls {folder}   # on each host: which numbers are there"),
    )
