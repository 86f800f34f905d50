"""A distributed call is reached before init_process_group.

## What happens

DistributedDataParallel, DistributedSampler without rank and size, barrier, get_rank and SyncBatchNorm in training
need the default process group: "Default process group has not been initialized". The script was started without its
launcher or its `--launcher` option and skips the initialization, or it makes the call above the line that
initializes.

## How to be sure

The line of the traceback that is yours; `torch.distributed.is_initialized()` is False there. If the
last frames are those of a batch normalization, the layers are the cause (syncbn-without-process-group).

In a source (`ddpdoctor lint`): the call stands before `init_process_group` in the same block; or the process that
has spawned the ranks, which is no rank, destroys the group behind `mp.spawn`; or a model is wrapped on each way
through the `__main__` block of a file in whose reach nothing makes a group.

## How to mend it

Start with torchrun and call init_process_group first; a script that also runs alone guards the call.
Frameworks with a launcher option (mmcv, mmengine) want `--launcher pytorch`.

## Versions and sources

Source: torch.distributed.distributed_c10d, _get_default_group. Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    COLLECTIVES,
    DDP,
    INIT,
    Ailment,
    Ambiguity,
    Evidence,
    Failed,
    Finding,
    Fix,
    Left,
    Log,
    Record,
    Severity,
    Training,
    keyword,
    lint,
    log_pattern,
    place,
    watch,
)

from ._nowhere import spawned_without_group
from ._ranks_started import destroyed, has_group
from ._uninitialized import SYNC_LAYERS, UNINITIALIZED, sync_layers

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script

AILMENT = Ailment("DDP407", Severity.ERROR)
PACKAGES = ("mmcv", "mmengine", "mmdet", "mmseg", "mmpose", "mmrotate", "mmpretrain", "mmcls")
OPEN_MMLAB = "|".join((*(rf"\b{package}\w*[/\\.]" for package in PACKAGES), "detectron2", "--launcher"))


@log_pattern(UNINITIALIZED, context=(SYNC_LAYERS, OPEN_MMLAB))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Yield the name of the call, unless layers that synchronize made it."""
    if sync_layers(record, log):
        return
    layers = re.search(OPEN_MMLAB, record.text) or log.first(OPEN_MMLAB)
    where = record.users
    yield Finding(
        f"{where.function} makes a distributed call where there is no process group: before init_process_group, or "
        "after destroy_process_group"
        if where
        else "a distributed call is reached where there is no process group: before init_process_group, or after "
        "destroy_process_group",
        (record.proof(match, "torch.distributed.is_initialized() is True"),),
        Fix(
            "initialize first, in a process that a launcher started"
            + ("; these frameworks want --launcher pytorch" if layers else ""),
            command="torchrun --standalone --nproc_per_node=2 train.py" + (" --launcher pytorch" if layers else ""),
            diff='+torch.distributed.init_process_group("nccl")\n model = DistributedDataParallel(model)',
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "the script was started without its launcher, and skips the initialization",
                "the model has SyncBatchNorm layers, and one process trains it alone",
            ),
            "python -X faulthandler train.py 2>&1 | grep -iE 'batchnorm|SyncBN'   # a hit: the layers",
        )
        if not where
        else None,
    )


@log_pattern(r"AssertionError: (?P<name>[\w ,()-]{0,60}?(?:parallel|embedding)[\w ,()-]{0,40}group) is not initialized")
def of_megatron(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read which of Megatron's own groups is asked for before they are made."""
    where = record.users
    yield Finding(
        f"{where.function if where else 'the program'} asks for Megatron's {match['name']} before it is made",
        (record.proof(match, "parallel_state.model_parallel_is_initialized() is True"),),
        Fix(
            "make the groups first, in a process that a launcher started",
            command="torchrun --nproc_per_node=8 train.py",
            diff='+torch.distributed.init_process_group("nccl")\n'
            "+parallel_state.initialize_model_parallel(tensor_model_parallel_size=1)   # megatron.core\n"
            " model = build_model()",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "initialize_model_parallel has not been called yet in this process",
                "it was called in another copy of the module: Megatron is imported by two names, or from two folders",
            ),
            'python -c \'import sys, train; print([n for n in sys.modules if n.endswith(("parallel_state", "mpu"))])\'',
        ),
    )


@watch(Failed)
def after_its_end(event: Failed, training: Training) -> Iterator[Finding]:
    """Look whether there was a process group, and the script has destroyed it."""
    left = training.of(Left, pid=event.pid, ended=False)
    if not left or left[-1].time > event.time or not re.search(UNINITIALIZED, event.text):
        return
    yield Finding(
        f"a distributed call comes after destroy_process_group, which was called at {left[-1].site}",
        (
            Evidence(event.said, "no distributed call after destroy_process_group", f"rank {event.rank}"),
            Evidence(f"destroy_process_group at {left[-1].site}", "", f"rank {event.rank}"),
        ),
        Fix(
            "destroy the process group last, behind all that communicates",
            diff="-dist.destroy_process_group()\n evaluate(model)\n+dist.destroy_process_group()",
        ),
        place(event.site, rank=event.rank),
    )


DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
NEED_GROUP = (DDP, "torch.distributed.get_rank", "torch.distributed.get_world_size", *sorted(COLLECTIVES))


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for what needs the process group, in the lines before the one that makes it."""
    for init in script.calls(INIT):
        statement = script.tree.statement(init)
        block = script.tree.block(statement) if statement is not None else []
        before = block[: block.index(statement)] if statement in block else []
        before = [each for each in before if not isinstance(each, DEFINITIONS)]
        for call in (node for each in before for node in script.inside(each) if isinstance(node, ast.Call)):
            if script.resolve(call.func) not in NEED_GROUP or script.guards(call) != script.guards(init):
                continue
            if call.lineno < init.lineno and not any(isinstance(each, ast.Try) for each in script.tree.above(call)):
                yield Finding(
                    f"{script.code(call.func)} is called before init_process_group: a ValueError",
                    (script.seen(call), script.seen(init, "first")),
                    Fix("make the process group first"),
                    script.place(call),
                )


MAKES_GROUP = (
    r"init_process_group|\bspawn\b|start_processes|init_device_mesh|init_distributed|init_dist|Accelerator|PartialState"
    r"|deepspeed|horovod|Fabric|Trainer\b|idist\b|init_ddp|setup_ddp|ddp_setup|setup_distributed|distributed_init"
)
"""What makes a process group, or can, by its name."""


@lint
def made_nowhere(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a model that is wrapped in each run of a file, where nothing in its reach makes a group."""
    if script.is_test or script.path.endswith(".ipynb") or script.frameworks:
        return
    for call in script.calls(DDP):
        if not _runs_always(script, call) or project.does(MAKES_GROUP) or project.unknown():
            continue
        yield Finding(
            f"{script.code(call.func)} is called without a process group: init_process_group stands nowhere",
            (script.seen(call, 'torch.distributed.init_process_group("nccl") before it'),),
            Fix("make the process group first", diff='+torch.distributed.init_process_group("nccl")'),
            script.place(call),
        )


def _runs_always(script: Script, node: ast.AST, depth: int = 3) -> bool:
    """Whether each run of the file as a script comes to a node, by its ``__main__`` block: no test stands before it.

    What stands outside that block also runs where another file imports it, which can have made the group before.
    """
    tests = [script.code(each.test) for each in script.guards(node)]
    if any("__main__" not in each for each in tests) or any(
        isinstance(each, ast.Try) for each in script.tree.above(node)
    ):
        return False
    function = script.function(node)
    if function is None:
        return bool(tests)
    return depth > 0 and any(_runs_always(script, each, depth - 1) for each in script.sites(function))


@lint
def in_what_is_spawned(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a model that is wrapped in a function which mp.spawn starts, where nothing in reach makes a group."""
    if script.is_test or script.frameworks or project.unknown():
        return
    for call, spawn in spawned_without_group(script, project):
        yield Finding(
            f"{script.code(call.func)} is called in a process that has no process group: a ValueError",
            (
                script.seen(call, 'torch.distributed.init_process_group("nccl", rank=rank, world_size=size) before it'),
                script.seen(spawn),
            ),
            Fix(
                "make the process group first, in each process",
                diff='+os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "29500"\n'
                '+torch.distributed.init_process_group("nccl", rank=rank, world_size=size)',
            ),
            script.place(call),
        )
        return


SPAWN = "torch.multiprocessing.spawn"


@lint
def where_ranks_are_started(script: Script) -> Iterator[Finding]:
    """Look for a process that starts the ranks, is none itself, and destroys the group behind them."""
    for spawn in script.calls(SPAWN):
        statement = script.tree.statement(spawn)
        block = script.tree.block(statement) if statement is not None else []
        join = keyword(spawn, "join")
        if join is not None and not (isinstance(join, ast.Constant) and join.value is True):
            continue
        if statement not in block or has_group(script, spawn):
            continue
        for later in block[block.index(statement) + 1 :]:
            match later:
                case ast.Expr(value=ast.Call() as call) if (started := destroyed(script, call)) is not None:
                    yield Finding(
                        f"{script.code(call.func)} is called by the process that has started the ranks, and has no "
                        "process group: an AssertionError",
                        (
                            script.seen(call, "in each rank, at the end of what is spawned"),
                            script.seen(spawn),
                            started,
                        ),
                        Fix("leave it to the ranks", diff=f"-{script.code(call)}"),
                        script.place(call),
                    )
