"""One rank has loaded the weights, and FSDP keeps each rank's part of its own.

## What happens

DistributedDataParallel gives all ranks the weights of rank 0; FSDP does not, unless it is asked. Each rank keeps its
part of the model that it has itself. Where rank 0 alone has loaded the pretrained weights (to save memory on the host),
a half, or seven eighths, of what is trained are the random numbers of the other ranks. Nothing fails; the first loss is
that of a model that knows little.

## How to be sure

ddpdoctor reads a few numbers of each parameter before it is sharded. Here they differ between the ranks, the names and
shapes are the same, some ranks have loaded a state dict into them before, and others have not. Silent where all were
initialised, with other seeds: a model of random parts is a random model. Silent where a state dict is loaded after the
sharding, before the first step. In a source (`ddpdoctor lint`): the model gets memory by `to_empty()` after
`fully_shard`, one rank alone initialises it, and nothing in reach copies weights from rank to rank; or one rank alone
has a whole state for `set_model_state_dict`, without `broadcast_from_rank0`: the ranks then wait for each other.

## How to mend it

FSDP1: `FSDP(model, sync_module_states=True, ...)`, which copies the weights of rank 0; Accelerate calls it
`fsdp_sync_module_states`, and `fsdp_cpu_ram_efficient_loading` needs it. FSDP2: load on all ranks before
`fully_shard`, or afterwards:

    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(model, state if rank == 0 else {}, options=options)

## Versions and sources

Holds for torch 2.2 and later; seen with torch 2.13 CPU. Source: FullyShardedDataParallel's documentation,
`sync_module_states`; torch.distributed.checkpoint.state_dict, `StateDictOptions`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    FULLY_SHARD,
    ONE_RANK,
    OTHER_RANKS,
    Ailment,
    Evidence,
    Finding,
    Fix,
    Severity,
    ShardingBegan,
    Training,
    given,
    is_open,
    keyword,
    lint,
    place,
    watch,
)

from ..._frameworks.fsdp2 import STATE
from .._words import listed

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script

AILMENT = Ailment("DDP1584", Severity.ERROR)
FIXES = {
    "FullyShardedDataParallel": Fix(
        "let FSDP copy the weights of rank 0 to the other ranks",
        diff="-model = FSDP(model, ...)\n+model = FSDP(model, sync_module_states=True, ...)",
    ),
    "fully_shard": Fix(
        "give all ranks the weights of rank 0 once the model is sharded",
        diff=" fully_shard(model)\n+options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)\n"
        "+set_model_state_dict(model, state if dist.get_rank() == 0 else {}, options=options)",
    ),
}


@watch(ShardingBegan)
def while_training(event: ShardingBegan, training: Training) -> Iterator[Finding]:
    """Compare what the ranks had before the sharding, once all have told."""
    ranks = training.complete(ShardingBegan)
    alike = {(each.api, each.parameters, each.names) for each in ranks.values()}
    loaded = {rank: each for rank, each in sorted(ranks.items()) if each.loaded}
    others = {rank: each for rank, each in sorted(ranks.items()) if not each.loaded}
    if len(alike) != 1 or not loaded or not others:
        return
    first = next(iter(loaded.values()))
    if all(each.weights == first.weights for each in others.values()):
        return
    yield Finding(
        f"{listed([f'rank {rank}' for rank in loaded], 4)} loaded weights before {event.api}, "
        f"{listed([f'rank {rank}' for rank in others], 4)} did not, and has others: each keeps its part of its own",
        (
            *(
                Evidence(
                    f"a state dict was loaded into {each.loaded} of {each.parameters} parameters", "", f"rank {rank}"
                )
                for rank, each in list(loaded.items())[:4]
            ),
            *(
                Evidence("none was loaded, and the numbers differ", "the same weights on all ranks", f"rank {rank}")
                for rank, each in list(others.items())[:4]
            ),
        ),
        FIXES[event.api],
        place(first.site),
    )


INITIALISES = frozenset("reset_parameters init_weights _init_weights initialize_weights".split())
COPIES = (
    r"broadcast|sync_module_states|set_model_state_dict\(|set_state_dict\(|load_state_dict\(|distribute_tensor"
    r"|FullyShardedDataParallel|\bDDP\b|DistributedDataParallel|\.copy_\("
)
"""What occurs where the other ranks get their weights by another way."""


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for parts that one rank alone gives values, where each rank has its own."""
    shards = next(iter(script.calls(FULLY_SHARD)), None)
    empty = [each for each in script.nodes(ast.Call) if _called(each) == "to_empty"]
    if shards is None or not empty or project.does(COPIES):
        return
    for call in script.nodes(ast.Call):
        guard = script.one_rank_guard(call) if _called(call) in INITIALISES else None
        if guard is not None and call.lineno > empty[0].lineno > shards.lineno:
            yield Finding(
                f"one rank alone calls {_called(call)}, of its parts: the others' stay what to_empty() left",
                (
                    script.seen(call, "every rank initialises its own parts"),
                    script.seen(guard.test),
                    script.seen(empty[0]),
                ),
                Fix(
                    "initialise on all ranks",
                    diff=f"-if {script.code(guard.test)}:\n-    {script.code(call)}\n+{script.code(call)}",
                ),
                script.place(call),
            )


@lint
def not_sent(script: Script) -> Iterator[Finding]:
    """Look for a whole state that one rank alone has read, where torch is not told to send it to the others."""
    for call in script.calls(f"{STATE}.set_model_state_dict"):
        options = keyword(call, "options")
        made = script.held(options) if isinstance(options, (ast.Name, ast.Attribute)) else options
        if not isinstance(made, ast.Call) or is_open(made) or script.resolve(made.func) != f"{STATE}.StateDictOptions":
            continue
        whole, sends = (keyword(made, name) for name in ("full_state_dict", "broadcast_from_rank0"))
        state = given(call, 1, "model_state_dict")
        is_whole = isinstance(whole, ast.Constant) and whole.value is True
        if not is_whole or made.args or sends is not None or state is None or not _of_one_rank(script, state):
            continue
        yield Finding(
            f"one rank alone has read {script.code(state)}, and set_model_state_dict does not send it: the others have "
            "nothing to load, and do not come to the calls in which it is shared out",
            (script.seen(call, "broadcast_from_rank0=True"), *(() if made is options else (script.seen(made),))),
            Fix(
                "have torch send it from rank 0",
                diff=f"-{script.code(made)}\n+{script.code(made)[:-1].rstrip(', ')}, broadcast_from_rank0=True)",
            ),
            script.place(call),
        )


def _of_one_rank(script: Script, state: ast.expr) -> bool:
    """Whether a state is read on one rank, and is an empty one on the others."""
    held = script.held(state) if isinstance(state, ast.Name) else state
    if isinstance(held, ast.IfExp):
        empty = {ONE_RANK: held.orelse, OTHER_RANKS: held.body}.get(script.who(held.test) or "")
        return empty is not None and _is_empty(empty)
    if not isinstance(state, ast.Name):
        return False
    can = [each for each in script.can_hold(state) if each is not None]
    read = [each for each in can if not _is_empty(each)]
    return len(read) < len(can) and bool(read) and all(script.one_rank_guard(each) is not None for each in read)


def _is_empty(node: ast.expr) -> bool:
    """Whether an expression is None, or a dict without entries."""
    match node:
        case ast.Constant(value=None) | ast.Dict(keys=[]) | ast.Call(func=ast.Name(id="dict"), args=[], keywords=[]):
            return True
        case _:
            return False


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
