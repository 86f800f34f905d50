"""Two modules share a weight, and FSDP was given each of them by itself.

## What happens

`FullyShardedDataParallel(module)` and `fully_shard(module)` put shards in the place of the weights of one module. A
module elsewhere that has the same weight, as the output layer of a language model has that of the embedding, keeps what
was there before: when it is given to FSDP too, or with the whole model, it gets shards of its own. With
`use_orig_params=False`, the default, nothing raises: from then on the two are trained apart, the model has more
parameters than it was built with, and a checkpoint of it does not load where the weights are shared. With
`use_orig_params=True` the first forward fails ("size mismatch"); `fully_shard` of torch 2.13 refuses it there.

## How to be sure

The model has more parameters once it is sharded than before. ddpdoctor sees FSDP given a parameter that it has taken up
with another module before.

## How to mend it

Give FSDP neither of the modules that share the weight by itself: the whole model, which is given to it last, takes both
up in one group, and they stay one. `fully_shard` takes a list of modules as one group, too.

    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard([model.embed, model.head], mesh=mesh)     # or leave this line out
    fully_shard(model, mesh=mesh)                         # takes up what is left, in one group

## Versions and sources

Seen with torch 2.13, gloo, two ranks, both kinds of FSDP. Source: PyTorch documentation of FullyShardedDataParallel,
"FSDP offers limited support for shared parameters"; torch's fully_shard, "For shared/tied parameters".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Fix,
    Record,
    Severity,
    TiedApart,
    Training,
    log_pattern,
    place,
    watch,
)

AILMENT = Ailment("DDP1569", Severity.ERROR)
OF_FUNCTION = Fix(
    "give the modules that share it to fully_shard as one group",
    diff="-fully_shard(model.embed)\n-fully_shard(model.head)\n+fully_shard([model.embed, model.head])\n"
    " fully_shard(model)",
)
OF_CLASS = Fix(
    "give FSDP neither of the two by itself: the whole model, given to it last, takes both up in one group",
    diff="-model.embed = FSDP(model.embed)\n-model.head = FSDP(model.head)\n model = FSDP(model)",
)


@watch(TiedApart)
def while_training(event: TiedApart, training: Training) -> Iterator[Finding]:
    """Tell it once, of the first weight."""
    if training.of(TiedApart)[0] is not event:
        return
    yield Finding(
        f"{event.api} is given the {event.name} of {event.kind}, which it has taken up as {event.before} of another "
        "module before: the shared weight becomes two, which are trained apart",
        (
            Evidence(f"{event.before} was given to FSDP", "both modules at once", str(event.first)),
            Evidence(f"the same parameter, as {event.name} of {event.kind}", "", str(event.site)),
        ),
        OF_FUNCTION if event.api == "fully_shard" else OF_CLASS,
        place(event.site),
    )


@log_pattern(r"Parameter '(?P<name>[^'\n]{1,300})' is shared with a parameter already managed by another FSDP group")
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read the refusal of newer versions of fully_shard."""
    yield Finding(
        f"{match['name']} is shared with another module, and fully_shard was given the two one by one",
        (record.proof(match, "both modules in one group"),),
        OF_FUNCTION,
        record.place,
    )
