"""What a watched process tells the monitor: plain facts, one dataclass an event; no torch.

Numbers that name an object (``model``, ``loader``, ``optimizer``) hold within one process: the first loader that a
process iterates is its loader 0. Ranks that run the same script number alike.
"""

from __future__ import annotations

from ddpdoctor.watch.events.base import Communication, Event, Site, place
from ddpdoctor.watch.events.data import DataSeen, EpochEnded, EpochSet, EpochStarted, OrderSeen, Sampler
from ddpdoctor.watch.events.files import FileRead, FileWritten, Loaded
from ddpdoctor.watch.events.frameworks import (
    AccumulationUnused,
    BackwardBypassed,
    FrameworkSeen,
    Monitored,
    PaddingGathered,
    ScheduleEnded,
    ShardedTwice,
    SteppedUnsynced,
)
from ddpdoctor.watch.events.hang import Doing, HeldAtEnd, LauncherWaits, Pending, Position, Sibling, Stalled, Worker
from ddpdoctor.watch.events.ledger import Exchange, ParametersHeld, StepFingerprinted
from ddpdoctor.watch.events.model import (
    Bypassed,
    EvaluationBegan,
    ManualReduction,
    OptimizerSeen,
    StepSampled,
    SyncSkipped,
    Wrapped,
    Wrapping,
)
from ddpdoctor.watch.events.process import (
    AsyncWorkDropped,
    BuildLockLeft,
    Ended,
    ErrorSeen,
    Failed,
    Joined,
    Joining,
    Left,
    PeerLost,
    Progress,
    Started,
)
from ddpdoctor.watch.events.sharding import ScaledClipped, Sharded, ShardsClipped, StaleParametersHeld, TensorParallel
from ddpdoctor.watch.events.steps import Equipped, Profiled, RankSteps, StepsTimed

__all__ = [
    "AccumulationUnused",
    "AsyncWorkDropped",
    "BackwardBypassed",
    "BuildLockLeft",
    "Bypassed",
    "Communication",
    "DataSeen",
    "Doing",
    "Ended",
    "EpochEnded",
    "EpochSet",
    "EpochStarted",
    "Equipped",
    "ErrorSeen",
    "EvaluationBegan",
    "Event",
    "Exchange",
    "Failed",
    "FileRead",
    "FileWritten",
    "FrameworkSeen",
    "HeldAtEnd",
    "Joined",
    "Joining",
    "LauncherWaits",
    "Left",
    "Loaded",
    "ManualReduction",
    "Monitored",
    "OptimizerSeen",
    "OrderSeen",
    "PaddingGathered",
    "ParametersHeld",
    "PeerLost",
    "Pending",
    "Position",
    "Profiled",
    "Progress",
    "RankSteps",
    "Sampler",
    "ScaledClipped",
    "ScheduleEnded",
    "Sharded",
    "ShardedTwice",
    "ShardsClipped",
    "Sibling",
    "Site",
    "StaleParametersHeld",
    "Stalled",
    "Started",
    "StepFingerprinted",
    "StepSampled",
    "SteppedUnsynced",
    "StepsTimed",
    "SyncSkipped",
    "TensorParallel",
    "Worker",
    "Wrapped",
    "Wrapping",
    "place",
]
