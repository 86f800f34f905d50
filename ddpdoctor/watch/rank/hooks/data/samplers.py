"""Samplers: the indices that a pass draws, and the epochs that a sampler is told."""

from __future__ import annotations

import time
from collections.abc import Callable
from numbers import Integral
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch.events import EpochSet

if TYPE_CHECKING:
    from ddpdoctor.watch.rank.data.passes import Pass
    from ddpdoctor.watch.rank.patch import Wrap
    from ddpdoctor.watch.rank.recorder import Recorder

INDICES = 256  # of a pass, that are told at most
DRAWN = 1024  # of a data set, whose ranks are told at the end of the first pass
SECONDS = 2.0  # for the rest of a pass that was cut short


def drawing(recorder: Recorder, pending: list[Pass]) -> Wrap:
    """Return the replacement of ``_next_index``, which takes note of what a pass draws."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def _next_index(iterator: Any) -> Any:
            drawn = original(iterator)
            if recorder.log is not None:
                this = iterator.__dict__.get("_ddpdoctor_pass") or (pending[-1] if pending else None)
                if this is not None and not this.iterable and not (this.told and this.number):
                    recorder.safely(_drew, this, drawn)
            return drawn

        return _next_index

    return wrap


def _drew(this: Pass, drawn: Any) -> None:
    more, first = len(this.indices) < INDICES, this.number == 0 and len(this.drawn) < 2 * DRAWN
    if not more and not first:
        return
    indices = drawn if isinstance(drawn, (list, tuple)) else [drawn]
    if {*map(type, indices)} != {int}:  # of numpy, say
        indices = [int(index) for index in indices if isinstance(index, Integral)]
    if more:
        this.indices += indices
    if first:
        this.drawn += [index for index in indices if not index % this.stride]


def drawn_to_the_end(iterator: Any) -> bool:
    """Draw what a pass that was cut short has not drawn yet; whether that was all, within the time.

    No sample is made of it. A sampler without a length can be endless: it is left alone.
    """
    try:
        batches = len(iterator._index_sampler)  # noqa: SLF001 - torch keeps it nowhere else
        until = time.monotonic() + SECONDS
        for _ in range(batches + 1):
            iterator._next_index()  # noqa: SLF001 - so that it is taken note of
            if time.monotonic() > until:
                return False
    except StopIteration:
        return True
    except Exception:  # noqa: BLE001 - the user's sampler, or its length, can raise anything
        return False
    return False


def setting(recorder: Recorder) -> Wrap:
    """Return the replacement of ``set_epoch``, which takes note of the epoch."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def set_epoch(sampler: Any, epoch: int) -> None:
            original(sampler, epoch)
            if recorder.is_rank:
                recorder.safely(_epoch_set, recorder, sampler, epoch)

        return set_epoch

    return wrap


def _epoch_set(recorder: Recorder, sampler: Any, epoch: int) -> None:
    recorder.emit(EpochSet, sampler=recorder.number("sampler", sampler), epoch=int(epoch))
