"""Checkpoint files: who writes which path, and when it is read."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch import event_log
from ddpdoctor.watch.events import FileRead, FileWritten
from ddpdoctor.watch.rank.data.reads import progress
from ddpdoctor.watch.rank.model.shards_in import copies_in, emptied_in, moments_in, shards_in
from ddpdoctor.watch.rank.patch import Patch, Wrap, patch
from ddpdoctor.watch.user_frames import calling_package

if TYPE_CHECKING:
    from ddpdoctor.watch.rank.recorder import Recorder

WHOLLY = 3
"""The stage of ZeRO that keeps a part of each parameter on each rank."""


def hook(recorder: Recorder) -> list[Patch]:
    """Replace torch.save and torch.load."""
    import torch

    return [patch(torch, "save", _saving(recorder)), patch(torch, "load", _loading(recorder))]


def _saving(recorder: Recorder) -> Wrap:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
            path = _path(f) if recorder.is_rank else None
            if path is None:
                return original(obj, f, *args, **kwargs)
            began = time.time()
            result = original(obj, f, *args, **kwargs)
            recorder.safely(_tell, recorder, path, began, obj)
            return result

        return save

    return wrap


def _tell(recorder: Recorder, path: str, began: float, thing: Any) -> None:
    """Record what was written, and what of it is this rank's part alone, or nothing at all."""
    steps = recorder.writer.counters[event_log.STEPS]
    looks = recorder.frameworks.engines.stage() == WHOLLY and not calling_package()
    emptied, tensors = emptied_in(thing) if looks else (0, 0)
    own = recorder.models.shards
    recorder.emit(
        FileWritten,
        path=path,
        began=began,
        steps=steps,
        shards=shards_in(thing),
        copied=copies_in(thing, own.own_parts()),
        moments=moments_in(thing, own.moments()),
        emptied=emptied,
        tensors=tensors,
        progress=progress(thing),
    )


def _loading(recorder: Recorder) -> Wrap:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def load(f: Any, *args: Any, **kwargs: Any) -> Any:
            path = _path(f)
            if recorder.is_rank and path is not None:
                recorder.emit(FileRead, path=path)
            try:
                loaded = original(f, *args, **kwargs)
            except Exception as exc:
                recorder.explain(exc, lambda: {"path": path or ""})
                raise
            if path is not None:
                recorder.safely(recorder.reads.add, path, loaded)
            return loaded

        return load

    return wrap


def _path(file: Any) -> str | None:
    try:
        return str(os.path.realpath(os.fspath(file)))
    except TypeError:  # a stream
        return None
