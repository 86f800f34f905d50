"""Everything that the author of a check needs; a check imports from here alone.

A check's file reads top to bottom like an article: the docstring is the page, its first line the title; then the
ailment; then the facets. The file's name is the slug and its folder the area, so they cannot drift apart::

    AILMENT = Ailment("DDP501", Severity.ERROR)

    @probe                       # asked by ddpdoctor check
    def in_a_small_job(model: ModelExam) -> Iterator[Finding]: ...

    @watch(Failed)               # shown each event of this type, by ddpdoctor run and install()
    def while_training(event: Failed, training: Training) -> Iterator[Finding]: ...

    @lint                        # shown each Python file, by ddpdoctor lint
    def in_source(script: Script) -> Iterator[Finding]: ...

    @log_pattern(r"Expected to have finished reduction in the prior iteration")     # ddpdoctor explain
    def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]: ...

Where the same thing is seen and exactly one of several checks may speak of it, they are a family: a module of their
folder (``_name.py``) has an enum of what it can be and a function that decides, and offers a decorator of its own,
made of ``watch`` or ``log_pattern`` and a ``Claim`` (see ``checks/collectives/_hangs.py``). Each member is claimed by
exactly one check, or the checks do not load.

What a facet needs is named by its parameters (``ddpdoctor.facets.INPUTS``); a name that nobody supplies is refused
when the check is loaded. A facet yields findings. It raises ``NotRun("why")`` where there is nothing to look at.

Names of heavier rooms are imported when they are first asked for: ``explain`` loads no probe.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ddpdoctor.facets import Ailment, BadTarget, Claim, Facet, Marker, NotRun, Role, lint, log_pattern, probe, watch
from ddpdoctor.findings import Ambiguity, Edit, Evidence, Finding, Fix, Place, Severity, Table
from ddpdoctor.logs.records import Frame, Kind, Log, Record
from ddpdoctor.shell import shell_join, shell_quote
from ddpdoctor.suggest import closest

if TYPE_CHECKING:
    from ddpdoctor.checkpoint import CheckpointFile, Format, StateDict, subscript
    from ddpdoctor.checkpoint.compare import (
        KeyDifference,
        ModelEntry,
        closest_difference,
        outermost,
        shifted,
        wrapped_keys,
    )
    from ddpdoctor.checkpoint.keys import (
        AVERAGED_COUNTER,
        WRAPPER_NAMES,
        Strip,
        assumed_strip,
        is_averaged,
        is_flat,
        possible_strips,
        wrappers_in,
    )
    from ddpdoctor.cluster.client import OTHER_JOB, Try
    from ddpdoctor.cluster.cluster import DDP_STEP, GRADIENTS, LAYOUT, MODEL_STEP, Cluster, Joint
    from ddpdoctor.cluster.host import Host, host_from
    from ddpdoctor.cluster.launch import several_hosts
    from ddpdoctor.cluster.matrix import Link
    from ddpdoctor.cluster.protocol import WRONG_TOKEN
    from ddpdoctor.cluster.suspects import Fault, Suspect, suspects
    from ddpdoctor.examine.blame import own_frames
    from ddpdoctor.examine.loader.exam import LoaderExam
    from ddpdoctor.examine.loader.facts import Index, Order, RankLoader, RankSampler, same_order
    from ddpdoctor.examine.loader.shares import SHARED, Shares, compare_shares, each_two, likeness, shared_part
    from ddpdoctor.examine.model.exam import ModelExam
    from ddpdoctor.examine.model.facts import TOO_SLOW, Buffer, Description, Difference, Parameter, is_expanded
    from ddpdoctor.examine.model.steps import BAD_DTYPE, EXPANDED, KNOWN_ERRORS, READY_TWICE, UNUSED
    from ddpdoctor.frameworks import ACCELERATE, FRAMEWORK_WORDS, LIGHTNING, Framework
    from ddpdoctor.host.backend_network import gloo_address, nccl_interface, nccl_interfaces
    from ddpdoctor.host.connections import Peer
    from ddpdoctor.host.facts import Facts
    from ddpdoctor.host.gpus import NO_DRIVER, Gpu, Gpus, visible_gpus
    from ddpdoctor.host.limits import human_size
    from ddpdoctor.host.network import Network, is_loopback, try_connect
    from ddpdoctor.host.stack import in_backward
    from ddpdoctor.host.variables import misspelt
    from ddpdoctor.jobs.outcome import Died, Outcome, Raised, Returned, Stuck
    from ddpdoctor.jobs.pool import Jobs
    from ddpdoctor.lint.examine import Around
    from ddpdoctor.source.launching.launch_script import LaunchScript
    from ddpdoctor.source.launching.launchers import Launch
    from ddpdoctor.source.lines import (
        attribute_set_at,
        called_at,
        calls_at,
        is_cut_to_length,
        logged_at,
        tree_of,
        withs_around,
    )
    from ddpdoctor.source.reach.exits import LoopLeft, loop_left
    from ddpdoctor.source.reach.guards import tests_around
    from ddpdoctor.source.reach.handlers import Handler, handler_around
    from ddpdoctor.source.reach.rank_facts import OTHER_RANKS, Fact
    from ddpdoctor.source.reach.ranks import (
        RankBlock,
        are_alternatives,
        condition_of_callers,
        is_about_rank,
        one_rank_only,
        other_ranks_only,
        rank_block,
        rank_condition,
    )
    from ddpdoctor.source.script import COLLECTIVES, DDP, FRAMEWORKS, INIT, Script, given, is_open, keyword
    from ddpdoctor.source.tree import Tree, dotted
    from ddpdoctor.source.wrapped import Wrap
    from ddpdoctor.watch.blocks import Block
    from ddpdoctor.watch.events import (
        AccumulationUnused,
        AsyncWorkDropped,
        BackwardBypassed,
        BuildLockLeft,
        Bypassed,
        CallsTimed,
        Clip,
        Communication,
        DataSeen,
        Doing,
        Drew,
        Ended,
        EpochEnded,
        EpochSet,
        EpochStarted,
        ErrorSeen,
        Evaluated,
        EvaluationBegan,
        Exchange,
        Failed,
        FileGrew,
        FileOpened,
        FileRead,
        FileWritten,
        FrameworkSeen,
        HeldAtEnd,
        Joined,
        Joining,
        LauncherWaits,
        Left,
        Loaded,
        ManualReduction,
        Monitored,
        NeverStepped,
        Numbered,
        OptimizerLoaded,
        OptimizerSeen,
        OrderSeen,
        PaddingGathered,
        ParametersHeld,
        PeerLost,
        Position,
        Profiled,
        Progress,
        RankSteps,
        Sampler,
        ScaledClipped,
        ScheduleEnded,
        Sharded,
        ShardedTwice,
        ShardsClipped,
        Site,
        StaleParametersHeld,
        Stalled,
        Started,
        StepFingerprinted,
        SteppedUnsynced,
        StepSampled,
        StepsAtEnd,
        StepsTimed,
        StopAsked,
        SyncSkipped,
        TensorParallel,
        ThreadFailed,
        TimedCall,
        Used,
        Wrapped,
        Wrapping,
        place,
    )
    from ddpdoctor.watch.training import Training

__all__ = [
    "ACCELERATE",
    "AVERAGED_COUNTER",
    "BAD_DTYPE",
    "COLLECTIVES",
    "DDP",
    "DDP_STEP",
    "EXPANDED",
    "FRAMEWORKS",
    "FRAMEWORK_WORDS",
    "GRADIENTS",
    "INIT",
    "KNOWN_ERRORS",
    "LAYOUT",
    "MODEL_STEP",
    "LIGHTNING",
    "NO_DRIVER",
    "OTHER_JOB",
    "OTHER_RANKS",
    "READY_TWICE",
    "SHARED",
    "TOO_SLOW",
    "UNUSED",
    "WRAPPER_NAMES",
    "WRONG_TOKEN",
    "AccumulationUnused",
    "Ailment",
    "Ambiguity",
    "Around",
    "AsyncWorkDropped",
    "BackwardBypassed",
    "BadTarget",
    "Block",
    "Buffer",
    "BuildLockLeft",
    "Bypassed",
    "CallsTimed",
    "CheckpointFile",
    "Claim",
    "Clip",
    "Cluster",
    "Communication",
    "DataSeen",
    "Description",
    "Died",
    "Difference",
    "Doing",
    "Drew",
    "Edit",
    "Ended",
    "EpochEnded",
    "EpochSet",
    "EpochStarted",
    "ErrorSeen",
    "Evaluated",
    "EvaluationBegan",
    "Evidence",
    "Exchange",
    "Facet",
    "Fact",
    "Facts",
    "Failed",
    "Fault",
    "FileGrew",
    "FileOpened",
    "FileRead",
    "FileWritten",
    "Finding",
    "Fix",
    "Format",
    "Frame",
    "Framework",
    "FrameworkSeen",
    "Gpu",
    "Gpus",
    "Handler",
    "HeldAtEnd",
    "Host",
    "Index",
    "Jobs",
    "Joined",
    "Joining",
    "Joint",
    "KeyDifference",
    "Kind",
    "Launch",
    "LaunchScript",
    "LauncherWaits",
    "Left",
    "Link",
    "Loaded",
    "LoaderExam",
    "Log",
    "LoopLeft",
    "ManualReduction",
    "Marker",
    "ModelEntry",
    "ModelExam",
    "Monitored",
    "Network",
    "NeverStepped",
    "NotRun",
    "Numbered",
    "OptimizerLoaded",
    "OptimizerSeen",
    "Order",
    "OrderSeen",
    "Outcome",
    "PaddingGathered",
    "Parameter",
    "ParametersHeld",
    "Peer",
    "PeerLost",
    "Place",
    "Position",
    "Profiled",
    "Progress",
    "Raised",
    "RankBlock",
    "RankLoader",
    "RankSampler",
    "RankSteps",
    "Record",
    "Returned",
    "Role",
    "Sampler",
    "ScaledClipped",
    "ScheduleEnded",
    "Script",
    "Severity",
    "Sharded",
    "ShardedTwice",
    "ShardsClipped",
    "Shares",
    "Site",
    "StaleParametersHeld",
    "Stalled",
    "Started",
    "StateDict",
    "StepFingerprinted",
    "StepSampled",
    "SteppedUnsynced",
    "StepsAtEnd",
    "StepsTimed",
    "StopAsked",
    "Strip",
    "Stuck",
    "Suspect",
    "SyncSkipped",
    "Table",
    "TensorParallel",
    "ThreadFailed",
    "TimedCall",
    "Training",
    "Tree",
    "Try",
    "Used",
    "Wrap",
    "Wrapped",
    "Wrapping",
    "are_alternatives",
    "assumed_strip",
    "attribute_set_at",
    "called_at",
    "calls_at",
    "closest",
    "closest_difference",
    "compare_shares",
    "condition_of_callers",
    "dotted",
    "each_two",
    "given",
    "gloo_address",
    "handler_around",
    "host_from",
    "human_size",
    "in_backward",
    "is_about_rank",
    "is_averaged",
    "is_cut_to_length",
    "is_expanded",
    "is_flat",
    "is_loopback",
    "is_open",
    "keyword",
    "likeness",
    "lint",
    "log_pattern",
    "logged_at",
    "loop_left",
    "misspelt",
    "nccl_interface",
    "nccl_interfaces",
    "one_rank_only",
    "other_ranks_only",
    "outermost",
    "own_frames",
    "place",
    "possible_strips",
    "probe",
    "rank_block",
    "rank_condition",
    "same_order",
    "several_hosts",
    "shared_part",
    "shell_join",
    "shell_quote",
    "shifted",
    "subscript",
    "suspects",
    "tests_around",
    "tree_of",
    "try_connect",
    "visible_gpus",
    "watch",
    "withs_around",
    "wrapped_keys",
    "wrappers_in",
]

ROOMS = {
    "checkpoint": "CheckpointFile Format StateDict subscript",
    "checkpoint.compare": "KeyDifference ModelEntry closest_difference outermost shifted wrapped_keys",
    "checkpoint.keys": (
        "AVERAGED_COUNTER WRAPPER_NAMES Strip assumed_strip is_averaged is_flat possible_strips wrappers_in"
    ),
    "cluster.client": "OTHER_JOB Try",
    "cluster.cluster": "DDP_STEP GRADIENTS LAYOUT MODEL_STEP Cluster Joint",
    "cluster.host": "Host host_from",
    "cluster.launch": "several_hosts",
    "cluster.matrix": "Link",
    "cluster.protocol": "WRONG_TOKEN",
    "cluster.suspects": "Fault Suspect suspects",
    "examine.blame": "own_frames",
    "examine.loader.exam": "LoaderExam",
    "examine.loader.facts": "Index Order RankLoader RankSampler same_order",
    "examine.loader.shares": "SHARED Shares compare_shares each_two likeness shared_part",
    "examine.model.exam": "ModelExam",
    "examine.model.facts": "TOO_SLOW Buffer Description Difference Parameter is_expanded",
    "examine.model.steps": "BAD_DTYPE EXPANDED KNOWN_ERRORS READY_TWICE UNUSED",
    "host.connections": "Peer",
    "host.facts": "Facts",
    "host.gpus": "NO_DRIVER Gpu Gpus visible_gpus",
    "host.limits": "human_size",
    "host.backend_network": "gloo_address nccl_interface nccl_interfaces",
    "host.network": "Network is_loopback try_connect",
    "host.stack": "in_backward",
    "host.variables": "misspelt",
    "jobs.outcome": "Died Outcome Raised Returned Stuck",
    "jobs.pool": "Jobs",
    "lint.examine": "Around",
    "source.launching.launch_script": "LaunchScript",
    "source.launching.launchers": "Launch",
    "source.lines": "attribute_set_at called_at calls_at is_cut_to_length logged_at tree_of withs_around",
    "source.reach.rank_facts": "OTHER_RANKS Fact",
    "source.reach.guards": "tests_around",
    "source.reach.exits": "LoopLeft loop_left",
    "source.reach.handlers": "Handler handler_around",
    "source.reach.ranks": (
        "RankBlock are_alternatives condition_of_callers is_about_rank one_rank_only other_ranks_only "
        "rank_block rank_condition"
    ),
    "frameworks": "ACCELERATE FRAMEWORK_WORDS LIGHTNING Framework",
    "watch.blocks": "Block",
    "watch.events": (
        "Clip NeverStepped OptimizerLoaded StepsAtEnd Used "
        "AccumulationUnused BackwardBypassed FrameworkSeen Monitored PaddingGathered ScheduleEnded "
        "SteppedUnsynced ShardedTwice StopAsked "
        "Drew Evaluated FileGrew FileOpened Numbered "
        "AsyncWorkDropped BuildLockLeft Bypassed CallsTimed Communication DataSeen Doing Ended EpochEnded EpochSet "
        "EpochStarted ErrorSeen EvaluationBegan Exchange Failed FileRead FileWritten HeldAtEnd Joined Joining "
        "LauncherWaits Left Loaded ManualReduction OptimizerSeen OrderSeen ParametersHeld PeerLost Position "
        "Profiled Progress RankSteps Sampler ScaledClipped Sharded ShardsClipped Site StaleParametersHeld Stalled "
        "Started StepFingerprinted StepSampled StepsTimed SyncSkipped TensorParallel ThreadFailed TimedCall "
        "Wrapped Wrapping place"
    ),
    "watch.training": "Training",
    "source.script": "COLLECTIVES DDP FRAMEWORKS INIT Script given is_open keyword",
    "source.tree": "Tree dotted",
    "source.wrapped": "Wrap",
}
"""Where the names live that are imported when they are asked for; a test compares it with the imports above."""


def __getattr__(name: str) -> Any:
    """Import a name from its room."""
    for room, names in ROOMS.items():
        if name in names.split():
            value = globals()[name] = getattr(importlib.import_module(f"ddpdoctor.{room}"), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
