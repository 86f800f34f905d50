"""Wrapped models: what was wrapped, each forward through the wrapper, and load_state_dict."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddpdoctor.on_import import when_imported
from ddpdoctor.watch import event_log
from ddpdoctor.watch.events import CommHookGiven, Loaded, Wrapping
from ddpdoctor.watch.rank.evaluation.evaluations_by_hand import switching
from ddpdoctor.watch.rank.model.models import NAMES
from ddpdoctor.watch.rank.modes import is_training
from ddpdoctor.watch.rank.patch import Wrap, patch
from ddpdoctor.watch.rank.stopwatch import now
from ddpdoctor.watch.rehearsal.in_ranks import Rebuilt
from ddpdoctor.watch.user_frames import user_site

if TYPE_CHECKING:
    from types import ModuleType

    from ddpdoctor.watch.rank.recorder import Recorder

MOST = 100  # keys that an event names
REBUILT = "_ddpdoctor_rebuilt"


def hook(recorder: Recorder) -> list[Any]:
    """Replace DistributedDataParallel's constructor and forward, and Module.load_state_dict."""
    from torch.nn import Module
    from torch.nn.parallel import DistributedDataParallel

    counted = Counted(functools.partial(_begins, recorder))
    return [
        patch(DistributedDataParallel, "__init__", _wrapping(recorder)),
        patch(DistributedDataParallel, "forward", _forward(recorder, counted)),
        patch(DistributedDataParallel, "register_comm_hook", _hooking(recorder)),
        patch(DistributedDataParallel, "_set_params_and_buffers_to_ignore_for_model", _ignoring(recorder)),
        patch(Module, "load_state_dict", _loading(recorder)),
        patch(Module, "train", switching(functools.partial(recorder.safely, _switched, recorder))),
        when_imported("torch._dynamo.decorators", functools.partial(_leave_out, DistributedDataParallel, counted)),
    ]


@dataclass(slots=True)
class Counted:
    """What takes note of a forward that begins; a compiler looks at none of it once it is there."""

    begins: Callable[..., None]


def _leave_out(wrapper: Any, counted: Counted, compiler: ModuleType) -> None:
    """Let no compiler look at what stands in for the forward of a wrapper: it counts, and would be compiled each time.

    torch.compile goes on within it, at the module that is wrapped, as it does without the watch.
    """
    compiler.skip(wrapper.forward)
    counted.begins = compiler.disable(counted.begins)


def _switched(recorder: Recorder, module: Any) -> None:
    recorder.evaluations.switched(module)


def _wrapping(recorder: Recorder) -> Wrap:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def __init__(model: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - it stands in for one
            if recorder.is_rank:
                recorder.writer.communication(time.time(), "DistributedDataParallel()", "", "", user_site())
                recorder.safely(_tell_wrapping, recorder, args, kwargs)
            try:
                original(model, *args, **kwargs)
            except Exception as exc:
                recorder.explain(exc, lambda: {"parameters": tuple(name for name, _ in _to_be_wrapped(args, kwargs))})
                raise
            if recorder.is_rank:
                recorder.safely(recorder.models.wrapped, model)
                recorder.safely(lambda: recorder.frameworks.seen(wraps=True))
            if recorder.settings.rehearsal is not None and type(model).__init__ is __init__:
                again = {**kwargs, "find_unused_parameters": True}
                name = f"model{recorder.number('rebuilt', model)}"
                build = functools.partial(original, model, *args, **again)
                vars(model)[REBUILT] = Rebuilt(recorder.settings.session, name, build)

        return __init__

    return wrap


def _ignoring(recorder: Recorder) -> Wrap:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def _set_params_and_buffers_to_ignore_for_model(module: Any, *args: Any, **kwargs: Any) -> Any:
            recorder.models.ignoring[id(module)] = user_site()
            return original(module, *args, **kwargs)

        return _set_params_and_buffers_to_ignore_for_model

    return wrap


def _hooking(recorder: Recorder) -> Wrap:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def register_comm_hook(model: Any, state: object, hook: Any) -> None:
            original(model, state, hook)
            if recorder.is_rank:
                recorder.safely(
                    lambda: recorder.emit(CommHookGiven, name=getattr(hook, "__name__", type(hook).__name__))
                )

        return register_comm_hook

    return wrap


def _tell_wrapping(recorder: Recorder, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    shapes = tuple((name, tuple(getattr(each, "shape", ()))) for name, each in _to_be_wrapped(args, kwargs)[:NAMES])
    recorder.emit(Wrapping, parameters=shapes)


def _to_be_wrapped(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[str, Any]]:
    """List the parameters of what the constructor was given, by name, as DDP numbers them."""
    module: Any = args[0] if args else kwargs.get("module")
    ignored = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
    named = module.named_parameters() if hasattr(module, "named_parameters") else ()
    return [(name, each) for name, each in named if each.requires_grad and name not in ignored]


def _begins(recorder: Recorder, model: Any, args: Any, kwargs: Any, with_gradients: bool) -> None:  # noqa: FBT001 - the patch hands it on
    log = recorder.log
    if log is None:
        return
    log.counters[event_log.FORWARDS] += 1
    recorder.trains.works()
    recorder.models.forward(model, with_gradients=with_gradients)
    if recorder.evaluations.open and with_gradients and is_training(model):
        recorder.safely(recorder.evaluations.over)
    if recorder.feed.passes or recorder.feed.peeked:
        recorder.safely(recorder.feed.taken, model, (args, kwargs))
    if recorder.rows.active and with_gradients and (recorder.exchanges.windows or not recorder.rows.over):
        recorder.safely(_given, recorder, model, args)


def _forward(recorder: Recorder, counted: Counted) -> Wrap:
    from torch import is_grad_enabled

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def forward(model: Any, *args: Any, **kwargs: Any) -> Any:
            with_gradients = is_grad_enabled()
            counted.begins(model, args, kwargs, with_gradients)
            began = now()
            try:
                result = original(model, *args, **kwargs)
            except Exception as exc:
                recorder.explain(exc, lambda: _wrapped(recorder, model), step=True)
                rebuilt = vars(model).get(REBUILT)
                if rebuilt is None or not rebuilt.goes_on(model, exc):
                    raise
                recorder.safely(recorder.failures.borne, exc)
                return original(model, *args, **kwargs)
            if with_gradients:
                recorder.stopwatch.forward += now() - began
            return result

        return forward

    return wrap


def _given(recorder: Recorder, model: Any, args: tuple[Any, ...]) -> None:
    """Look at what a model is given, with gradients on, in a step that is compared or in the first steps."""
    recorder.ledger.given(args)
    if not recorder.rows.over and is_training(model):
        recorder.rows.taken(recorder.number("model", model), args)


def _wrapped(recorder: Recorder, model: Any) -> dict[str, Any]:
    return {"parameters": recorder.models.numbered(model), "changed": recorder.models.changed(model)}


def _loading(recorder: Recorder) -> Wrap:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def load_state_dict(module: Any, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
            own: list[str] = []
            if recorder.is_rank and recorder.reads.last:
                recorder.safely(_given_its_own, recorder, module, state_dict, own)
            try:
                result = original(module, state_dict, *args, **kwargs)
            except Exception as exc:
                recorder.explain(exc, lambda: {"path": recorder.reads.source(state_dict)})
                raise
            recorder.safely(recorder.models.shards.begun.loads, module)
            if recorder.is_rank and not own:
                recorder.safely(_loaded, recorder, module, state_dict, result)
            return result

        return load_state_dict

    return wrap


def _given_its_own(recorder: Recorder, module: Any, state_dict: Any, names: list[str]) -> None:
    """Tell of a load that gives a module the values that it has, after a file of other keys was read.

    ``names`` gets the keys of the module then.
    """
    import torch

    # Not by state_dict(), which gathers on all ranks where the module is sharded.
    own = dict((*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)))
    given = [(own.get(key), value) for key, value in state_dict.items() if isinstance(value, torch.Tensor)]
    is_own = all(mine is not None and mine.data_ptr() == value.data_ptr() for mine, value in given)
    read = recorder.reads.last[0]
    if not given or not is_own or any(key in own for key in read.first):
        return
    names += own
    recorder.emit(
        Loaded,
        kind=type(module).__name__,
        given=read.number,
        wanted=len(own),
        matched=0,
        missing=tuple(own)[:MOST],
        unexpected=read.first[:MOST],
        path=read.path,
        wrapped=False,
        own=True,
    )


def _loaded(recorder: Recorder, module: Any, state_dict: Any, result: Any) -> None:
    from torch.nn.parallel import DistributedDataParallel

    missing, unexpected = tuple(result.missing_keys), tuple(result.unexpected_keys)
    matched = len(state_dict) - len(unexpected)
    wrappers = (model.wrapper() for model in recorder.models.alive())
    recorder.emit(
        Loaded,
        kind=type(module).__name__,
        given=len(state_dict),
        wanted=matched + len(missing),
        matched=matched,
        missing=missing[:MOST],
        unexpected=unexpected[:MOST],
        path=recorder.reads.source(state_dict),
        wrapped=isinstance(module, DistributedDataParallel)
        or any(wrapper is not None and wrapper.module is module for wrapper in wrappers),
    )
