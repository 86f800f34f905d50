"""Data loaders: each pass over one, the order that it draws, and how many batches it gives."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch import ledger
from ddpdoctor.watch.contents import digest, sketch_of_batch
from ddpdoctor.watch.events import EpochEnded, EpochSet, EpochStarted, OrderSeen
from ddpdoctor.watch.loaders import describe, keeper, length, sampler_of, subgroups
from ddpdoctor.watch.passes import Pass
from ddpdoctor.watch.patch import Patch, patch
from ddpdoctor.watch.rehearse import cut
from ddpdoctor.watch.users import user_site

if TYPE_CHECKING:
    from ddpdoctor.watch.recorder import Recorder

INDICES = 256  # of a pass, that are told at most
DRAWN = 1024  # of a data set, whose ranks are told at the end of the first pass
BATCHES = 8  # of a pass, after which it is told; or two of each worker of an iterable data set
PASSES = 3  # of a loader, in which content is looked at
LOOKS = 64  # batches of a pass, within which one of a training has met a model that trains
TOLD = 16  # passes of a loader, whose order is told


def hook(recorder: Recorder) -> list[Patch]:
    """Replace DataLoader.__iter__, what its iterators draw and give, and DistributedSampler.set_epoch."""
    from torch.utils.data import DataLoader
    from torch.utils.data.dataloader import _BaseDataLoaderIter
    from torch.utils.data.distributed import DistributedSampler

    passes: dict[int, Pass] = {}
    pending: list[Pass] = []
    return [
        patch(DataLoader, "__iter__", _iterating(recorder, passes, pending)),
        patch(_BaseDataLoaderIter, "_next_index", _drawing(recorder, pending)),
        patch(_BaseDataLoaderIter, "__next__", _giving(recorder)),
        patch(DistributedSampler, "set_epoch", _setting(recorder)),
    ]


def _iterating(
    recorder: Recorder, passes: dict[int, Pass], pending: list[Pass]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def __iter__(loader: Any) -> Any:  # noqa: N807 - it stands in for one
            if not recorder.is_rank:
                return original(loader)
            recorder.safely(_start, recorder, passes, pending, loader)
            if pending and getattr(loader, "_iterator", None) is not None:  # persistent workers: it is used again
                loader._iterator.__dict__["_ddpdoctor_pass"] = pending[-1]  # noqa: SLF001 - torch's own, as above
            iterator = original(loader)
            if pending:
                iterator.__dict__.setdefault("_ddpdoctor_pass", pending.pop())
                pending.clear()
            return iterator

        return __iter__

    return wrap


def _start(recorder: Recorder, passes: dict[int, Pass], pending: list[Pass], loader: Any) -> None:
    import torch
    from torch.utils.data import IterableDataset

    number = recorder.number("loader", loader)
    before = passes.get(number)
    if before is not None:
        _end(recorder, before, complete=False)
    iterable = isinstance(loader.dataset, IterableDataset)
    samples = None if iterable else length(loader.dataset)
    this = passes[number] = Pass(
        number,
        before.number + 1 if before else 0,
        iterable,
        user_site(),
        digested=max(BATCHES, 2 * loader.num_workers if iterable else 0),
        stride=max(1, (samples or 0) // DRAWN),
        began=(began := recorder.progress()),
        epoch=before.epoch + (began > before.began) if before else 0,
    )
    if this.number == 0:
        describe(recorder, number, loader, iterable=iterable)
    this.told = this.number >= TOLD
    training = torch.is_grad_enabled() and recorder.models.training()
    recorder.emit(
        EpochStarted,
        loader=number,
        number=this.number,
        training=training,
        dataset=type(loader.dataset).__name__,
        length=samples,
        batches=None if iterable else length(loader),  # of an iterable one, torch would remember that it was asked
        batch_size=loader.batch_size,
        drop_last=bool(loader.drop_last),
        workers=loader.num_workers,
        iterable=iterable,
        sampler=None if iterable else sampler_of(recorder, loader),
        given=recorder.writer.counters[ledger.BATCHES],
        keeper=keeper(loader),
        subgroups=subgroups(),
        site=this.site,
    )
    recorder.over(this.epoch, training=training)
    pending[:] = [this]


def _drawing(recorder: Recorder, pending: list[Pass]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def _next_index(iterator: Any) -> Any:
            drawn = original(iterator)
            if recorder.is_rank:
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
    indices = [index for index in (drawn if isinstance(drawn, (list, tuple)) else [drawn]) if type(index) is int]
    if not indices:  # of numpy, say
        indices = [int(index) for index in drawn if isinstance(index, Integral)] if isinstance(drawn, list) else []
    if more:
        this.indices += indices
    if first:
        this.drawn += [index for index in indices if not index % this.stride]


def _tell(recorder: Recorder, this: Pass) -> None:
    if not this.told:
        this.told = True
        recorder.emit(
            OrderSeen,
            loader=this.loader,
            number=this.number,
            indices=tuple(this.indices[:INDICES]),
            digests=tuple(this.digests),
            trained=this.forwards > 0,
            whole=this.took_all,
            joins=this.joins,
            site=this.site,
        )


def _giving(recorder: Recorder) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def __next__(iterator: Any) -> Any:  # noqa: N807 - it stands in for one
            this = iterator.__dict__.get("_ddpdoctor_pass") if recorder.is_rank else None
            if this is None:
                return original(iterator)
            rehearsal = recorder.settings.rehearsal
            if rehearsal is not None and _feeds_a_model(recorder, this) and cut(this.batches, rehearsal):
                recorder.safely(_cut, recorder, this)
                raise StopIteration
            recorder.obey()
            if not this.told and this.forwards and this.batches >= this.digested:
                recorder.safely(_tell, recorder, this)
            try:
                batch = original(iterator)
            except StopIteration:
                recorder.safely(_end, recorder, this)
                raise
            except Exception as exc:
                recorder.explain(exc)
                raise
            this.batches += 1
            recorder.count(ledger.BATCHES)
            if not this.told and this.batches <= LOOKS:
                recorder.safely(_gave, recorder, this, batch)
            return batch

        return __next__

    return wrap


def _feeds_a_model(recorder: Recorder, this: Pass) -> bool:
    """Say whether a pass trains or evaluates: one that counts, or computes statistics, needs all of its batches."""
    import torch

    evaluates = bool(recorder.models.known) and not torch.is_grad_enabled() and not recorder.models.training()
    return evaluates or recorder.progress() > this.began


def _gave(recorder: Recorder, this: Pass, batch: Any) -> None:
    recorder.feed.gave(this, batch)
    if len(this.digests) < this.digested and this.number < PASSES:
        this.digests.append(digest(sketch_of_batch(batch)))


def _cut(recorder: Recorder, this: Pass) -> None:
    _end(recorder, this, complete=False)


def _end(recorder: Recorder, this: Pass, *, complete: bool = True) -> None:
    if not this.over:
        this.over = True
        _tell(recorder, this)
        recorder.emit(
            EpochEnded,
            loader=this.loader,
            number=this.number,
            batches=this.batches,
            complete=complete,
            trained=this.forwards > 0,
            drawn=tuple(this.drawn),
            stride=this.stride,
            site=this.site,
        )


def _setting(recorder: Recorder) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def set_epoch(sampler: Any, epoch: int) -> None:
            original(sampler, epoch)
            if recorder.is_rank:
                recorder.safely(_epoch_set, recorder, sampler, epoch)

        return set_epoch

    return wrap


def _epoch_set(recorder: Recorder, sampler: Any, epoch: int) -> None:
    recorder.emit(EpochSet, sampler=recorder.number("sampler", sampler), epoch=int(epoch))
