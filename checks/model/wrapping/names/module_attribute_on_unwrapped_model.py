"""The script reads .module from a model that is not wrapped.

## What happens

Only DataParallel and DistributedDataParallel hold the model as their child `module`. Code that was written for the
wrapped model (`model.module.state_dict()`, `net.module.freeze_bn()`) raises "AttributeError: 'RetinaNet' object has no
attribute 'module'" as soon as it runs where nothing was wrapped: one GPU, a CPU, a launcher that started one process,
or after a framework has unwrapped the model already.

## How to be sure

The class in the message is that of your own model, no wrapper, and the traceback ends in
`torch/nn/modules/module.py`, where torch looks attributes up. Where the class is no model (a Namespace, a config),
this is not the ailment.

## How to mend it

Unwrap only what is wrapped, `getattr(model, "module", model)`; with Accelerate
`accelerator.unwrap_model(model)`.

## Versions and sources

Holds for all versions of torch. Source: `Module.__getattr__` in torch/nn/modules/module.py (ModuleAttributeError in
torch 1.6 and 1.7).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Log, Record, Severity, log_pattern

from ..._logs import beside

AILMENT = Ailment("DDP526", Severity.ERROR)
MESSAGE = r"'([A-Z]\w+)' object has no attribute 'module'"
LOOKUP = r"torch[/\\]nn[/\\]modules[/\\]module\.py|ModuleAttributeError|type\(self\)\.__name__, name\)"
READ = r"\w+(?:\.\w+)*\.module\b(?:\.\w+)?"
NO_MODEL = re.compile(
    r"NoneType|\w*(?:Namespace|Config|ConfigDict|Dict|Args|Arguments|Tensor|Parameter|Dataset|Loader|Sampler|Trainer|Node)$"
)


@log_pattern(MESSAGE, context=(LOOKUP,))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Recognise a model by torch's own lookup of attributes."""
    if "DataParallel" not in match[1] and (shown := beside(record, log, LOOKUP)):
        yield Finding(
            f"the script reads .module from {match[1]}, which is not wrapped",
            (record.proof(match, "a model inside DataParallel or DDP"), *shown),
            _fix(record),
            record.place,
        )


@log_pattern(MESSAGE, context=(LOOKUP,))
def cut_off_in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Leave open whether the class is a model, where the traceback is missing."""
    if "DataParallel" in match[1] or NO_MODEL.match(match[1]) or beside(record, log, LOOKUP):
        return
    yield Finding(
        f"the script reads .module from {match[1]}, which has none",
        (record.proof(match, "a model inside DataParallel or DDP"),),
        _fix(record),
        record.place,
        ambiguity=Ambiguity(
            (f"{match[1]} is the model, and nothing wrapped it in this run", f"{match[1]} is no torch module"),
            "grep -rnE '\\.module\\b' --include=*.py .",
        ),
    )


def _fix(record: Record) -> Fix:
    read = next((found[0] for line in record.text.splitlines() if (found := re.search(READ, line))), "model.module")
    name, _, rest = read.partition(".module")
    return Fix(
        "unwrap only what is wrapped",
        diff=f'-{read}\n+getattr({name}, "module", {name}){rest}',
    )
