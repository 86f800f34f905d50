"""A launcher started several processes, and DeepSpeed sees one.

## What happens

DeepSpeed takes the number of ranks from torch.distributed when its configuration is read. If the process group does
not exist at that moment (an engine or a HfDeepSpeedConfig made before `init_distributed`, versions of Accelerate and
DeepSpeed that do not go together, a script started by python instead of the launcher), it assumes 1, and the equation
of batch sizes fails with a last factor of 1: "256 != 4 * 8 * 1".

## How to be sure

The last number is 1, the first is a multiple of the product of the others, and the log shows a
launcher or a rank above 0. That multiple is the number of processes.

## How to mend it

`deepspeed.init_distributed()` before the configuration is read, and start with the `deepspeed`
launcher, `accelerate launch` or torchrun; upgrade Accelerate and DeepSpeed together.

## Versions and sources

Holds for DeepSpeed 0.3 and later with torch 2.2 to 2.13. Source: `DeepSpeedConfig.__init__` in
deepspeed/runtime/config.py, which falls back to a world size of 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Log, Record, Severity, log_pattern

from ._batch import EQUATION, LAUNCHED, batch, is_alone, launched

AILMENT = Ailment("DDP453", Severity.ERROR)


@log_pattern(EQUATION, context=(LAUNCHED,))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Recognise one rank of several by the launcher in the log."""
    numbers = batch(match)
    if not is_alone(numbers, record, log):
        return
    found = launched(record, log)
    yield Finding(
        f"DeepSpeed sees one rank where {numbers.ranks} would make its batch sizes fit",
        (
            record.proof(match, f"{numbers.ranks} as the last factor"),
            *((found[0].proof(found[1], "a launcher of several processes"),) if found else ()),
        ),
        Fix(
            "make the process group before DeepSpeed reads its configuration, and upgrade both packages together",
            command="pip install --upgrade deepspeed accelerate transformers\n"
            f"deepspeed --num_gpus={numbers.ranks} train.py",
            diff="+deepspeed.init_distributed()\n engine, *_ = deepspeed.initialize(model=model, config=config)",
        ),
        record.place,
    )
