"""Data loaders: each pass over one, the order that it draws, and how many batches it gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch import event_log
from ddpdoctor.watch.events import EpochEnded, EpochStarted, OrderSeen
from ddpdoctor.watch.rank.data.dataset_digest import digest, plain, sketch_of_batch, sums_of_rows
from ddpdoctor.watch.rank.data.described import (
    deciding,
    describe,
    draws_at,
    length,
    owning_library,
    sampler_of,
    subgroups,
)
from ddpdoctor.watch.rank.data.generators import drawers
from ddpdoctor.watch.rank.data.passes import Pass
from ddpdoctor.watch.rank.evaluation.loops import is_without_gradients
from ddpdoctor.watch.rank.hooks.data.samplers import DRAWN, INDICES, drawing, drawn_to_the_end, setting
from ddpdoctor.watch.rank.hooks.parallel.deepspeed import hook_when_imported
from ddpdoctor.watch.rank.patch import Patch, Wrap, patch
from ddpdoctor.watch.rank.stopwatch import now
from ddpdoctor.watch.rehearsal.in_ranks import cut
from ddpdoctor.watch.user_frames import lines_of_the_users, user_site

if TYPE_CHECKING:
    from ddpdoctor.watch.events import Site
    from ddpdoctor.watch.rank.recorder import Recorder

BATCHES = 8  # of a pass, after which it is told; or two of each worker of an iterable data set
PASSES = 3  # of a loader, in which content is looked at
LOOKS = 64  # batches of a pass, within which one of a training has met a model that trains
SUMMED = 100_000  # samples of an iterable data set, whose checksums are looked at
LEAST = 64  # checksums that are told
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
        patch(_BaseDataLoaderIter, "_next_index", drawing(recorder, pending)),
        patch(_BaseDataLoaderIter, "__next__", _giving(recorder)),
        patch(DistributedSampler, "set_epoch", setting(recorder)),
    ]


def _iterating(recorder: Recorder, passes: dict[int, Pass], pending: list[Pass]) -> Wrap:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def __iter__(loader: Any) -> Any:  # noqa: N807 - it stands in for one
            if not recorder.is_rank:
                return original(loader)
            recorder.safely(_start, recorder, passes, pending, loader)
            if pending and getattr(loader, "_iterator", None) is not None:  # persistent workers: it is used again
                loader._iterator.__dict__["_ddpdoctor_pass"] = pending[-1]  # noqa: SLF001 - torch's own, as above
            began = now()
            iterator = original(loader)
            if pending:
                recorder.stopwatch.waited(began, pending[-1])
            if pending:
                iterator.__dict__.setdefault("_ddpdoctor_pass", pending.pop())
                pending.clear()
            return iterator

        return __iter__

    return wrap


def _start(recorder: Recorder, passes: dict[int, Pass], pending: list[Pass], loader: Any) -> None:
    import torch
    from torch.utils.data import IterableDataset

    hook_when_imported(recorder)
    recorder.feed.forget()
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
        drawers=before.drawers if before else drawers(loader, iterable=iterable),
    )
    if this.number == 0:
        describe(recorder, number, loader, iterable=iterable)
    this.told = this.number >= TOLD
    with_gradients = torch.is_grad_enabled() and not is_without_gradients(this.site)
    this.trains = training = with_gradients and recorder.models.training()
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
        given=recorder.writer.counters[event_log.BATCHES],
        owning_library=owning_library(loader),
        subgroups=subgroups(),
        persistent=bool(getattr(loader, "persistent_workers", False)),
        changed=_changed(loader, before, this),
        loader_site=recorder.built.site(loader),
        sampler_site=None if iterable else _sampler_site(recorder, loader),
        callers=lines_of_the_users(),
        site=this.site,
    )
    if training:
        recorder.evaluations.over()
    elif (recorder.models.any() or recorder.ledger.accounts) and not with_gradients:
        recorder.evaluations.began(this)
        recorder.models.evaluates()
    elif with_gradients:
        recorder.rows.loads()
    recorder.frameworks.iterates(loader)
    recorder.limits.epoch(this.epoch, training=training)
    pending[:] = [this]


def _sampler_site(recorder: Recorder, loader: Any) -> Site | None:
    """Return where the sampler that decides was made, or where the user's own class draws."""
    sampler = deciding(loader)
    return recorder.built.site(sampler) or draws_at(type(sampler))


def _changed(loader: Any, before: Pass | None, this: Pass) -> tuple[str, ...]:
    """Return what was changed of a data set, and its samples depend on, though workers that live on have copies."""
    if not getattr(loader, "persistent_workers", False):
        return ()
    this.plain = plain(loader.dataset)
    last = before.plain if before else this.plain
    return tuple(sorted(name for name, value in this.plain.items() if last.get(name, value) != value))


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


def _giving(  # noqa: C901 - a function more would be one more for each batch
    recorder: Recorder,
) -> Wrap:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def __next__(iterator: Any) -> Any:  # noqa: N807 - it stands in for one
            log = recorder.log
            this = iterator.__dict__.get("_ddpdoctor_pass") if log is not None else None
            if log is None or this is None:
                return original(iterator)
            rehearsal = recorder.settings.rehearsal
            if rehearsal is not None and _feeds_a_model(recorder, this) and cut(this.batches, rehearsal):
                recorder.safely(_cut, recorder, this, iterator)
                raise StopIteration
            if log.counters[event_log.STOP]:
                recorder.limits.obey()
            if not this.told and this.forwards and this.batches >= this.digested:
                recorder.safely(_tell, recorder, this)
            if this.trains and (recorder.ledger.awaits_batch or not this.told):
                recorder.safely(_asked, recorder, this)
            began = now()
            try:
                batch = original(iterator)
            except StopIteration:
                recorder.safely(_end, recorder, this)
                raise
            except Exception as exc:
                recorder.explain(exc, step=True)
                raise
            recorder.stopwatch.waited(began, this)
            this.batches += 1
            log.counters[event_log.BATCHES] += 1
            if this.batches <= LOOKS or this.iterable:
                recorder.safely(_gave, recorder, this, batch, iterator)
            return batch

        return __next__

    return wrap


def _asked(recorder: Recorder, this: Pass) -> None:
    """Look at what there is before the loader makes a batch of the training's."""
    if recorder.ledger.awaits_batch:
        recorder.ledger.before_batch()
    if not this.told:
        recorder.feed.draws.asked(this)


def _feeds_a_model(recorder: Recorder, this: Pass) -> bool:
    """Whether a pass trains or evaluates: one that counts, or computes statistics, needs all of its batches."""
    import torch

    evaluates = recorder.models.any() and not torch.is_grad_enabled() and not recorder.models.training()
    return evaluates or recorder.progress() > this.began


def _gave(recorder: Recorder, this: Pass, batch: Any, iterator: Any) -> None:
    if this.iterable and this.batches <= BATCHES:
        recorder.feed.streams.gave(this.loader, this.number, this.batches, iterator, batch)
    if this.iterable and not this.number and this.summed <= SUMMED:
        _sum_up(this, batch)
    if this.told or this.batches > LOOKS:
        return
    recorder.feed.gave(this, batch)
    if this.trains and this.forwards:
        recorder.rows.by_loader()
    if len(this.digests) < this.digested and this.number < PASSES:
        this.digests.append(digest(sketch_of_batch(batch)))


def _sum_up(this: Pass, batch: Any) -> None:
    """Keep those checksums of the samples of a pass that are the least: ranks with the same samples keep the same."""
    sums = sums_of_rows(batch)
    this.summed += len(sums)
    this.sums.update(sums)
    if len(this.sums) > 2 * LEAST:
        this.sums = set(sorted(this.sums)[:LEAST])


def _cut(recorder: Recorder, this: Pass, iterator: Any) -> None:
    if this.number == 0 and this.forwards and not this.over:
        _tell(recorder, this)  # as far as the next passes come, with which it is compared
        this.all_drawn = drawn_to_the_end(iterator)
    _end(recorder, this, complete=False)


def _end(recorder: Recorder, this: Pass, *, complete: bool = True) -> None:
    if not this.over:
        this.over, this.complete = True, complete
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
            all_drawn=this.all_drawn or complete,
            samples=this.summed if this.summed <= SUMMED else 0,
            least=tuple(sorted(this.sums)[:LEAST]),
            site=this.site,
        )
