"""What happens to wrapped models and their optimizers."""

from __future__ import annotations

from dataclasses import dataclass

from ddpdoctor.watch.events.base import Event, Site


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapping(Event):
    """A module is given to DistributedDataParallel; Wrapped follows when the ranks' modules match.

    ``parameters`` are those that DDP would reduce, in its order: name and shape.
    """

    parameters: tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapped(Event):
    """A module was wrapped in DistributedDataParallel.

    ``inner`` is the number of the bare module, ``group`` the global ranks that share the gradients, ``trainable`` the
    names of the parameters that DDP reduces, ``elements`` their size. ``ignored`` are others that want a gradient and
    are on DDP's ignore list, which was given to DDP at ``ignored_at``; None where that was not seen. ``keeper`` names
    the package that wraps, where it is not the user's own code.
    """

    model: int
    inner: int
    kind: str
    group: tuple[int, ...]
    trainable: tuple[str, ...]
    elements: int
    buffers: int
    broadcast_buffers: bool
    find_unused_parameters: bool
    static_graph: bool
    owning_library: str = ""
    ignored: tuple[str, ...] = ()
    ignored_at: Site | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncSkipped(Event):
    """The first forward with gradients of a wrapped model within no_sync()."""

    model: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SteppedWithinNoSync(Event):
    """The first step of an optimizer, of those that are not sampled, before which the last forward was in no_sync()."""

    optimizer: int
    model: int
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bypassed(Event):
    """A wrapped model, or a part of it, was called past its wrapper, after a step to which DDP had given nothing."""

    model: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationBegan(Event):
    """A wrapped model that keeps its buffers to itself is called in evaluation mode, without gradients.

    ``variances`` are the norms of running variances of batch normalisation, after ``steps`` optimizer steps.
    """

    model: int
    steps: int
    names: tuple[str, ...]
    variances: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerSeen(Event):
    """What an optimizer holds of a wrapped model (None: of none); told at its first step, again when one was wrapped.

    ``names`` are parameters that DDP reduces, ``gone`` those of them that are not in the model any more; ``others`` is
    the number of all that are of no wrapped model or not reduced, ``frozen`` those of them that are a wrapped model's
    and want no gradient. ``empty`` counts its groups that hold nothing.
    """

    optimizer: int
    kind: str
    model: int | None
    names: tuple[str, ...]
    others: int
    frozen: tuple[str, ...]
    gone: tuple[str, ...]
    empty: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSampled(Event):
    """Norms right before a step of an optimizer, by the order of OptimizerSeen.names; None where there is no gradient.

    ``closure``: the step was given a function that computes the gradients, and the norms are those right after it.

    ``forwards`` counts the wrapped model's forwards with gradients since the step before, ``synced`` those of them in
    which DDP was to reduce, ``last_synced`` whether the last one was. ``strays`` are parameters of the model that an
    optimizer holds and DDP does not reduce: name, what they were when it was wrapped, norm of the gradient; ``moved``
    those that changed their device. ``hook`` names a communication hook. ``sent`` counts the elements that Python gave
    to collectives since the first model was wrapped. ``idle`` and ``active`` count OptimizerSeen.others that
    require a gradient: without one, and with one. ``unheld`` names the model's parameters with a gradient that no
    optimizer holds, ``thawed`` those of them that were frozen when it was wrapped. ``left`` counts the gradients that
    the last backward had left, in the first steps.
    """

    optimizer: int
    model: int | None
    number: int
    gradients: tuple[float | None, ...]
    parameters: tuple[float, ...]
    forwards: int
    synced: int
    last_synced: bool
    unmanaged: tuple[tuple[str, str, float | None], ...]
    moved: tuple[str, ...]
    hook: str
    sent: int
    idle: int
    active: int
    unheld: tuple[str, ...]
    left: int
    rates: tuple[float, ...]
    closure: bool
    thawed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ManualReduction(Event):
    """Gradients that DDP had reduced were given to a reduction by hand, before one of the first steps.

    ``before`` and ``after`` are the norm right before that reduction and right before the step, divided by what
    backward had left: 1 where nothing changed it.
    """

    model: int
    operation: str
    names: tuple[str, ...]
    count: int
    before: float
    after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CommHookGiven(Event):
    """A wrapped model is given a communication hook of this name, at ``site``."""

    name: str
