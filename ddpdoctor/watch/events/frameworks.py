"""What the frameworks that people train with are told, and what the user's code does past them."""

from __future__ import annotations

from dataclasses import dataclass

from ddpdoctor.watch.events.base import Event

RESUMED = "resumed"  # no tag of a checkpoint, but what the Trainer looks into a folder for

SEEDABLE = "SeedableRandomSampler"  # of Accelerate: it has a seed of its own, which it shuffles with
DISPATCHER, SHARD = "DataLoaderDispatcher", "IterableDatasetShard"
"""What of Accelerate shares out a stream: ``ShardedTwice.shards``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkSeen(Event):
    """A framework has made the process group, or wrapped a model; ``site`` is the user's line that called it.

    ``asked`` names another way to shard the training that it was asked for and does not follow: ``FSDP``. ``stage`` is
    that of DeepSpeed's ZeRO.
    """

    framework: str
    wraps: bool = False
    asked: str = ""
    stage: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BackwardBypassed(Event):
    """The user's code has called backward() of a tensor itself, where ``right`` would do what is ``left_out``."""

    framework: str
    right: str
    left_out: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SteppedUnsynced(Event):
    """An optimizer that Accelerate does not know steps within accumulate(), between two averagings of gradients."""

    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AccumulationUnused(Event):
    """An Accelerator divides each loss by ``steps``, and every one of ``backwards`` made a step of an optimizer."""

    steps: int
    backwards: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Monitored(Event):
    """A framework decides by a metric: ``value`` is what this rank has, None where it has none of that name.

    ``by`` is what decides, ``step`` the training's step, ``file`` the user's file that computes the metric.
    """

    name: str
    by: str
    value: float | None
    step: int
    file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSynced(Event):
    """A rank is about to log a metric of this name for the first time, with ``sync_dist=True``, at ``site``."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddingGathered(Event):
    """An evaluation gathered the last batch of all ranks, ``rows``, of which the first ``kept`` are new.

    ``samples`` is the length of the data set.
    """

    rows: int
    kept: int
    samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenForOne(Event):
    """Accelerate takes a rank for the only one, in a group of ``world_size``; ``site`` is its ``prepare``."""

    world_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleEnded(Event):
    """The learning rates of a schedule have been 0 for the last ``idle`` of the calls that were ``made`` of ``step``.

    Each call makes as many steps of the schedule as there are ``ranks``.
    """

    made: int
    idle: int
    ranks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedTwice(Event):
    """A loader whose ``sampler`` has a share for each of ``ranks`` is iterated through ``shards`` of a framework's."""

    sampler: str
    shards: str
    ranks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAsked(Event):
    """A line of the user's, ``site``, has set the ``flag`` by which a framework ends the training on this rank.

    Or the one by which the Trainer evaluates, or gathers the loss to log it, after this step.

    ``forwards`` of wrapped models, and ``steps`` of optimizers, are those that the rank had made then. ``by`` names a
    handler of the framework's own that has set it, and asks no other rank.
    """

    framework: str
    flag: str
    forwards: int
    steps: int
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSteppedSeldom(Event):
    """DeepSpeed's engine, which counts ``every`` calls of step() as one, was called once for as many ``backwards``.

    ``steps`` are the calls, ``updates`` the changes of the model that they led to.
    """

    every: int
    backwards: int
    steps: int
    updates: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineBoundaryAwaited(Event):
    """The script has asked at ``site`` whether DeepSpeed's engine, which was never stepped, is at a boundary.

    It was told ``asked`` times that it is not; the engine counts ``every`` calls of step() from one to the next.
    """

    every: int
    asked: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineNotStepped(Event):
    """DeepSpeed's engine made ``backwards`` and no step; its ``optimizer``, a kind, was stepped at ``site``."""

    optimizer: str
    backwards: int
    stage: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSteppedTwice(Event):
    """A schedule that DeepSpeed's engine steps in step(), at ``site``, had moved on by itself ``times`` in a row."""

    kind: str
    times: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineClipped(Event):
    """The script clipped ``parameters`` of DeepSpeed's engine, none of which has a gradient under ZeRO ``stage``."""

    parameters: int
    stage: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LossDivided(Event):
    """A loss that ``framework`` divides by ``steps`` of accumulation had been divided by as many before."""

    framework: str
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LossOverAllItems(Event):
    """The Trainer's loss was divided by the items of all ranks, and not multiplied by the number of ``ranks``.

    ``site`` is where the script's own ``compute_loss`` begins.
    """

    ranks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SavesInto(Event):
    """A framework is about to save, for the time ``number``, into a ``folder``, under a ``tag``.

    Of the transformers Trainer it is the folder in which all ranks look for the best checkpoint at the end, or, with
    the tag RESUMED, for the one that they resume from;
    ``torch.distributed.checkpoint`` counts as a framework here.
    """

    framework: str
    number: int
    folder: str
    tag: str = ""
