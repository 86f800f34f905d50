"""init_process_group is called twice in one process.

## What happens

A process has one default process group; the second call raises "trying to initialize the default process group twice!".
The second call is often not the script's own: a library (Accelerate, DeepSpeed, mmcv, Lightning) initializes as well, a
notebook cell runs again, a training function is called once for each fold, or the entry script is imported a second
time as a module and its top level runs again.

## How to be sure

The traceback shows the second call; frames of importlib or runpy above it mean that the file was
imported anew.

In a source (`ddpdoctor lint`): two calls stand in one block, and nothing destroys the group between them; or the one
call stands in the function that Ray Train runs on its workers, or in a block behind `Accelerator()` or
`deepspeed.init_distributed()`, which have made the group.

## How to mend it

Leave it to one side and guard the other; call destroy_process_group between two runs; keep the
training under `if __name__ == "__main__":`. Ray Train makes the group before it calls the function: with which
backend, it is told by `TorchTrainer(..., torch_config=ray.train.torch.TorchConfig(backend="gloo"))`.

## Versions and sources

Source: torch.distributed.distributed_c10d, init_process_group. Holds for torch 2.2 to 2.13 (a RuntimeError before
torch 2.1, a ValueError since).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from ddpdoctor.check import (
    INIT,
    Ailment,
    Finding,
    Fix,
    Log,
    Record,
    Script,
    Severity,
    lint,
    log_pattern,
)

from ..._scripts.source import taken_out
from ._made_group import MADE_BY, calls_too_late, maker_at

AILMENT = Ailment("DDP409", Severity.ERROR)
IMPORTED = r"_bootstrap\._gcd_import|\bimport_module\(|importlib[/\\]__init__\.py|<frozen importlib"
TWICE = r"trying to initialize the default process group twice"


@log_pattern(TWICE, context=(IMPORTED,))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """See whether the second call came by way of an import."""
    own = re.search(IMPORTED, record.text)
    again = (record, own) if own else None if record.frames else log.first(IMPORTED)
    by = next((owner for frames, owner in MADE_BY if frames in record.text), None) or maker_at(record.place)
    if by is not None and not again:
        yield Finding(
            f"init_process_group runs a second time in this process: {by.who} has made the group",
            (record.proof(match, "one call in each process"),),
            by.fix,
            record.place,
        )
        return
    yield Finding(
        "init_process_group runs a second time"
        + (", since an import runs the top level of the file again" if again else " in this process"),
        (
            record.proof(match, "one call in each process"),
            *((again[0].proof(again[1], "the entry script is not imported"),) if again else ()),
        ),
        Fix(
            "keep what trains under the guard" if again else "initialize once: drop one of the calls, or guard it",
            diff='-main()\n+if __name__ == "__main__":\n+    main()'
            if again
            else '-dist.init_process_group("nccl")\n'
            '+if not dist.is_initialized():\n+    dist.init_process_group("nccl")',
        ),
        record.place,
    )


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for a second call in the block of the first one."""
    for first, second in pairwise(script.calls(INIT)):
        one, two = script.tree.statement(first), script.tree.statement(second)
        block = script.tree.block(one) if one is not None else []
        if one is None or two is None or one is two or two not in block:
            continue
        between = [script.code(each) for each in block[block.index(one) + 1 : block.index(two)]]
        if not any("destroy" in text or "is_initialized" in text for text in between):
            yield Finding(
                "init_process_group is called a second time: a ValueError",
                (script.seen(second, "one call"), script.seen(first)),
                Fix("call it once"),
                script.place(second),
            )


@lint
def behind_a_framework(script: Script) -> Iterator[Finding]:
    """Look for a call where a framework has made the group already."""
    for call, (first, maker) in calls_too_late(script):
        yield Finding(
            f"{maker.who} has made the process group, and init_process_group is called once more: a ValueError",
            (script.seen(call, "no call"), *((script.seen(first),) if first is not None else ())),
            Fix(maker.fix.summary, diff=maker.fix.diff, edits=taken_out(script, call)),
            script.place(call),
        )
