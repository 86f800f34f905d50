"""What a watched process tells the monitor: plain facts, one dataclass an event; no torch.

Numbers that name an object (``model``, ``loader``, ``optimizer``) hold within one process: the first loader that a
process iterates is its loader 0. Ranks that run the same script number alike.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, fields
from typing import Any, NamedTuple


class Site(NamedTuple):
    """A line of the user's own code; ``line`` counts from 1."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        """Render as editors open it."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Communication:
    """One communication that a rank began: ``number`` counts those of its group in this process, from 1.

    ``group`` is the process group's name; ``shapes`` are of what this rank gave.
    """

    number: int
    time: float
    operation: str
    group: str
    shapes: str
    site: Site | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What every event has: the process, its global rank where it is known, seconds since the epoch, the line."""

    pid: int
    time: float
    rank: int | None = None
    site: Site | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Started(Event):
    """A process has imported torch that was told a rank, or that calls init_process_group."""

    program: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Joining(Event):
    """A rank enters init_process_group; Joined follows when it returns."""

    world_size: int
    backend: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined(Event):
    """A rank has its default process group."""

    world_size: int
    backend: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Left(Event):
    """A rank has called destroy_process_group, or its interpreter ends."""

    ended: bool


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
    names of the parameters that DDP reduces, ``elements`` their size. ``keeper`` names the package that wraps,
    where it is not the user's own code.
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
    keeper: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncSkipped(Event):
    """The first forward with gradients of a wrapped model within no_sync()."""

    model: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bypassed(Event):
    """A wrapped model, or a part of it, was called past its wrapper, after a step to which DDP had given nothing."""

    model: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampler:
    """What a loader's sampler says of itself; None where it does not have the attribute."""

    number: int
    kind: str
    replicas: int | None = None
    rank: int | None = None
    shuffle: bool | None = None
    seed: int | None = None
    epoch: int | None = None
    length: int | None = None
    drop_last: bool | None = None
    replacement: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSeen(Event):
    """What a loader's data set holds; told right before its first pass.

    ``contents`` digests what decides which sample an index is; empty where that cannot be told from what the data set
    holds. ``picks`` digests the indices of a Subset, ``base`` the contents of what it is a part of. ``listed`` digests
    a list of the data set's that has an entry a sample, and ``members`` the same entries in whatever order; ``first``
    are the first indices, or entries, ``name`` is the attribute. ``reader`` is the user's method that gives samples.
    ``generators`` names random generators that it draws from and that the loader's workers have copies of.
    """

    loader: int
    contents: str
    base: str
    picks: str
    listed: str
    members: str
    first: tuple[str, ...]
    name: str
    reader: Site | None
    generators: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochStarted(Event):
    """A DataLoader is iterated from its start: ``number`` counts its passes from 0, ``site`` is the for loop.

    ``training`` says that gradients are on and a model that was wrapped is in training mode. ``length`` is that of the
    data set, ``batches`` what len() of the loader says; each None where it has none. ``keeper`` names who made the
    loader where that is a framework that splits data by itself.
    """

    loader: int
    number: int
    training: bool
    dataset: str
    length: int | None
    batches: int | None
    batch_size: int | None
    drop_last: bool
    workers: int
    iterable: bool
    sampler: Sampler | None
    given: int
    keeper: str
    subgroups: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochSet(Event):
    """set_epoch was called on a sampler (the number that Sampler has)."""

    sampler: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderSeen(Event):
    """The first indices that an epoch drew, and digests of its first batches; ``site`` is the for loop.

    ``trained``: a wrapped model in training mode was given what came out, with gradients on. ``whole``: each batch that
    came out was followed by such a forward, of as many rows as the batch has. ``joins``: within DDP's join().
    """

    loader: int
    number: int
    indices: tuple[int, ...] = ()
    digests: tuple[str, ...] = ()
    trained: bool = False
    whole: bool = False
    joins: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEnded(Event):
    """A pass over a loader is over: ``complete`` when the sampler, or the data set, had no more.

    ``drawn`` are the indices that are multiples of ``stride``, in the order in which the pass drew them; the first
    pass of a loader alone tells them. ``site`` is the for loop.
    """

    loader: int
    number: int
    batches: int
    complete: bool
    trained: bool = False
    drawn: tuple[int, ...] = ()
    stride: int = 1


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
    and want no gradient.
    """

    optimizer: int
    kind: str
    model: int | None
    names: tuple[str, ...]
    others: int
    frozen: tuple[str, ...]
    gone: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSampled(Event):
    """Norms right before a step of an optimizer, by the order of OptimizerSeen.names; None where there is no gradient.

    ``closure``: the step was given a function that computes the gradients, and the norms are those right after it.

    ``forwards`` counts the wrapped model's forwards with gradients since the step before, ``synced`` those of them in
    which DDP was to reduce, ``last_synced`` whether the last one was. ``strays`` are parameters of the model that an
    optimizer holds and DDP does not reduce: name, what they were when it was wrapped, norm of the gradient; ``moved``
    those that changed their device. ``hook`` names a communication hook. ``sent`` counts the elements that Python gave
    to collectives since the first model was wrapped. ``idle`` and ``active`` count OptimizerSeen.others that
    want a gradient: without one, and with one. ``unheld`` names the model's parameters with a gradient that no
    optimizer holds. ``left`` counts the gradients that the last backward had left, in the first steps.
    """

    optimizer: int
    model: int | None
    number: int
    gradients: tuple[float | None, ...]
    parameters: tuple[float, ...]
    forwards: int
    synced: int
    last_synced: bool
    strays: tuple[tuple[str, str, float | None], ...]
    moved: tuple[str, ...]
    hook: str
    sent: int
    idle: int
    active: int
    unheld: tuple[str, ...]
    left: int
    rates: tuple[float, ...]
    closure: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HandReduced(Event):
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
class Loaded(Event):
    """load_state_dict has returned: how many keys were given, how many the module has, how many of them matched.

    ``path`` is the file that they were read from, where it is known; ``wrapped`` says that DDP holds the module, or
    that it is one.
    """

    kind: str
    given: int
    wanted: int
    matched: int
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    path: str
    wrapped: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FileWritten(Event):
    """torch.save has written a path: from ``began`` to ``time``, after so many optimizer steps of this process."""

    path: str
    began: float
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRead(Event):
    """torch.load begins to read a path."""

    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unwaited(Event):
    """A line has dropped the handle of an asynchronous collective so many times, without ever having used it."""

    operation: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed(Event):
    """An exception is about to leave a process: its type and its traceback as printed.

    The rest is what the process knows and its traceback does not tell: ``parameters`` names those of the wrapped model
    as DDP numbers them, ``unused`` those that got no gradient where DDP complains of that, ``changed`` says of those
    that were frozen or replaced since DDP wrapped the model which of the two it was; ``path`` is the file that the
    state dict was read from; ``seen`` are facts about its surroundings, each with where it was seen.
    """

    error: str
    text: str
    unused: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    path: str = ""
    seen: tuple[tuple[str, str], ...] = ()

    @property
    def said(self) -> str:
        """Give the line of the traceback that says what is wrong."""
        lines = self.text.strip().splitlines() or [""]
        return next((line.strip() for line in reversed(lines) if line.startswith(self.error)), lines[-1].strip())


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerLost(Event):
    """Made where failures are explained: ranks say only that another one is gone.

    ``first`` is the failure of the rank that is gone, for which no check speaks; None where it left none. ``others``
    are those that followed; ``gone`` are the ranks whose process is no more and told nothing, ``ended`` those whose
    program came to its end.
    """

    first: Failed | None
    others: tuple[Failed, ...]
    gone: tuple[int, ...] = ()
    ended: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Pending:
    """A collective that torch's flight recorder holds as not complete; ``number`` counts those of the group."""

    operation: str
    group: str
    number: int
    shapes: str

    def __str__(self) -> str:
        """Name it as torch's own reports do."""
        return f"{self.operation}{f' of {self.shapes}' if self.shapes else ''}, number {self.number} of its group"


class Doing(enum.Enum):
    """What a rank does while others wait."""

    WAITING = "waiting"
    WORKING = "working"
    STANDING = "standing still"
    STOPPED = "stopped by a signal"
    FAILED = "failed"
    ENDED = "ended"
    DIED = "died"


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a rank is, seen from outside while nothing moves.

    ``site`` is the user's line, ``operation`` the communication it waits in (``backward`` where DDP averages
    gradients), ``function`` the innermost Python function. ``batches``, ``forwards`` (of wrapped models) and ``steps``
    (of optimizers) are counted from the start; ``recent`` are the last communications that it began, oldest first;
    ``pending`` what torch's flight recorder holds as not complete.
    ``seconds``: since its counters last moved, or since it is gone.
    """

    rank: int
    pid: int
    doing: Doing
    seconds: float
    batches: int = 0
    forwards: int = 0
    steps: int = 0
    site: Site | None = None
    operation: str = ""
    function: str = ""
    recent: tuple[Communication, ...] = ()
    pending: tuple[Pending, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stalled(Event):
    """Made by the monitor: a rank has waited for others longer than --hang-after. All ranks, by rank."""

    ranks: tuple[Position, ...]
    world_size: int

    def doing(self, *doings: Doing) -> tuple[Position, ...]:
        """Give the ranks that do one of these."""
        return tuple(position for position in self.ranks if position.doing in doings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended(Event):
    """The command has ended, with this exit status: what is known now is all there is."""

    status: int


TYPES = {
    each.__name__: each
    for each in (
        Started, Joining, Joined, Left, Wrapping, Wrapped, SyncSkipped, Bypassed, DataSeen, EpochStarted, EpochSet,
        OrderSeen, EpochEnded, EvaluationBegan, OptimizerSeen,
        StepSampled, HandReduced, Loaded, FileWritten, FileRead, Unwaited, Failed, Ended,
    )
}  # fmt: skip


def packed(event: Event) -> list[Any]:
    """Give an event as JSON writes it."""
    values = {field.name: getattr(event, field.name) for field in fields(event)}
    if isinstance(sampler := values.get("sampler"), Sampler):
        values["sampler"] = {field.name: getattr(sampler, field.name) for field in fields(sampler)}
    return [type(event).__name__, values]


def unpacked(parts: list[Any]) -> Event:
    """Give back what ``packed`` was given.

    Raises:
        KeyError, TypeError: it is no event.
    """
    kind, values = parts
    values = {name: _tuples(value) for name, value in values.items()}
    for name in ("site", "reader"):
        if values.get(name) is not None:
            values[name] = Site(*values[name])
    if isinstance(values.get("sampler"), dict):
        values["sampler"] = Sampler(**values["sampler"])
    event: Event = TYPES[kind](**values)
    return event


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
