"""A wrapper, a sampler or a function of torch.distributed is given a keyword it does not have, or a text for a group.

## What happens

`DistributedDataParallel(model, device_id=rank)` raises "TypeError: DistributedDataParallel.__init__() got an unexpected
keyword argument 'device_id'": DDP wants `device_ids`, a list with the one GPU of the rank. `device_id` without the s
belongs to `init_process_group`, and takes a `torch.device`. A DistributedSampler calls the number of ranks
`num_replicas`. What a newer torch has is unknown to an older one.

`process_group` is a group that `new_group` made, not the name of a backend: FSDP raises "AttributeError: 'str' object
has no attribute 'rank'" over `process_group="nccl"`, DDP a TypeError. The backend is given to `init_process_group`.

## How to be sure

The traceback ends in the user's own call.

In a source (`ddpdoctor lint`): the name is that of torch, and the keyword is none that a torch had; or the group is a
text.

## How to mend it

The keyword as the installed torch spells it; `help(torch.nn.parallel.DistributedDataParallel)`.

## Versions and sources

Holds for torch 2.2 to 2.13, from whose signatures the names are. A keyword that a framework passes to a torch that is
too old or too new for it is another ailment (framework-torch-version-skew).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    DATA_PARALLEL,
    DDP,
    FSDP,
    INIT,
    Ailment,
    Finding,
    Fix,
    Record,
    Severity,
    keyword,
    lint,
    log_pattern,
)

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP590", Severity.ERROR)
NAMES = {
    "DistributedDataParallel": "module device_ids output_device dim broadcast_buffers init_sync process_group"
    " bucket_cap_mb find_unused_parameters check_reduction gradient_as_bucket_view static_graph"
    " delay_all_reduce_named_params param_to_hook_all_reduce mixed_precision device_mesh"
    " skip_all_reduce_unused_params bucket_cap_mb_list batched_grad_copy forward_sync_buffers",
    "DataParallel": "module device_ids output_device dim",
    "FullyShardedDataParallel": "module process_group sharding_strategy cpu_offload auto_wrap_policy"
    " backward_prefetch mixed_precision ignored_modules param_init_fn device_id sync_module_states forward_prefetch"
    " limit_all_gathers use_orig_params ignored_states device_mesh",
    "DistributedSampler": "dataset num_replicas rank shuffle seed drop_last",
    "DataLoader": "dataset batch_size shuffle sampler batch_sampler num_workers collate_fn pin_memory drop_last timeout"
    " worker_init_fn multiprocessing_context generator prefetch_factor persistent_workers pin_memory_device in_order"
    " follow_batch exclude_keys snapshot_every_n_steps",
    "init_process_group": "backend init_method timeout world_size rank store group_name pg_options device_id",
    "broadcast_object_list": "object_list src group device group_src",
    "all_gather_object": "object_list obj group",
    "gather_object": "obj object_gather_list dst group group_dst",
    "scatter_object_list": "scatter_object_output_list scatter_object_input_list src group group_src",
    "all_reduce": "tensor op group async_op",
    "all_gather": "tensor_list tensor group async_op",
    "broadcast": "tensor src group async_op group_src",
    "reduce": "tensor dst op group async_op group_dst",
    "gather": "tensor gather_list dst group async_op group_dst",
    "scatter": "tensor scatter_list src group async_op group_src",
    "barrier": "group async_op device_ids timeout",
    "new_group": "ranks timeout backend pg_options use_local_synchronization group_desc device_id sort_ranks",
}
MEANT = {
    ("DistributedDataParallel", "device_id"): "device_ids=[local_rank]",
    ("DistributedDataParallel", "device"): "device_ids=[local_rank]",
    ("DistributedDataParallel", "gpu"): "device_ids=[local_rank]",
    ("DistributedDataParallel", "gpu_ids"): "device_ids=[local_rank]",
    ("DistributedDataParallel", "rank"): "device_ids=[local_rank]",
    ("DataParallel", "device_id"): "device_ids=[0, 1]",
    ("FullyShardedDataParallel", "device_ids"): "device_id=local_rank",
    ("FullyShardedDataParallel", "fsdp_auto_wrap_policy"): "auto_wrap_policy=policy",
    ("FullyShardedDataParallel", "find_unused_parameters"): "use_orig_params=True",
    ("DataParallel", "gpu_ids"): "device_ids=[0, 1]",
    ("DistributedSampler", "world_size"): "num_replicas=world_size",
    ("DistributedSampler", "num_replica"): "num_replicas=world_size",
    **{
        (name, "source"): "src=..." for name in ("broadcast", "broadcast_object_list", "scatter", "scatter_object_list")
    },
    ("init_process_group", "device_ids"): 'device_id=torch.device("cuda", local_rank)',
}


@log_pattern(
    r"(?<![\w.])(DistributedDataParallel|FullyShardedDataParallel|DataParallel|DistributedSampler|init_process_group"
    r"|(?:all_)?gather_object|(?:broadcast|scatter)_object_list|all_reduce|all_gather|new_group)(?:\.__init__)?\(\)"
    r" got an unexpected keyword argument '(\w+)'"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Yield the name of the keyword that was meant, if the user's own code makes the call."""
    if record.frames and not record.frames[-1].is_users:
        return
    callee, wrong = match[1], match[2]
    names = NAMES[callee].split()
    close = difflib.get_close_matches(wrong, names, 1, 0.75)
    meant = MEANT.get((callee, wrong)) or (f"{close[0]}=..." if close else "")
    if wrong in names:
        fix = Fix(f"leave {wrong} out, or install a newer torch", command="pip install --upgrade torch")
    elif meant:
        fix = Fix(f"pass {meant.partition('=')[0]}", diff=f"-{callee}(..., {wrong}=...)\n+{callee}(..., {meant})")
    else:
        fix = Fix(f"leave {wrong} out: {callee} has {', '.join(names)}")
    yield Finding(
        f"{callee} has no keyword {wrong}" + (" in the torch installed here" if wrong in names else ""),
        (record.proof(match, meant or "a keyword of its signature"),),
        fix,
        record.place,
    )


ADDRESSES = {
    DDP: "DistributedDataParallel",
    DATA_PARALLEL: "DataParallel",
    FSDP: "FullyShardedDataParallel",
    "torch.utils.data.DistributedSampler": "DistributedSampler",
    "torch.utils.data.DataLoader": "DataLoader",
    INIT: "init_process_group",
    **{f"torch.distributed.{name}": name for name in NAMES if name[0].islower() and name != "init_process_group"},
}


OF_VENDORS = r"\btorch\.sagemaker\b"
"""A module that a vendor's build of torch has."""


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for keywords that no version of torch has had, where it is no vendor's torch, with more in it."""
    if re.search(OF_VENDORS, script.text):
        return
    for address, name in ADDRESSES.items():
        for call in script.calls(address):
            for word in call.keywords:
                if word.arg is not None and word.arg[0] != "_" and word.arg not in {*NAMES[name].split(), *GONE}:
                    meant = MEANT.get((name, word.arg)) or ", ".join(
                        difflib.get_close_matches(word.arg, NAMES[name].split(), n=1)
                    )
                    yield Finding(
                        f"{name} has no keyword {word.arg}: a TypeError",
                        (script.seen(word.value, meant or "a keyword that it has"),),
                        Fix(f"write {meant}" if meant else "leave it out"),
                        script.place(word.value),
                    )


@lint
def texts_in_source(script: Script) -> Iterator[Finding]:
    """Look for a text that a wrapper is given as its group."""
    for call in script.calls(DDP, FSDP):
        name = ADDRESSES[DDP if call in script.calls(DDP) else FSDP]
        given = keyword(call, "process_group")
        held = script.constant(given) if given is not None else None
        if given is not None and held is not None and isinstance(held.value, str):
            yield Finding(
                f"{name} is given a text as its process group, {held.value!r}: "
                f"{'an AttributeError' if name == ADDRESSES[FSDP] else 'a TypeError'}",
                (script.seen(given, "a group of new_group, or nothing: the one of init_process_group"),),
                Fix(
                    "leave it out: the backend is an argument of init_process_group, which comes before",
                    diff=f"+torch.distributed.init_process_group({held.value!r})   # once, before\n"
                    f"-{name}(model, process_group={held.value!r})\n+{name}(model)",
                ),
                script.place(given),
            )


GONE = ("group", "bucket_cap", "init_sync", "process_groups", "ignored_parameters")
"""Keywords of torch before 2.2, and of versions that are built with additions."""
