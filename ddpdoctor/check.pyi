# What the author of a check imports, each name with the module that defines it; check.py reads this list as well.

from ddpdoctor.checkpoint import (
    CheckpointFile as CheckpointFile,
    Format as Format,
    StateDict as StateDict,
    subscript as subscript,
)
from ddpdoctor.checkpoint.compare import (
    KeyDifference as KeyDifference,
    ModelEntry as ModelEntry,
    closest_difference as closest_difference,
    fitting_parts as fitting_parts,
    outermost as outermost,
    shifted as shifted,
    wrapped_keys as wrapped_keys,
)
from ddpdoctor.checkpoint.keys import (
    AVERAGED_COUNTER as AVERAGED_COUNTER,
    FEW_PARTS as FEW_PARTS,
    FSDP_NAMES as FSDP_NAMES,
    WRAPPER_NAMES as WRAPPER_NAMES,
    Strip as Strip,
    assumed_strip as assumed_strip,
    counter_in as counter_in,
    is_averaged as is_averaged,
    is_flat as is_flat,
    possible_strips as possible_strips,
    wrapped_parts as wrapped_parts,
    wrappers_in as wrappers_in,
)
from ddpdoctor.cluster.cluster import (
    DDP_STEP as DDP_STEP,
    GRADIENTS as GRADIENTS,
    LAYOUT as LAYOUT,
    MODEL_STEP as MODEL_STEP,
    SMALL_STEP as SMALL_STEP,
    Cluster as Cluster,
    Joint as Joint,
    Throughput as Throughput,
)
from ddpdoctor.cluster.compared.code import IMPORTED as IMPORTED
from ddpdoctor.cluster.compared.packages import NO_VERSION as NO_VERSION, NOT_INSTALLED as NOT_INSTALLED
from ddpdoctor.cluster.host import Host as Host, host_from as host_from
from ddpdoctor.cluster.launch import (
    DEFAULT_PORT as DEFAULT_PORT,
    read_launch as read_launch,
    several_hosts as several_hosts,
)
from ddpdoctor.cluster.lines import HOST_LINE as HOST_LINE, RANKS as RANKS, RANKS_LINE as RANKS_LINE
from ddpdoctor.cluster.matrix import Link as Link
from ddpdoctor.cluster.plan import targets as targets
from ddpdoctor.cluster.suspects import Fault as Fault, Suspect as Suspect, suspects as suspects
from ddpdoctor.cluster.wire.client import OTHER_JOB as OTHER_JOB, Try as Try
from ddpdoctor.cluster.wire.protocol import WRONG_TOKEN as WRONG_TOKEN
from ddpdoctor.examine.blame import own_frames as own_frames
from ddpdoctor.examine.loader.exam import LoaderExam as LoaderExam
from ddpdoctor.examine.loader.facts import (
    Index as Index,
    Order as Order,
    RankLoader as RankLoader,
    RankSampler as RankSampler,
    same_order as same_order,
)
from ddpdoctor.examine.loader.shares import (
    SHARED as SHARED,
    Shares as Shares,
    compare_shares as compare_shares,
    each_two as each_two,
    likeness as likeness,
    shared_part as shared_part,
)
from ddpdoctor.examine.model.exam import ModelExam as ModelExam
from ddpdoctor.examine.model.facts import (
    TOO_SLOW as TOO_SLOW,
    Buffer as Buffer,
    Description as Description,
    Difference as Difference,
    Parameter as Parameter,
    Plain as Plain,
    is_expanded as is_expanded,
)
from ddpdoctor.examine.model.steps import (
    BAD_DTYPE as BAD_DTYPE,
    EXPANDED as EXPANDED,
    KNOWN_ERRORS as KNOWN_ERRORS,
    READY_TWICE as READY_TWICE,
    UNUSED as UNUSED,
)
from ddpdoctor.facets import (
    Ailment as Ailment,
    BadTarget as BadTarget,
    Claim as Claim,
    Facet as Facet,
    Marker as Marker,
    NotRun as NotRun,
    Role as Role,
    lint as lint,
    log_pattern as log_pattern,
    probe as probe,
    watch as watch,
)
from ddpdoctor.findings import (
    Ambiguity as Ambiguity,
    Edit as Edit,
    Evidence as Evidence,
    Finding as Finding,
    Fix as Fix,
    Place as Place,
    Severity as Severity,
    Table as Table,
)
from ddpdoctor.frameworks import (
    ACCELERATE as ACCELERATE,
    DEEPSPEED as DEEPSPEED,
    FABRIC as FABRIC,
    FRAMEWORK_WORDS as FRAMEWORK_WORDS,
    HOROVOD as HOROVOD,
    LIGHTNING as LIGHTNING,
    RAY as RAY,
    TRAINER as TRAINER,
    Framework as Framework,
)
from ddpdoctor.host.backend_network import (
    gloo_address as gloo_address,
    nccl_interface as nccl_interface,
    nccl_interfaces as nccl_interfaces,
)
from ddpdoctor.host.facts import Facts as Facts
from ddpdoctor.host.gpus import NO_DRIVER as NO_DRIVER, Gpu as Gpu, Gpus as Gpus, visible_gpus as visible_gpus
from ddpdoctor.host.limits import human_size as human_size
from ddpdoctor.host.network import (
    Network as Network,
    is_loopback as is_loopback,
    source_address as source_address,
    try_connect as try_connect,
)
from ddpdoctor.host.process.connections import Peer as Peer
from ddpdoctor.host.stack import in_backward as in_backward
from ddpdoctor.host.temporary import Temporary as Temporary
from ddpdoctor.host.variables import TO_JOIN as TO_JOIN, misspelt as misspelt
from ddpdoctor.jobs.outcome import (
    Died as Died,
    Outcome as Outcome,
    Raised as Raised,
    Returned as Returned,
    Stuck as Stuck,
)
from ddpdoctor.jobs.pool import Jobs as Jobs
from ddpdoctor.lint.around import Around as Around
from ddpdoctor.logs.read.tracebacks import frames_in as frames_in
from ddpdoctor.logs.records import Frame as Frame, Kind as Kind, Log as Log, Record as Record
from ddpdoctor.shell import shell_join as shell_join, shell_quote as shell_quote
from ddpdoctor.source.arguments import (
    by_parameter as by_parameter,
    default_of as default_of,
    given as given,
    is_open as is_open,
    keyword as keyword,
)
from ddpdoctor.source.held import asked_lock as asked_lock, held_locks as held_locks
from ddpdoctor.source.launching.launch_script import LaunchScript as LaunchScript, launched_by as launched_by
from ddpdoctor.source.launching.launcher_options import launcher_options as launcher_options
from ddpdoctor.source.launching.launchers import PYTHONS as PYTHONS, Launch as Launch
from ddpdoctor.source.launching.shell import Command as Command
from ddpdoctor.source.launching.shell_words import Word as Word
from ddpdoctor.source.launching.tasks import tasks_of as tasks_of
from ddpdoctor.source.launching.yaml.node import Node as Node
from ddpdoctor.source.reach.alike import runs_alike as runs_alike
from ddpdoctor.source.reach.common import is_common_folder as is_common_folder
from ddpdoctor.source.reach.data import (
    FILTER as FILTER,
    batch_condition as batch_condition,
    batch_exit as batch_exit,
    in_one_loop as in_one_loop,
    is_head_of_loop_around as is_head_of_loop_around,
)
from ddpdoctor.source.reach.exits import (
    Exit as Exit,
    LoopLeft as LoopLeft,
    loop_left as loop_left,
    returns_above as returns_above,
    ways_out as ways_out,
    ways_past as ways_past,
)
from ddpdoctor.source.reach.guards import Guard as Guard
from ddpdoctor.source.reach.rank_facts import Fact as Fact
from ddpdoctor.source.reach.ranks import (
    RankBlock as RankBlock,
    are_alternatives as are_alternatives,
    both_in_other_order as both_in_other_order,
    condition_of_callers as condition_of_callers,
    is_about_rank as is_about_rank,
    one_rank_calls as one_rank_calls,
    one_rank_only as one_rank_only,
    other_ranks_only as other_ranks_only,
    rank_block as rank_block,
    rank_condition as rank_condition,
    rank_given_at as rank_given_at,
)
from ddpdoctor.source.reach.reached import decided_at as decided_at, tests_around as tests_around
from ddpdoctor.source.reach.seeded import seeded_by_rank as seeded_by_rank
from ddpdoctor.source.reach.who import DECORATORS as DECORATORS, ONE_RANK as ONE_RANK, OTHER_RANKS as OTHER_RANKS
from ddpdoctor.source.script import Script as Script
from ddpdoctor.source.text.bindings import (
    dotted as dotted,
    last_name as last_name,
    spans as spans,
    variables_in as variables_in,
)
from ddpdoctor.source.text.lines import (
    attribute_set_at as attribute_set_at,
    called_at as called_at,
    calls_at as calls_at,
    is_cut_to_length as is_cut_to_length,
    logged_at as logged_at,
    loop_at as loop_at,
    statement_at as statement_at,
    tree_of as tree_of,
    withs_around as withs_around,
)
from ddpdoctor.source.text.names import resolve as resolve
from ddpdoctor.source.text.syntax import NO_PYTHON as NO_PYTHON
from ddpdoctor.source.text.tree import Tree as Tree
from ddpdoctor.source.training.asked_paths import OwnPath as OwnPath, own_path as own_path, unmade as unmade
from ddpdoctor.source.training.followed.callee import called as called
from ddpdoctor.source.training.iterations import repeats_until as repeats_until
from ddpdoctor.source.training.polls import question as question, search as search
from ddpdoctor.source.training.sets import loops_through_sets as loops_through_sets
from ddpdoctor.source.training.taken import forwards as forwards, states as states, taken as taken
from ddpdoctor.source.training.wraps.sharded import Shard as Shard, shards as shards
from ddpdoctor.source.training.wraps.wrapped import Wrap as Wrap
from ddpdoctor.source.values.callbacks import (
    Callback as Callback,
    Caller as Caller,
    callback_around as callback_around,
    callback_of as callback_of,
)
from ddpdoctor.source.values.handlers import (
    Handler as Handler,
    body_of_with as body_of_with,
    finally_around as finally_around,
    handler_around as handler_around,
    handler_at as handler_at,
)
from ddpdoctor.source.values.sites import SPAWN as SPAWN, STARTS as STARTS
from ddpdoctor.source.vocabulary import (
    ACCELERATOR as ACCELERATOR,
    CLIP_NORM as CLIP_NORM,
    COLLECTIVES as COLLECTIVES,
    DATA_PARALLEL as DATA_PARALLEL,
    DDP as DDP,
    FRAMEWORKS as FRAMEWORKS,
    FSDP as FSDP,
    FULLY_SHARD as FULLY_SHARD,
    INIT as INIT,
    RANK_NAME as RANK_NAME,
)
from ddpdoctor.suggest import closest as closest
from ddpdoctor.watch.events import (
    INTERRUPTED as INTERRUPTED,
    RESUMED as RESUMED,
    RPC as RPC,
    AccumulationUnused as AccumulationUnused,
    AsyncWorkDropped as AsyncWorkDropped,
    BackwardBypassed as BackwardBypassed,
    BuildLockLeft as BuildLockLeft,
    Bypassed as Bypassed,
    CallsTimed as CallsTimed,
    Carried as Carried,
    Clip as Clip,
    CommHookGiven as CommHookGiven,
    Communication as Communication,
    CompiledAnew as CompiledAnew,
    Crashed as Crashed,
    DataSeen as DataSeen,
    Doing as Doing,
    Drew as Drew,
    Ended as Ended,
    EngineBoundaryAwaited as EngineBoundaryAwaited,
    EngineClipped as EngineClipped,
    EngineNotStepped as EngineNotStepped,
    EngineSteppedSeldom as EngineSteppedSeldom,
    EpochEnded as EpochEnded,
    EpochSet as EpochSet,
    EpochStarted as EpochStarted,
    ErrorSeen as ErrorSeen,
    Evaluated as Evaluated,
    EvaluatedByHand as EvaluatedByHand,
    EvaluatedInTraining as EvaluatedInTraining,
    EvaluatedWith as EvaluatedWith,
    EvaluationBegan as EvaluationBegan,
    EvaluationReturned as EvaluationReturned,
    Exchange as Exchange,
    Factor as Factor,
    Failed as Failed,
    FailedAlone as FailedAlone,
    FileGrew as FileGrew,
    FileOpened as FileOpened,
    FileRead as FileRead,
    FileWritten as FileWritten,
    FrameworkSeen as FrameworkSeen,
    GatherAliased as GatherAliased,
    Gathered as Gathered,
    Gathers as Gathers,
    GradientsInFlight as GradientsInFlight,
    GraphsKept as GraphsKept,
    GroupMade as GroupMade,
    HeldAtEnd as HeldAtEnd,
    HeldGenerator as HeldGenerator,
    HooksPiledUp as HooksPiledUp,
    Joined as Joined,
    JoinEntered as JoinEntered,
    Joining as Joining,
    Keeper as Keeper,
    KeptAtEnd as KeptAtEnd,
    LauncherWaits as LauncherWaits,
    Left as Left,
    LeftWhole as LeftWhole,
    LinesSampled as LinesSampled,
    LinkUse as LinkUse,
    Loaded as Loaded,
    LossDivided as LossDivided,
    LossNotFinite as LossNotFinite,
    LossOverAllItems as LossOverAllItems,
    LossTerm as LossTerm,
    ManualReduction as ManualReduction,
    MetricSynced as MetricSynced,
    MomentsNotAsked as MomentsNotAsked,
    Monitored as Monitored,
    NeverStepped as NeverStepped,
    NothingSpawned as NothingSpawned,
    Number as Number,
    Numbered as Numbered,
    OptimizerLoaded as OptimizerLoaded,
    OptimizerMadeAnew as OptimizerMadeAnew,
    OptimizerSeen as OptimizerSeen,
    OrderSeen as OrderSeen,
    OthersFingerprinted as OthersFingerprinted,
    PaddingGathered as PaddingGathered,
    ParametersHeld as ParametersHeld,
    PassedOver as PassedOver,
    PeerLost as PeerLost,
    PipelineScheduled as PipelineScheduled,
    Position as Position,
    Product as Product,
    Profiled as Profiled,
    Progress as Progress,
    RankSteps as RankSteps,
    RowsGiven as RowsGiven,
    SampledLine as SampledLine,
    Sampler as Sampler,
    SavesInto as SavesInto,
    ScaledClipped as ScaledClipped,
    ScheduleAtEnd as ScheduleAtEnd,
    ScheduleEnded as ScheduleEnded,
    ScheduleSteppedTwice as ScheduleSteppedTwice,
    Sharded as Sharded,
    ShardedGradient as ShardedGradient,
    ShardedInside as ShardedInside,
    ShardedTwice as ShardedTwice,
    ShardingBegan as ShardingBegan,
    ShardsClipped as ShardsClipped,
    ShardsScaled as ShardsScaled,
    Site as Site,
    StaleParametersHeld as StaleParametersHeld,
    Stalled as Stalled,
    Started as Started,
    Statistic as Statistic,
    StepFingerprinted as StepFingerprinted,
    SteppedUnsynced as SteppedUnsynced,
    SteppedWithinNoSync as SteppedWithinNoSync,
    StepSampled as StepSampled,
    StepsAtEnd as StepsAtEnd,
    StepsTimed as StepsTimed,
    StopAsked as StopAsked,
    StreamSeen as StreamSeen,
    Summed as Summed,
    SummedTwice as SummedTwice,
    SyncSkipped as SyncSkipped,
    TakenForOne as TakenForOne,
    TensorParallel as TensorParallel,
    TensorParallelInput as TensorParallelInput,
    ThreadFailed as ThreadFailed,
    TiedApart as TiedApart,
    TimedCall as TimedCall,
    TimedOut as TimedOut,
    UnderWay as UnderWay,
    Used as Used,
    UsedInFork as UsedInFork,
    WeightsFingerprinted as WeightsFingerprinted,
    Whereabouts as Whereabouts,
    Wrapped as Wrapped,
    Wrapping as Wrapping,
    place as place,
)
from ddpdoctor.watch.events.failures import LOST as LOST
from ddpdoctor.watch.events.frameworks import DISPATCHER as DISPATCHER, SEEDABLE as SEEDABLE, SHARD as SHARD
from ddpdoctor.watch.events.hang import INIT_RPC as INIT_RPC, JOINING as JOINING, JOINS as JOINS
from ddpdoctor.watch.events.hosts.read import (
    End as End,
    behind_a_loop as behind_a_loop,
    counts_from as counts_from,
    ends_from as ends_from,
    joining_from as joining_from,
    loaders_from as loaders_from,
    stalled_from as stalled_from,
)
from ddpdoctor.watch.events.steps.blocks import Block as Block
from ddpdoctor.watch.events.steps.lines import LineKind as LineKind
from ddpdoctor.watch.events.steps.parts import ANOTHERS as ANOTHERS, BEST as BEST
from ddpdoctor.watch.events.steps.timed import STARVED as STARVED
from ddpdoctor.watch.training import Training as Training
