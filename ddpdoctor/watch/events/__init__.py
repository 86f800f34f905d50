"""What a watched process tells the monitor: plain facts, one dataclass an event; no torch.

Numbers that name an object (``model``, ``loader``, ``optimizer``) hold within one process: the first loader that a
process iterates is its loader 0. Ranks that run the same script number alike.
"""

from __future__ import annotations

from ddpdoctor.watch.events.base import Communication, Event, Site, place
from ddpdoctor.watch.events.data import DataSeen, EpochEnded, EpochSet, EpochStarted, OrderSeen, Sampler
from ddpdoctor.watch.events.files import FileRead, FileWritten, Loaded
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
from ddpdoctor.watch.events.steps import Equipped, Profiled, RankSteps, StepsTimed

__all__ = [
    "AsyncWorkDropped",
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
    "HeldAtEnd",
    "Joined",
    "Joining",
    "LauncherWaits",
    "Left",
    "Loaded",
    "ManualReduction",
    "OptimizerSeen",
    "OrderSeen",
    "ParametersHeld",
    "PeerLost",
    "Pending",
    "Position",
    "Profiled",
    "Progress",
    "RankSteps",
    "Sampler",
    "Sibling",
    "Site",
    "Stalled",
    "Started",
    "StepFingerprinted",
    "StepSampled",
    "StepsTimed",
    "SyncSkipped",
    "Worker",
    "Wrapped",
    "Wrapping",
    "place",
]
