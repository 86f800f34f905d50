"""FSDP: what FullyShardedDataParallel and fully_shard are given, each forward of it, and who gathers shards."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ddpdoctor.on_import import Awaited, when_imported
from ddpdoctor.watch import event_log
from ddpdoctor.watch.events import Sharded, ShardedInside
from ddpdoctor.watch.rank.model import tied
from ddpdoctor.watch.rank.model.beginnings import are_synchronised
from ddpdoctor.watch.rank.model.shards import is_dtensor
from ddpdoctor.watch.rank.patch import Wrap, patch
from ddpdoctor.watch.user_frames import user_site

if TYPE_CHECKING:
    from types import ModuleType

    from ddpdoctor.watch.rank.recorder import Recorder

CLASS = "torch.distributed.fsdp.fully_sharded_data_parallel"
FUNCTION = ("torch.distributed.fsdp._fully_shard._fsdp_state", "torch.distributed._composable.fsdp._fsdp_state")
"""Where fully_shard keeps what it knows of a module, in torch from 2.6 and in 2.4 and 2.5."""
GATHERING = tuple(f"{name.rpartition('.')[0]}._fsdp_param_group" for name in FUNCTION)
DTENSOR = ("torch.distributed.tensor._api", "torch.distributed._tensor.api")


def hook(recorder: Recorder) -> list[Awaited]:
    """Replace the constructor and forward of FullyShardedDataParallel, and what fully_shard calls, once imported."""

    def of_class(module: ModuleType) -> None:
        wrapper = module.FullyShardedDataParallel
        recorder.late.append(patch(wrapper, "__init__", _wrapping(recorder)))
        recorder.late.append(patch(wrapper, "forward", _forward(recorder)))

    def of_function(module: ModuleType) -> None:
        state = getattr(module, "FSDPState", None)
        if hasattr(state, "init") and hasattr(state, "_root_pre_forward"):
            recorder.late.append(patch(state, "init", _sharding(recorder)))
            recorder.late.append(patch(state, "_root_pre_forward", _root_forward(recorder)))

    def of_gathering(module: ModuleType) -> None:
        if hasattr(module, "foreach_all_gather"):
            recorder.late.append(patch(module, "foreach_all_gather", _all_gather(recorder)))
            recorder.last_looks.append(lambda: _gathered(recorder))

    def of_dtensor(module: ModuleType) -> None:
        recorder.late.append(patch(module.DTensor, "redistribute", _gathering(recorder)))

    return [
        when_imported(CLASS, of_class),
        *(when_imported(name, of_function) for name in FUNCTION),
        *(when_imported(name, of_gathering) for name in GATHERING),
        *(when_imported(name, of_dtensor) for name in DTENSOR),
    ]


def _all_gather(recorder: Recorder) -> Wrap:
    from torch.compiler import is_compiling

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def foreach_all_gather(parameters: Any, group: Any, *args: Any, **kwargs: Any) -> Any:
            begun = original(parameters, group, *args, **kwargs)
            if not is_compiling() and recorder.is_rank:
                shards = recorder.models.shards
                recorder.safely(shards.gathers.take, recorder, parameters, group, shards.alive)
            return begun

        return foreach_all_gather

    return wrap


def _gathered(recorder: Recorder) -> None:
    recorder.models.shards.gathers.end(recorder, recorder.models.shards.alive)


def _gathering(recorder: Recorder) -> Wrap:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def redistribute(tensor: Any, device_mesh: Any = None, placements: Any = None, **kwargs: Any) -> Any:
            if recorder.is_rank:
                recorder.safely(_record_gathering, recorder, tensor, placements)
            return original(tensor, device_mesh, placements, **kwargs)

        return redistribute

    return wrap


def _record_gathering(recorder: Recorder, tensor: Any, placements: Any) -> None:
    """Record a communication that torch begins in C++, where no method of a process group is called from Python."""
    for dimension, (held, wanted) in enumerate(zip(tensor.placements, placements or (), strict=False)):
        if held != wanted and not held.is_replicate():
            group = tensor.device_mesh.get_group(dimension).group_name
            recorder.writer.communication(time.time(), "redistribute", group, str(list(tensor.shape)), user_site())


def _wrapping(recorder: Recorder) -> Wrap:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def __init__(model: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - it stands in for one
            given: Any = args[0] if args else kwargs.get("module")
            named = list(given.named_parameters()) if recorder.is_rank and hasattr(given, "named_parameters") else []
            if named:
                recorder.safely(tied.look, recorder, recorder.models.shards, given, "FullyShardedDataParallel")
            if named and not are_synchronised(args, kwargs):
                recorder.safely(_begins, recorder, "FullyShardedDataParallel", named)
            shapes = [tuple(each.shape) for _, each in named]  # with use_orig_params they become parts of themselves
            original(model, *args, **kwargs)
            if recorder.is_rank:
                recorder.safely(_wrapped, recorder, model, named, shapes)

        return __init__

    return wrap


def _begins(recorder: Recorder, api: str, named: list[tuple[str, Any]]) -> None:
    shards = recorder.models.shards
    shards.begun.take(api, [(name, each) for name, each in named if not is_dtensor(each) and not shards.is_flat(each)])


def _wrapped(recorder: Recorder, model: Any, named: list[tuple[str, Any]], shapes: list[tuple[int, ...]]) -> None:
    import torch.distributed as dist

    shards = getattr(getattr(model, "sharding_strategy", None), "name", "") != "NO_SHARD"
    ours = tuple(dist.get_process_group_ranks(model.process_group))
    group = () if getattr(model, "_inter_node_pg", None) is not None else ours  # of hybrid sharding, one part
    recorder.models.shards.take(model, "FullyShardedDataParallel", named, shapes)
    ignored = {id(each) for each in getattr(model, "_ignored_params", ())}
    recorder.emit(
        Sharded,
        api="FullyShardedDataParallel",
        kind=type(model.module).__name__,
        group=group,
        shards=shards,
        ignored=len(ignored),
    )
    if shards and len(ours) > 1:
        recorder.models.shards.are_flat(each for each in model.parameters() if id(each) not in ignored)


def _sharding(recorder: Recorder) -> Wrap:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def init(state: Any, modules: Any, *args: Any, **kwargs: Any) -> Any:
            if recorder.is_rank:
                recorder.safely(_sharded, recorder, modules)
            return original(state, modules, *args, **kwargs)

        return init

    return wrap


def _sharded(recorder: Recorder, modules: Any) -> None:
    for module in modules if isinstance(modules, (list, tuple)) else (modules,):
        _look_around(recorder, module)
        tied.look(recorder, recorder.models.shards, module, "fully_shard")
        named = list(module.named_parameters())
        _begins(recorder, "fully_shard", named)
        recorder.models.shards.take(module, "fully_shard", named, [tuple(each.shape) for _, each in named])


def _look_around(recorder: Recorder, module: Any) -> None:
    """Record a module that an outer one, which fully_shard was given before it, has left nothing of."""
    shards = recorder.models.shards
    already = sum(map(is_dtensor, module.parameters()))
    if not already or _is_given(module):
        return
    outer = next(
        (root for root in shards.alive() if _is_given(root) and any(each is module for each in root.modules())), None
    )
    if outer is not None:
        site = shards.sites.get(outer)
        kind = type(module).__name__
        recorder.emit(ShardedInside, kind=kind, outer=_kind(outer), already=already, sharded=site)


def _is_given(module: Any) -> bool:
    """Whether fully_shard has been given this module itself."""
    return hasattr(module, "_get_fsdp_state")


def _forward(recorder: Recorder) -> Wrap:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def forward(model: Any, *args: Any, **kwargs: Any) -> Any:
            if recorder.is_rank:
                recorder.safely(_taken, recorder, model, (args, kwargs))
            try:
                return original(model, *args, **kwargs)
            except Exception as exc:
                recorder.explain(exc, step=True)
                raise

        return forward

    return wrap


def _root_forward(recorder: Recorder) -> Wrap:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def _root_pre_forward(state: Any, module: Any, *given: Any) -> Any:
            if recorder.is_rank:
                recorder.safely(_tell_sharded, recorder, module)
                recorder.safely(_taken, recorder, module, given)
            return original(state, module, *given)

        return _root_pre_forward

    return wrap


def _tell_sharded(recorder: Recorder, module: Any) -> None:
    """Record once an outermost module that fully_shard was given, when its mesh is known."""
    shards = recorder.models.shards
    if shards.is_root(module) and module not in shards.told:
        shards.told.add(module)
        group = next((ranks for each in module.modules() if (ranks := _mesh_of(each))), ())
        shards_them, left = len(group) != 1, sum(not is_dtensor(each) for each in module.parameters())
        recorder.emit(Sharded, api="fully_shard", kind=_kind(module), group=group, shards=shards_them, ignored=left)


def _mesh_of(module: Any) -> tuple[int, ...]:
    """Return the ranks that a module's parameters are sharded over; empty where fully_shard was not given it."""
    state = module._get_fsdp_state() if hasattr(module, "_get_fsdp_state") else None  # noqa: SLF001 - said nowhere else
    groups = getattr(state, "_fsdp_param_groups", None) or [getattr(state, "_fsdp_param_group", None)]
    mesh = getattr(getattr(groups[0], "mesh_info", None), "mesh", None)
    return tuple(mesh.mesh.flatten().tolist()) if mesh is not None else ()


def _kind(module: Any) -> str:
    """Return the name of the class that the user has written: fully_shard puts FSDP before it."""
    return type(module).__name__.removeprefix("FSDP")


def _taken(recorder: Recorder, module: Any, given: Any) -> None:
    if recorder.models.shards.is_root(module):
        recorder.count(event_log.FORWARDS)
        recorder.feed.taken(module, given)
