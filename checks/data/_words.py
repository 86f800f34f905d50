"""What several checks of loaders say, or ask, in the same way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpdoctor.check import ACCELERATE, EpochStarted, Fix, NotRun, Place

if TYPE_CHECKING:
    from ddpdoctor.check import Index, LoaderExam, Training

SHOWN = 8
STREAM = Fix(
    "let each rank, and each worker, take its part of the stream",
    diff=" def __iter__(self):\n+    info = get_worker_info()\n"
    "+    workers, worker = (info.num_workers, info.id) if info else (1, 0)\n"
    "+    part = dist.get_rank() * workers + worker\n"
    "+    yield from itertools.islice(self.samples(), part, None, dist.get_world_size() * workers)",
)


ROWS = Fix(
    "build a DataLoader around it, with a DistributedSampler; of a list that is short, give each rank its own entries",
    diff="+sampler = DistributedSampler(data)\n+loader = DataLoader(data, batch_size=..., sampler=sampler)\n"
    "+batches = batches[dist.get_rank()::dist.get_world_size()]   # of a list",
)


def shown(indices: tuple[Index, ...], number: int = SHOWN) -> str:
    """Return the first indices."""
    more = ", ..." if len(indices) > number else ""
    return f"[{', '.join(str(index) for index in indices[:number])}{more}]"


def counted(number: int, noun: str) -> str:
    """Return ``1 sample`` or ``3 samples``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}{'es' if noun.endswith('ch') else 's'}"


def at(loader: LoaderExam, *, sampler: bool = False) -> Place:
    """Return the place where the sampler or the loader is constructed, as far as it is known."""
    line = (loader.source.sampler if sampler else None) or loader.source.loader
    if line is not None:
        return Place(file=line[0], line=line[1])
    return Place(file=loader.file) if loader.file else Place()


def shared_out(training: Training, fix: Fix) -> Fix:
    """Return how each rank gets its share of a loader: the framework's word where one is in use, else this one."""
    framework = training.framework
    if framework is None or not framework.loader:
        return fix
    if not framework.splits_streams and any(each.iterable for each in training.of(EpochStarted)):
        return STREAM
    return Fix(f"have {framework.name} share the loader out", diff=framework.loader)


def sharer(training: Training) -> str:
    """Return the name of what shares loaders out around Accelerate's batch sampler."""
    return training.framework.name if training.framework is not None else ACCELERATE.name


def told_epoch(training: Training, fix: Fix) -> Fix:
    """Return how the sampler learns the epoch: the framework's word where it has one, else this one."""
    framework = training.framework
    if framework is None or not framework.epoch:
        return fix
    return Fix("tell the sampler the epoch, in each one", diff=framework.epoch)


def unless_a_framework_splits(loader: LoaderExam) -> None:
    """Leave alone what a framework changes before the training begins.

    Raises:
        NotRun: the training imports one that puts samplers of its own into loaders.
    """
    if loader.source.frameworks:
        raise NotRun(f"{loader.source.frameworks[0]}, which the training imports, splits the data by itself")
