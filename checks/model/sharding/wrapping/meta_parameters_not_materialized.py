"""Parameters are still on the meta device: they have a shape and no data.

## What happens

A model built under `torch.device("meta")`, `init_empty_weights()` or `low_cpu_mem_usage=True` has no values until it
is given some. Moving it ("Cannot copy out of meta tensor; no data!") or training it under FSDP ("parameters should be
materialized before training but the following parameters are still on meta device") is refused. Often one part is left
over: it is not in the checkpoint, or only rank 0 loaded the weights. FSDP1 gives a module on the meta device its memory
and calls its `reset_parameters()`; a module that has parameters and no such method ends it ("'RMSNorm' object has no
attribute 'reset_parameters'").

## How to be sure

`[n for n, p in model.named_parameters() if p.is_meta]` lists what has no data, on each rank.

## How to mend it

`model.to_empty(device=...)`, then load or initialise all weights: `load_state_dict(..., assign=True)`,
`reset_parameters()`. FSDP1 takes `param_init_fn`, and with `sync_module_states=True` copies rank 0's weights to the
other ranks.

## Versions and sources

Holds for torch 2.2 to 2.13. Sources: torch/nn/modules/module.py;
torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP588", Severity.ERROR)
EMPTIED = re.compile(r"\.to_empty\(")
OF_SHARDS = re.compile(r"_fully_shard[/\\]|in reset_sharded_param\b")


@log_pattern(
    r"Cannot copy out of meta tensor; no data!"
    r"|FSDP parameters should be materialized from meta device before training[^\n\[]{0,80}"
    r"(?:\[(?P<names>[^\]\n]{1,200}))?"
    r"|'(?P<module>\w{1,80})' object has no attribute 'reset_parameters'"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name the parameters where the message does."""
    names = match["names"]
    if match["module"]:
        if "_materialize_meta_module" in record.text:
            yield _not_initialised(record, match)
        return
    if not names and EMPTIED.search(record.text) and OF_SHARDS.search(record.text):
        yield _of_an_empty_shard(record, match)
        return
    yield Finding(
        f"parameters are still on the meta device: {names}"
        if names
        else "a tensor on the meta device has no data to move",
        (record.proof(match, "parameters with data before the model is moved or trained"),),
        Fix(
            "give the model memory, then its weights",
            diff="-model = model.to(device)\n+model.to_empty(device=device)\n"
            "+model.load_state_dict(torch.load(path, weights_only=True, map_location=device))",
        ),
        record.place,
    )


def _not_initialised(record: Record, match: re.Match[str]) -> Finding:
    return Finding(
        f"FSDP gives the parameters of {match['module']} memory, and the module has no reset_parameters() for values",
        (record.proof(match, "reset_parameters() in each module with parameters, or param_init_fn"),),
        Fix(
            "load the weights on rank 0, and let FSDP copy them to the other ranks",
            diff="-model = FSDP(model, device_id=device)\n"
            "+model = FSDP(model, device_id=device, sync_module_states=True,\n"
            "+             param_init_fn=lambda module: module.to_empty(device=device, recurse=False))",
        ),
        record.place,
    )


def _of_an_empty_shard(record: Record, match: re.Match[str]) -> Finding:
    """to_empty was called, so what is left on the meta device is a shard of nothing."""
    return Finding(
        "fully_shard has left this rank a shard without elements on the meta device, and to_empty() does not move it",
        (
            record.proof(
                match, "a first dimension of each parameter that is at least the number of ranks that share it"
            ),
        ),
        Fix(
            "shard such a parameter over fewer ranks, or along another dimension",
            diff="-fully_shard(module, mesh=mesh)\n"
            "+fully_shard(module, mesh=mesh, shard_placement_fn=lambda p: Shard(int(p.shape[0] < mesh.size())))",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "a parameter has fewer rows than ranks (experts, scales), and some ranks get none",
                "a parameter or a buffer was replaced, or made on the meta device, after the model was sharded",
            ),
            "print([(n, p.shape) for n, p in model.named_parameters() if p.shape[0] < mesh.size() or p.is_meta])",
        ),
    )
