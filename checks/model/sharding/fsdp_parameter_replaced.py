"""A parameter was replaced after FSDP had made its own of it, and the new one has another shape.

## What happens

FSDP1 with `use_orig_params=True` keeps a model's parameters as views of its flat parameter. Before each forward and
backward it looks whether one lies in other memory than it left it in, and takes the new values back. Between its uses a
parameter is a flat part, so one that was given its whole shape does not fit: "RuntimeError: Cannot writeback when the
parameter shape changes", "Expects torch.Size([1769472]) but got torch.Size([2304, 768])".

That does an assignment (`layer.weight = nn.Parameter(...)`, `weight.data = ...`), tying of weights,
`load_state_dict(..., assign=True)`, a conversion of the module after the wrapping; and a framework that replaces parts
of FSDP by its own, made for another version of torch. With one GPU FSDP shards nothing (NO_SHARD), and its views are
held otherwise.

## How to be sure

The two shapes hold equally many values, or the first is a part of the second. Look for what is done to the parameters
between the wrapping and that step.

## How to mend it

Change values in place, on all ranks, with the parameters gathered:

    with torch.no_grad(), FullyShardedDataParallel.summon_full_params(model):
        layer.weight.copy_(new)

or before the model is wrapped. On one GPU train without FSDP.

## Versions and sources

Holds for FSDP1 of torch 2.0 to 2.13. Source: torch/distributed/fsdp/_flat_param.py, `_writeback_orig_params`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP597", Severity.ERROR)
SHAPES = re.compile(r"Expects torch\.Size\(\[(?P<flat>[\d, ]*)\]\) but got torch\.Size\(\[(?P<got>[\d, ]*)\]\)")
PATCHED = re.compile(r"[/\\]composer[/\\]")


@log_pattern(r"Cannot writeback when the (?P<what>parameter|gradient) shape changes")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Quote the two shapes, and say what gives a parameter another one."""
    shapes = SHAPES.search(record.text)
    said = f": [{shapes['got']}] where FSDP left [{shapes['flat']}]" if shapes else ""
    of_framework = "Composer replaces parts of FSDP, and this version of it is for another torch"
    yield Finding(
        f"a {match['what']} was replaced after FSDP had wrapped the model{said}",
        (record.proof(match, "values that change in place"),),
        Fix(
            "change values in place, on all ranks, while they are gathered; on one GPU train without FSDP",
            diff="-layer.weight = torch.nn.Parameter(new)\n"
            "+with torch.no_grad(), FullyShardedDataParallel.summon_full_params(model):\n+    layer.weight.copy_(new)",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                *((of_framework,) if PATCHED.search(record.text) else ()),
                "the run has one rank, where FSDP shards nothing and a gathered parameter is not put back",
                "the code assigns a parameter or its .data, ties weights, or converts the module after the wrapping",
            ),
            "python -c 'import torch; print(torch.__version__)'; pip list | grep -iE 'composer|fsdp'; "
            "grep -nE '\\.(weight|bias|data) = |assign=True|tie_weights' *.py",
        ),
    )
