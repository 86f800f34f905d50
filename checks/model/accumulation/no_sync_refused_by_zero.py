"""DeepSpeed refuses `no_sync`: ZeRO 2 and 3 have to reduce the gradients of every micro-batch.

## What happens

ZeRO stages 2 and 3 keep of each gradient only the rank's own part, so a micro-batch that is not reduced would be lost.
Since 0.16, DeepSpeed's engine has a `no_sync`, and refuses to enter it in these stages: "no_sync context manager is
incompatible with gradient partitioning logic of ZeRO stage 3". Accelerate's `accumulate` and the transformers Trainer
enter any `no_sync` that a model has as soon as gradients are accumulated; newer versions of both leave it out under
ZeRO 2 and 3. So the training fails in its first step, after DeepSpeed was upgraded and they were not.

## How to be sure

The message names the stage. The frames above it tell who asked: accelerate/accelerator.py, or a line of the script.

## How to mend it

Upgrade Accelerate and transformers together with DeepSpeed. In a loop of your own, leave `no_sync` out: the engine
counts the micro-batches by itself (`gradient_accumulation_steps`), and steps with the last one of each window. Or take
ZeRO stage 1, which has whole gradients.

## Versions and sources

Holds for DeepSpeed 0.16 to 0.19 with torch 2.2 to 2.13. Sources: deepspeed/runtime/engine.py, `no_sync`;
accelerate/accelerator.py, `Accelerator.no_sync`; huggingface/accelerate#3481, deepspeedai/DeepSpeed#6793.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Log, Record, Severity, log_pattern

from .._logs import beside

AILMENT = Ailment("DDP1581", Severity.ERROR)
BY_ACCELERATE = r"accelerate[/\\]accelerator\.py|transformers[/\\]trainer\.py"
UPGRADE = Fix(
    "take versions of Accelerate and transformers that leave no_sync out under ZeRO 2 and 3",
    command="pip install --upgrade accelerate transformers deepspeed",
)
OWN = Fix(
    "leave no_sync out: the engine counts the micro-batches of gradient_accumulation_steps by itself",
    diff="-with engine.no_sync():\n-    engine.backward(loss)\n+engine.backward(loss)\n+engine.step()",
)


@log_pattern(
    r"no_sync context manager is incompatible with gradient\s?partitioning logic of ZeRO stage (?P<stage>\d)",
    context=(BY_ACCELERATE,),
)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Tell whose no_sync it was by the frames."""
    library = beside(record, log, BY_ACCELERATE)
    yield Finding(
        f"{'Accelerate' if library else 'the script'} enters no_sync, which ZeRO stage {match['stage']} cannot have: "
        "each rank keeps a part of the gradients only",
        (record.proof(match, "ZeRO stage 1, or no no_sync"), *library),
        UPGRADE if library else OWN,
        record.place,
    )
