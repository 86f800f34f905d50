"""One rank saves a sharded model's state dict, which holds its own shards and no others.

## What happens

After `fully_shard`, `model.state_dict()` gives each rank DTensors: it communicates nothing, and what `torch.save`
writes of a DTensor is the part of its rank. Under `if rank == 0`, as with DDP, one part of N is saved. Nothing fails
until the file is loaded, and then the rest of the weights is gone.

## How to be sure

ddpdoctor looks at what `torch.save` writes. Here one rank alone has written a file with parts, and no other rank has
saved its own to the end of the training. By hand: `type(torch.load(path, weights_only=False)["..."])` is DTensor.

## How to mend it

    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if rank == 0:
        torch.save(state, path)

on all ranks; or `torch.distributed.checkpoint.save`, with which each rank writes its part.

## Versions and sources

Measured with torch 2.13, gloo, two ranks. Source: PyTorch documentation, torch.distributed.checkpoint.state_dict. Holds
for torch 2.4 and later.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ended, Evidence, FileWritten, Finding, Joined, Severity, Training, place, watch

from .._whole import WHOLE

AILMENT = Ailment("DDP837", Severity.ERROR)


@watch(Ended)
def at_the_end(training: Training) -> Iterator[Finding]:
    """Look who has written parts."""
    written = [each for each in training.of(FileWritten) if each.shards]
    ranks = {each.rank for each in written}
    seen = training.by_rank(Joined)
    if len(seen) < 2 or len(ranks) != 1 or None in ranks:  # noqa: PLR2004 - nobody else here has a part
        return
    last = written[-1]
    yield Finding(
        f"rank {last.rank} alone saves a sharded model: {last.path} holds its own parts, and nobody writes the others",
        (
            Evidence(f"{last.shards} tensors are shards (DTensor)", "whole tensors", f"rank {last.rank}, {last.site}"),
            Evidence(f"1 of {len(seen)} ranks here has saved shards", "all of them, or whole tensors", "all files"),
        ),
        WHOLE,
        place(last.site, rank=last.rank),
    )
