"""Data loaders: each pass over one, the order that it draws, and how many batches it gives."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ddpdoctor.watch import ledger
from ddpdoctor.watch.events import EpochEnded, EpochSet, EpochStarted, OrderSeen, Sampler
from ddpdoctor.watch.patch import Patch, patch
from ddpdoctor.watch.recorder import Recorder
from ddpdoctor.watch.rehearse import cut

INDICES = 256  # of an epoch, that ranks compare
DIGESTS = 4  # batches of an iterable data set
PASSES = 3  # of a loader, in which content is looked at


@dataclass(slots=True)
class Pass:
    """One pass over a loader."""

    loader: int
    number: int
    iterable: bool
    indices: list[int] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)
    batches: int = 0
    told: bool = False
    over: bool = False


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
    this = passes[number] = Pass(
        number, before.number + 1 if before else 0, isinstance(loader.dataset, IterableDataset)
    )
    training = torch.is_grad_enabled() and recorder.models.training()
    recorder.emit(
        EpochStarted,
        loader=number,
        number=this.number,
        training=training,
        dataset=type(loader.dataset).__name__,
        length=_length(loader.dataset),
        batches=_length(loader),
        batch_size=loader.batch_size,
        workers=loader.num_workers,
        iterable=this.iterable,
        sampler=None if this.iterable else _sampler(recorder, loader),
        keeper="" if type(loader).__module__.startswith("torch.") else type(loader).__module__.partition(".")[0],
    )
    recorder.over(this.number, training=training)
    pending[:] = [this]


def _sampler(recorder: Recorder, loader: Any) -> Sampler:
    """Read the sampler that decides: that of the batches where the user gave one of his own."""
    from torch.utils.data import BatchSampler

    sampler = loader.sampler
    if loader.batch_sampler is not None and type(loader.batch_sampler) is not BatchSampler:
        sampler = getattr(loader.batch_sampler, "sampler", None) or loader.batch_sampler
        if not hasattr(sampler, "num_replicas"):
            sampler = loader.batch_sampler
    facts: dict[str, Any] = {
        ours: value if isinstance(value := getattr(sampler, theirs, None), (int, type(None))) else None
        for ours, theirs in (
            ("replicas", "num_replicas"), ("rank", "rank"), ("shuffle", "shuffle"), ("seed", "seed"),
            ("epoch", "epoch"), ("drop_last", "drop_last"),
        )
    }  # fmt: skip
    return Sampler(
        number=recorder.number("sampler", sampler), kind=type(sampler).__name__, length=_length(sampler), **facts
    )


def _length(thing: Any) -> int | None:
    try:
        return len(thing)
    except (TypeError, NotImplementedError, AttributeError, ValueError):  # streams have none, some loaders raise
        return None


def _drawing(recorder: Recorder, pending: list[Pass]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def _next_index(iterator: Any) -> Any:
            drawn = original(iterator)
            if recorder.is_rank:
                this = iterator.__dict__.get("_ddpdoctor_pass") or (pending[-1] if pending else None)
                if this is not None and not this.iterable and not this.told:
                    recorder.safely(_drew, recorder, this, drawn)
            return drawn

        return _next_index

    return wrap


def _drew(recorder: Recorder, this: Pass, drawn: Any) -> None:
    indices = drawn if isinstance(drawn, (list, tuple)) else [drawn]
    this.indices += [index for index in indices if isinstance(index, int)]
    if len(this.indices) >= INDICES:
        _tell(recorder, this)


def _tell(recorder: Recorder, this: Pass) -> None:
    if not this.told:
        this.told = True
        recorder.emit(
            OrderSeen,
            loader=this.loader,
            number=this.number,
            indices=tuple(this.indices[:INDICES]),
            digests=tuple(this.digests),
            site=None,
        )


def _giving(recorder: Recorder) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def __next__(iterator: Any) -> Any:  # noqa: N807 - it stands in for one
            this = iterator.__dict__.get("_ddpdoctor_pass") if recorder.is_rank else None
            if this is None:
                return original(iterator)
            if recorder.settings.rehearsal is not None and cut(this.batches, recorder.settings.rehearsal):
                recorder.safely(_end, recorder, this)
                raise StopIteration
            recorder.obey()
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
            if this.iterable and not this.told and this.number < PASSES:
                recorder.safely(_gave, recorder, this, batch)
            return batch

        return __next__

    return wrap


def _gave(recorder: Recorder, this: Pass, batch: Any) -> None:
    this.digests.append(digest(batch))
    if len(this.digests) >= DIGESTS:
        _tell(recorder, this)


def _end(recorder: Recorder, this: Pass, *, complete: bool = True) -> None:
    if not this.over:
        this.over = True
        _tell(recorder, this)
        recorder.emit(EpochEnded, loader=this.loader, number=this.number, batches=this.batches, complete=complete)


def digest(batch: Any) -> str:
    """Give a short hash of what a batch begins with; nothing is read from a device other than the CPU."""
    return hashlib.blake2b(repr(_sketch(batch)).encode(), digest_size=8).hexdigest()


def _sketch(value: Any, depth: int = 0) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        shown = value.detach().flatten()[:64].tolist() if value.device.type == "cpu" and not value.is_sparse else []
        return (tuple(value.shape), shown)
    if depth > 3:  # noqa: PLR2004 - deeper than batches are
        return type(value).__name__
    if isinstance(value, dict):
        return [(str(key), _sketch(each, depth + 1)) for key, each in list(value.items())[:16]]
    if isinstance(value, (list, tuple)):
        return [_sketch(each, depth + 1) for each in value[:16]]
    return value if isinstance(value, (int, float, str, bytes, bool, type(None))) else type(value).__name__


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
