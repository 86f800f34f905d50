"""What happens to models whose parameters FSDP shards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ddpdoctor.watch.events.base import Event, Site


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharded(Event):
    """A module was given to FSDP: ``api`` is ``FullyShardedDataParallel`` or ``fully_shard``.

    Of fully_shard it is told at the first forward of an outermost module. ``group`` are the global ranks that share the
    gradients; empty where that is not known. ``shards``: parameters are split over them (not so with NO_SHARD), but for
    those that FSDP was told to ignore, so many.
    """

    api: str
    kind: str
    group: tuple[int, ...]
    shards: bool
    ignored: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedInside(Event):
    """fully_shard is given a module of class ``kind`` inside of one of class ``outer``, which was ``sharded`` there.

    So many of its parameters are DTensors ``already``.
    """

    kind: str
    outer: str
    already: int
    sharded: Site | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TiedApart(Event):
    """FSDP is given a weight that it has taken up before, of another module: two weights, trained apart, from then on.

    ``name`` is the weight in a module of class ``kind``, which is given to ``api`` now; ``before`` was its name in the
    module that was given at ``first``.
    """

    api: str
    kind: str
    name: str
    before: str
    first: Site | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardingBegan(Event):
    """Weights were sharded, at ``site`` first, each rank keeping its part of its own; told with the first step.

    ``loaded`` of the ``parameters`` were in a module that a state dict was loaded into before. ``names`` and
    ``weights`` are digests: of names and shapes, and of the first and last numbers of each.
    """

    api: str
    parameters: int
    loaded: int
    names: str
    weights: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleParametersHeld(Event):
    """An optimizer has stepped twice with parameters that sharding has replaced, and that had no gradient.

    ``names`` are theirs in the module that was sharded at ``sharded``, ``held`` counts all that the optimizer holds;
    ``site`` is where it was built.
    """

    api: str
    optimizer: int
    kind: str
    names: tuple[str, ...]
    held: int
    sharded: Site | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftWhole(Event):
    """An optimizer steps, and fully_shard keeps gradients of its parameters whole, each rank its own, unsent.

    ``number`` is that of the step, ``names`` are the first of ``count`` such parameters.
    """

    optimizer: int
    number: int
    names: tuple[str, ...]
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardsClipped(Event):
    """torch's own clip_grad_norm_ was given shards of FullyShardedDataParallel.

    ``number`` counts such calls of the process, ``norm`` is what it computed of this rank's shards, ``most`` what it
    clips to.
    """

    number: int
    norm: float
    most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledClipped(Event):
    """Gradients were clipped while a GradScaler's factor was in them: its step has unscaled them only afterwards.

    ``norm`` and ``most`` are what clip_grad_norm_ computed and was given, ``scale`` is the factor.
    """

    norm: float
    most: float
    scale: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardsScaled(Event):
    """torch's own GradScaler is about to step an optimizer that holds shards of FullyShardedDataParallel; told once.

    ``scale`` is the factor that it takes out of the gradients.
    """

    scale: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorParallel(Event):
    """A layer was split over the ranks of ``group`` (global numbers), which compute one model together; told once.

    ``by_rows``: a layer is given another part of the batch on each of them, as its ``input_layouts`` say.
    """

    group: tuple[int, ...]
    by_rows: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorParallelInput(Event):
    """What a layer that is split over ``group`` was given, whole on each rank, in one of its first forwards.

    ``layer`` counts the layers in the order in which they were split, ``turn`` its forwards, both from 1; ``total`` is
    the sum of the input's values, ``size`` that of their absolutes. The line is that of the forward that calls it.
    """

    group: tuple[int, ...]
    layer: int
    turn: int
    sizes: tuple[int, ...]
    total: float
    size: float


class Gathered(NamedTuple):
    """A module that fully_shard gathers: its name, empty where that is unknown, and the first line that led there."""

    module: str
    file: str | None
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathers(Event):
    """The weights that fully_shard gathered in a group, all that one step needs: ``before`` them were so many others.

    ``row`` are places in ``modules``, in the order in which they were gathered; ``step`` is that of the optimizer that
    came next. Until the next such event of this process and group all rows were the same as this one. ``ranks`` are
    global; ``models`` is a digest of the names of all sharded parameters.
    """

    group: str
    ranks: tuple[int, ...]
    before: int
    step: int
    modules: tuple[Gathered, ...]
    row: tuple[int, ...]
    models: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineScheduled(Event):
    """A rank has made a schedule of torch.distributed.pipelining, its ``number``-th from 1, of class ``schedule``.

    It cuts each batch into so many ``microbatches``; ``group`` are the global ranks of its stages.
    """

    number: int
    schedule: str
    microbatches: int
    group: tuple[int, ...]
