"""The model in DataParallel is not on the first of its GPUs.

## What happens

DataParallel copies the model from `device_ids[0]` to the others at each forward, and refuses a model that is
elsewhere: "module must have its parameters and buffers on device cuda:0 (device_ids[0]) but found one of them on
device: cpu". `cpu` means that the model, or a part that was attached later, was never moved, or that the run is meant
for the CPU and the wrapper is a leftover: on a machine with GPUs it still claims them. `cuda:k` means that the model
went to another GPU than `device_ids` begins with.

## How to be sure

The device in the message; `{p.device for p in model.parameters()}` before the wrapping.

In a source (`ddpdoctor lint`): a script whose ranks each choose a GPU of their own, as Horovod's do, gives the model to
DataParallel without `device_ids`. Only the rank on GPU 0 comes through its first forward.

## How to mend it

`model.to(f"cuda:{device_ids[0]}")` before the wrapping; no wrapper on CPU, and none where each rank has one GPU.

## Versions and sources

Holds for all versions of torch; torch 0.4 and older say "Broadcast function not implemented for CPU tensors". Source:
torch/nn/parallel/data_parallel.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    DATA_PARALLEL,
    Ailment,
    Finding,
    Fix,
    Log,
    Record,
    Severity,
    given,
    is_open,
    lint,
    log_pattern,
)

from .._logs import NOT_ON_FIRST, TRAINER, WRAPPED_TWICE, beside

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script

AILMENT = Ailment("DDP528", Severity.ERROR)


@log_pattern(NOT_ON_FIRST, context=(TRAINER,))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Report the two devices; a DataParallel inside DDP, or Trainer's own, is another ailment."""
    if re.search(WRAPPED_TWICE, record.text) or beside(record, log, TRAINER):
        return
    first, found = match[1], match[2]
    yield Finding(
        "the model in DataParallel was never moved to a GPU"
        if found == "cpu"
        else f"the model in DataParallel is on {found}, and device_ids begins with {first}",
        (record.proof(match, f"all parameters and buffers on {first}"),),
        Fix(
            f"move the model to {first} before it is wrapped"
            + ("; for a run on CPU, leave the wrapper out" if found == "cpu" else ""),
            diff=f'-model = nn.DataParallel(model)\n+model = nn.DataParallel(model.to("{first}"))',
        ),
        record.place,
    )


@log_pattern(r"Broadcast function not implemented for CPU tensors")
def in_replicate(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Recognise what copying a CPU model to the GPUs raises."""
    yield Finding(
        "DataParallel is to copy a model from the CPU to the GPUs: it was never moved to a GPU",
        (record.proof(match, "all parameters and buffers on device_ids[0]"),),
        Fix(
            "move the model before it is wrapped",
            diff='-model = nn.DataParallel(model)\n+model = nn.DataParallel(model.to("cuda:0"))',
        ),
        record.place,
    )


@log_pattern(r"RuntimeError: [Aa]ll tensors must be on devices\[0\](?:: (?P<device>\d+))?")
def in_a_broadcast(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Recognise what an old torch raises when it sends the weights: a wrapper without device_ids begins at GPU 0."""
    first = f"cuda:{match['device']}" if match["device"] else "device_ids[0]"
    yield Finding(
        f"the model, or a part of it, is not on {first}, the first of the GPUs that its wrapper uses",
        (record.proof(match, f"all parameters and buffers on {first}"),),
        Fix(
            "say which GPU is the rank's own, or move the model to the first one",
            diff="-model = nn.DataParallel(model, device_ids=[2, 3])\n"
            '+model = nn.DataParallel(model.to("cuda:2"), device_ids=[2, 3])'
            if re.search(r"data_parallel\.py|parallel[/\\]replicate\.py", record.text)
            else "-model = DistributedDataParallel(model.cuda())\n"
            "+model = DistributedDataParallel(model.cuda(), device_ids=[torch.cuda.current_device()])",
        ),
        record.place,
    )


OTHERWISE = r"CUDA_VISIBLE|DistributedDataParallel|\bDDP\b"
"""What occurs where each rank sees one GPU, or another wrapper is meant for several ranks."""


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for DataParallel in each of several ranks, each of which has chosen a GPU."""
    chosen = [each for each in script.calls("torch.cuda.set_device") if each.args and script.can_differ(each.args[0])]
    if not chosen or not script.runs_in_ranks or project.does(OTHERWISE):
        return
    for call in script.calls(DATA_PARALLEL):
        if given(call, 1, "device_ids") is not None or is_open(call) or script.guards(call):
            continue
        if call.args and script.all_ranks_reach(call):
            model = script.code(call.args[0])
            yield Finding(
                f"each rank gives {model} to DataParallel, which begins at cuda:0: where a rank chose another GPU, "
                "the first forward raises",
                (script.seen(call, "no DataParallel: a rank has one GPU"), script.seen(chosen[0])),
                Fix(
                    "leave it out: the ranks share the batch already",
                    diff=f"-{script.code(script.tree.statement(call) or call)}",
                ),
                script.place(call),
            )
