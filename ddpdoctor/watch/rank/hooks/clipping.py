"""Gradients that are clipped: shards by torch's own function, and gradients that a GradScaler has not unscaled yet."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch.events import ScaledClipped, ShardsClipped, ShardsScaled
from ddpdoctor.watch.rank.patch import Patch, Wrap, patch
from ddpdoctor.watch.user_frames import user_site

if TYPE_CHECKING:
    from ddpdoctor.watch.events import Site
    from ddpdoctor.watch.rank.recorder import Recorder

TOLD = 3  # calls that are told
LOOKS = 6  # at what is clipped under a scaler
TINY = 1e-3  # of the factor: whoever multiplies the limit by it is above that


@dataclass(slots=True)
class Clipped:
    """The last clipping of a process: identities of the parameters, what it computed and was given, and the line."""

    parameters: frozenset[int]
    norm: float
    most: float
    site: Site | None


@dataclass(slots=True)
class Clippings:
    """How often shards were clipped, how often that was looked at, and what was since the last step of a scaler."""

    shards: int = 0
    looks: int = 0
    last: list[Clipped] = field(default_factory=list)
    active: weakref.WeakSet[Any] = field(default_factory=weakref.WeakSet)
    """The scalers that have scaled a loss."""
    stepping: weakref.WeakSet[Any] = field(default_factory=weakref.WeakSet)
    """The scalers that have stepped an optimizer."""


def hook(recorder: Recorder) -> list[Patch]:
    """Replace what clips by a norm, and GradScaler's scale and step."""
    import torch
    from torch.nn.utils import clip_grad

    clippings = Clippings()
    patches = []
    if (scaler := getattr(torch.amp, "GradScaler", None)) is not None:  # of torch 2.3 and later
        patches.append(patch(scaler, "scale", _scaling(recorder, clippings)))
        patches.append(patch(scaler, "step", _stepping(recorder, clippings)))
    if hasattr(clip_grad, "_clip_grads_with_norm_"):  # what clip_grad_norm_ calls, by whatever name it is called
        patches.append(patch(clip_grad, "_clip_grads_with_norm_", _clipping(recorder, clippings)))
    return patches


def _clipping(recorder: Recorder, clippings: Clippings) -> Wrap:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def _clip_grads_with_norm_(parameters: Any, max_norm: float, total_norm: Any, *args: Any, **kwargs: Any) -> Any:
            if recorder.is_rank:
                parameters = [parameters] if hasattr(parameters, "grad") else list(parameters)
                recorder.safely(_clipped, recorder, clippings, parameters, max_norm, total_norm)
                recorder.safely(recorder.frameworks.engines.clipped, parameters)
                if recorder.exchanges.windows and not hasattr(total_norm, "placements"):
                    recorder.safely(recorder.ledger.clips, parameters, total_norm, max_norm, user_site())
            return original(parameters, max_norm, total_norm, *args, **kwargs)

        return _clip_grads_with_norm_

    return wrap


def _clipped(recorder: Recorder, clippings: Clippings, parameters: list[Any], most: float, norm: Any) -> None:
    flat = clippings.shards < TOLD and any(map(recorder.models.shards.is_flat, parameters))
    if not flat and not (clippings.active and clippings.looks < LOOKS):
        return
    if hasattr(norm, "placements"):
        return  # of a DTensor: reading it would be a collective
    if flat:
        clippings.shards += 1
        recorder.emit(ShardsClipped, number=clippings.shards, norm=float(norm), most=float(most))
    if clippings.active and clippings.looks < LOOKS:  # reading the norm waits for the device
        clippings.looks += 1
        ours = frozenset(map(id, parameters))
        clippings.last.append(Clipped(ours, float(norm), float(most), user_site()))


def _scaling(recorder: Recorder, clippings: Clippings) -> Wrap:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def scale(scaler: Any, *args: Any, **kwargs: Any) -> Any:
            if recorder.is_rank and scaler not in clippings.active and scaler.is_enabled():
                clippings.active.add(scaler)
            return original(scaler, *args, **kwargs)

        return scale

    return wrap


def _stepping(recorder: Recorder, clippings: Clippings) -> Wrap:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            if recorder.is_rank and clippings.last:
                recorder.safely(_look, recorder, clippings, scaler, optimizer)
            if recorder.is_rank and scaler not in clippings.stepping:
                clippings.stepping.add(scaler)
                recorder.safely(_first, recorder, scaler, optimizer)
            return original(scaler, optimizer, *args, **kwargs)

        return step

    return wrap


def _first(recorder: Recorder, scaler: Any, optimizer: Any) -> None:
    """Record that a scaler of one process is to decide over a part of a sharded gradient, the first time alone."""
    kind = type(scaler)
    held = (each for group in optimizer.param_groups for each in group["params"])
    is_torchs = kind.__name__ == "GradScaler" and kind.__module__.startswith("torch.")
    if is_torchs and scaler.is_enabled() and any(map(recorder.models.shards.is_flat, held)):
        recorder.emit(ShardsScaled, scale=float(scaler.get_scale()))


def _look(recorder: Recorder, clippings: Clippings, scaler: Any, optimizer: Any) -> None:
    """Record a clipping of gradients that this step is still to unscale."""
    held = {id(each) for group in optimizer.param_groups for each in group["params"]}
    ours = [each for each in clippings.last if each.parameters & held]
    clippings.last = [each for each in clippings.last if each not in ours]
    states = getattr(scaler, "_per_optimizer_states", {})
    stage = getattr(states[id(optimizer)]["stage"], "name", "") if id(optimizer) in states else "READY"
    scale = float(scaler.get_scale())
    clipped = next((each for each in ours if each.most < min(each.norm, TINY * scale)), None)
    if stage == "READY" and clipped is not None:
        recorder.emit(ScaledClipped, norm=clipped.norm, most=clipped.most, scale=scale, site=clipped.site)
