"""Samplers that the script goes through itself, without a loader: a pass over one is told like that of a loader."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch import event_log
from ddpdoctor.watch.events import EpochStarted, OrderSeen
from ddpdoctor.watch.rank.data.described import length, sampler_itself, subgroups
from ddpdoctor.watch.rank.data.passes import Pass
from ddpdoctor.watch.rank.hooks.data.samplers import INDICES
from ddpdoctor.watch.rank.patch import Patch, Wrap, patch
from ddpdoctor.watch.user_frames import frames, is_users, is_watchs, lines_of_the_users, user_site

if TYPE_CHECKING:
    from ddpdoctor.watch.rank.recorder import Recorder

TOLD = 16  # passes over a sampler
LISTED: type[Any] = type(iter([]))
BATCHED, LOADS = "torch.utils.data.sampler", "torch.utils.data.dataloader"


def hook(recorder: Recorder) -> list[Patch]:
    """Replace DistributedSampler.__iter__."""
    from torch.utils.data.distributed import DistributedSampler

    numbers: dict[int, int] = {}
    return [patch(DistributedSampler, "__iter__", _iterating(recorder, numbers))]


def _iterating(recorder: Recorder, numbers: dict[int, int]) -> Wrap:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def __iter__(sampler: Any) -> Any:  # noqa: N807 - it stands in for one
            drawn = original(sampler)
            if recorder.is_rank and type(drawn) is LISTED:
                recorder.safely(_begin, recorder, numbers, sampler, drawn)
            return drawn

        return __iter__

    return wrap


def _is_by_hand() -> bool:
    """Whether the user's own code asks for the order, or torch's BatchSampler for it, and no loader does."""
    around = [each for each in frames() if not is_watchs(each.f_code.co_filename)]
    asks = next((each for each in around if each.f_globals.get("__name__") != BATCHED), None)
    loads = any(each.f_globals.get("__name__") == LOADS for each in around)
    return asks is not None and is_users(asks.f_code.co_filename) and not loads


def _begin(recorder: Recorder, numbers: dict[int, int], sampler: Any, drawn: Any) -> None:
    import torch

    if not _is_by_hand():
        return
    number = recorder.number("loader", sampler)
    passed = numbers[number] = numbers.get(number, -1) + 1
    if passed >= TOLD:
        return
    this = Pass(number, passed, iterable=False, site=user_site(), digested=0, stride=1, by_hand=True)
    this.indices = list(itertools.islice(copy.copy(drawn), INDICES))  # what the script goes through stays as it is
    training = torch.is_grad_enabled() and recorder.models.training()
    recorder.emit(
        EpochStarted,
        loader=number,
        number=passed,
        training=training,
        dataset=type(sampler.dataset).__name__,
        length=length(sampler.dataset),
        batches=None,
        batch_size=None,
        drop_last=False,
        workers=0,
        iterable=False,
        sampler=sampler_itself(recorder, sampler),
        given=recorder.writer.counters[event_log.BATCHES],
        owning_library="",
        subgroups=subgroups(),
        sampler_site=recorder.built.site(sampler),
        callers=lines_of_the_users(),
        by_hand=True,
        site=this.site,
    )
    recorder.feed.goes_through(this, lambda: _tell(recorder, this))


def _tell(recorder: Recorder, this: Pass) -> None:
    recorder.emit(
        OrderSeen,
        loader=this.loader,
        number=this.number,
        indices=tuple(this.indices),
        trained=True,
        site=this.site,
    )
