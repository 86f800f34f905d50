"""One rank saves a sharded model's state dict, which holds its own shards and no others.

## What happens

After `fully_shard`, `model.state_dict()` gives each rank DTensors: it communicates nothing, and what `torch.save`
writes of a DTensor is the part of its rank. Under `if rank == 0`, as with DDP, one part of N is saved. Nothing fails
until the file is loaded, and then the rest of the weights is gone. The same holds of a copy that a rank makes of its
parts: a moving average (EMA) of `parameter.to_local()`, or of FSDP1's parameters, has the shapes of the parts; and of
`optimizer.state_dict()`.

## How to be sure

ddpdoctor looks at what `torch.save` writes: DTensors that are split, plain tensors with the name of a sharded parameter
and the shape of this rank's part of it, tensors that an optimizer keeps of such parts. Here one rank alone has written
a file with some, and no other rank has saved its own to the end of the training. By hand:
`type(torch.load(path, weights_only=False)["..."])` is DTensor, or its shape is not the parameter's.

In a source (`ddpdoctor lint`): one rank alone comes to `get_model_state_dict(model)`, or its like, of a file that calls
`fully_shard`, without `full_state_dict=True`, or to `model.state_dict()` of what `fully_shard` has split, and hands
what it returns to `torch.save`. It does not wait for the other ranks: it returns at once, with DTensors of its own
shards.

## How to mend it

    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if rank == 0:
        torch.save(state, path)

on all ranks; or `torch.distributed.checkpoint.save`, with which each rank writes its part. A moving average of
`fully_shard`'s parameters is kept of the DTensors themselves, `ema[name].lerp_(parameter.detach(), 0.01)`, and saved as
`ema[name].full_tensor()` of all ranks; one of FSDP1's parameters is written by each rank, to a file of its own, or
copied into a model under `FSDP.summon_full_params(model)`. The optimizer's state: FSDP1's
`FSDP.optim_state_dict(model, optimizer)`, or `get_optimizer_state_dict` with the options above, on all ranks.

## Versions and sources

Measured with torch 2.13, gloo, two ranks. Source: PyTorch documentation, torch.distributed.checkpoint.state_dict. Holds
for torch 2.4 and later.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    FULLY_SHARD,
    Ailment,
    Ended,
    Evidence,
    FileWritten,
    Finding,
    Fix,
    Joined,
    Severity,
    Sharded,
    Training,
    lint,
    place,
    watch,
)

from ..._frameworks.fsdp2 import OF_SHARDS, gathers
from ..._frameworks.fully_sharded import is_fully_sharded
from ..._scripts.source import target
from .._whole import WHOLE

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP837", Severity.ERROR)
FULL_TENSOR = "full_tensor"


COPY = Fix(
    "keep the copy of whole tensors: of DTensors, not of their local parts, and gather them on all ranks to save them",
    diff="-ema = {name: each.to_local().clone() for name, each in model.named_parameters()}\n"
    "+ema = {name: each.detach().clone() for name, each in model.named_parameters()}   # DTensors after fully_shard\n"
    "-if rank == 0:\n-    torch.save(ema, path)\n"
    "+whole = {name: each.full_tensor() for name, each in ema.items()}   # on all ranks\n"
    "+if rank == 0:\n+    torch.save(whole, path)",
)
COPY_OF_FLAT = Fix(
    "take the copy of whole parameters, on all ranks",
    diff="-    ema.update(model)\n"
    "+    with FSDP.summon_full_params(model, writeback=False):\n+        ema.update(model)",
)
OPTIMIZER = Fix(
    "gather the optimizer's state on all ranks, and let rank 0 write",
    diff="+state = FSDP.optim_state_dict(model, optimizer)   # on all ranks\n if rank == 0:\n"
    "-    torch.save(optimizer.state_dict(), path)\n+    torch.save(state, path)",
)
OPTIMIZER_OF_DTENSORS = Fix(
    "gather the optimizer's state on all ranks, and let rank 0 write",
    diff="+options = StateDictOptions(full_state_dict=True, cpu_offload=True)\n"
    "+state = get_optimizer_state_dict(model, optimizer, options=options)   # on all ranks\n if rank == 0:\n"
    "-    torch.save(optimizer.state_dict(), path)\n+    torch.save(state, path)",
)


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for a state that one rank alone gets of fully_shard's model, without the other shards, and saves."""
    for call in script.calls(*OF_SHARDS) if any(script.calls(FULLY_SHARD)) else ():
        guard = script.one_rank_guard(call)
        if guard is not None and gathers(script, call) is False and (save := _saved(script, call)) is not None:
            name, given = script.code(call.func), [script.code(each) for each in call.args]
            whole = f"{name}({', '.join([*given, 'options=options'])})"
            yield Finding(
                f"one rank alone calls {name}, which gives it the shards that it holds itself: the file has no others",
                (script.seen(call, "all shards, gathered on all ranks"), script.seen(guard.test), script.seen(save)),
                Fix(
                    "gather the shards on all ranks, and let this rank write",
                    diff="+options = StateDictOptions(full_state_dict=True, cpu_offload=True)\n"
                    f"+state = {whole}   # on all ranks\n if rank == 0:\n"
                    f"-    {script.code(call)}\n+    torch.save(state, path)",
                ),
                script.place(call),
            )


@lint
def asked_for_its_own(script: Script) -> Iterator[Finding]:
    """Look for the ``state_dict()`` of fully_shard's model, which one rank alone asks for and saves."""
    for call in script.nodes(ast.Call) if any(script.calls(FULLY_SHARD)) else ():
        match call.func:
            case ast.Attribute(attr="state_dict", value=model) if is_fully_sharded(script, model):
                guard = script.one_rank_guard(call)
            case _:
                continue
        if guard is not None and (save := _saved(script, call)) is not None:
            name = script.code(model)
            yield Finding(
                f"one rank alone saves {script.code(call)}, which gives it the shards that it holds itself: the file "
                "has no others",
                (script.seen(save, "all shards, gathered on all ranks"), script.seen(guard.test)),
                Fix(
                    "gather the shards on all ranks, and let this rank write",
                    diff="+options = StateDictOptions(full_state_dict=True, cpu_offload=True)\n"
                    f"+state = get_model_state_dict({name}, options=options)   # on all ranks\n if rank == 0:\n"
                    f"-    {script.code(call)}\n+    torch.save(state, path)",
                ),
                script.place(call),
            )


def _saved(script: Script, call: ast.Call) -> ast.Call | None:
    """Return the call of torch.save that is handed what a call returns, in the same function.

    None where that function gathers shards by itself.
    """
    name, around = target(script, call), script.function(call)
    if any(each.attr == FULL_TENSOR and script.function(each) is around for each in script.nodes(ast.Attribute)):
        return None
    for save in script.calls("torch.save"):
        given = [part for each in save.args[:1] for part in ast.walk(script.value(each))]
        if call in given:
            return save
        reads = {each.id for each in given if isinstance(each, ast.Name)}
        if name in reads and script.function(save) is around and save.lineno > call.lineno:
            return save
    return None


@watch(Ended)
def at_the_end(training: Training) -> Iterator[Finding]:
    """Look who has written parts."""
    written = [each for each in training.of(FileWritten) if each.shards or each.copied or each.moments]
    ranks = {each.rank for each in written}
    seen = training.by_rank(Joined)
    if len(seen) < 2 or len(ranks) != 1 or None in ranks:  # noqa: PLR2004 - nobody else here has a part
        return
    last = written[-1]
    of_class = any(each.api == "FullyShardedDataParallel" for each in training.of(Sharded))
    what, parts, fix = _kind(last, of_class=of_class)
    yield Finding(
        f"rank {last.rank} alone saves {what}: {last.path} holds its own parts, and nobody writes the others",
        (
            Evidence(parts, "whole tensors", f"rank {last.rank}, {last.site}"),
            Evidence(f"1 of {len(seen)} ranks here has saved shards", "all of them, or whole tensors", "all files"),
        ),
        fix,
        place(last.site, rank=last.rank),
    )


def _kind(written: FileWritten, *, of_class: bool) -> tuple[str, str, Fix]:
    """Return what was saved, how many parts it has, and the fix."""
    if written.moments and written.moments >= written.shards:
        seen = f"{written.moments} tensors of an optimizer's state belong to this rank's part of the parameters"
        return "the state of an optimizer of a sharded model", seen, OPTIMIZER if of_class else OPTIMIZER_OF_DTENSORS
    if written.shards:
        return "a sharded model", f"{written.shards} tensors are shards (DTensor)", WHOLE
    seen = f"{written.copied} tensors have the shape of this rank's part of the parameter of their name"
    return "a copy of a sharded model", seen, COPY_OF_FLAT if of_class else COPY
