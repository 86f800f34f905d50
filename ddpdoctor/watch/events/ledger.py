"""What the ledger of gradients tells of a sampled step: fingerprints that the monitor compares between ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ddpdoctor.watch.events.base import Event

Prints = tuple[tuple[float, ...] | None, ...]
"""By parameter: linear projections, then the norm that they are measured by; None where there is nothing."""


class Exchange(NamedTuple):
    """Communications of one line that were given the same.

    ``what`` is gradient, parameter, another's gradient (what another optimizer holds), or empty where unknown.
    ``when`` is ``before backward``, ``in backward``, ``after backward`` or ``in the step``; ``caller`` is the line of
    the function that steps, 0 where that did not call. ``learnt``: what is gathered was computed with gradients.
    """

    operation: str
    reduction: str
    what: str
    when: str
    calls: int
    elements: int
    file: str
    line: int
    caller: int
    learnt: bool = False


class Clip(NamedTuple):
    """One clipping of an optimizer's gradients by their norm, before a sampled step.

    ``reduced`` is how many elements the script had given to communications after backward by then; ``synced`` is
    false where the last forward through the wrapper was within no_sync.
    """

    norm: float
    most: float
    reduced: int
    synced: bool
    file: str
    line: int


class Used(NamedTuple):
    """A module that was called between two steps, and is no part of another: what of it no optimizer holds.

    The first ``parameters`` of ``names`` are parameters, the others buffers; ``prints`` are as before the step.
    """

    kind: str
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    parameters: int
    prints: Prints
    file: str
    line: int


class Factor(NamedTuple):
    """A number that a loss was computed with: the operation, its place in the loss's graph, and the graph's shape.

    ``paths`` are where the user's functions held that number before the step's batch was drawn.
    """

    operation: str
    place: int
    shape: int
    value: float
    paths: tuple[str, ...]


class Statistic(NamedTuple):
    """A tensor that is no parameter and that an object of the user's holds: where, and the object's class and file.

    ``kind`` is empty for a variable of a function that trains, and ``file`` that of the function.
    ``broadcast``: it is a buffer that DDP gives to all ranks at each forward; ``named``: its name is one of statistics.
    """

    path: str
    kind: str
    file: str
    size: int
    print: tuple[float, ...] | None
    shape: tuple[int, ...] = ()
    broadcast: bool = False
    named: bool = True


class Number(NamedTuple):
    """A plain number that a line of the user's computes a tensor with, by an operator such as ``mul``."""

    file: str
    line: int
    operator: str
    value: float


class Product(NamedTuple):
    """A product of two matrices in the graph of a loss, and the operations between it and the loss.

    It has so many ``rows`` and ``columns``, and adds up over ``inner``. ``both`` operands were computed by layers, or
    the one that has a gradient (``computed``): the other is data then. ``unit``: an operand was divided by a norm. A
    softmax that has made an operand is among the operations.
    """

    rows: int
    columns: int
    inner: int
    both: bool
    computed: bool
    unit: bool
    way: tuple[str, ...]


class LossTerm(NamedTuple):
    """What one term of a loss was ``divided`` by: the product of the counts, and that of all other numbers (``rest``).

    ``mean``: torch has divided by the number of this rank's elements, and nobody by another count.
    """

    divided: float
    rest: float
    mean: bool = False


class ShardedGradient(NamedTuple):
    """What a rank holds of a sharded gradient: as the last backward has left it, and as the step is given it."""

    name: str
    left: tuple[float, ...]
    given: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParametersHeld(Event):
    """What an optimizer holds, told before its first sampled step and again where that changed; by parameter.

    ``names`` are as DDP has them, else with the variable that holds the module first. ``managed`` is the number of the
    wrapped model that reduces the parameter, -1 for none; ``constant`` says that all its elements are equal, as those
    of biases often are at first; ``shards`` counts parameters beside these of which each
    rank holds a part. ``site`` is where the optimizer was built.
    """

    optimizer: int
    kind: str
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    managed: tuple[int, ...]
    constant: tuple[bool, ...]
    shards: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFingerprinted(Event):
    """A sampled step of an optimizer, by parameter in the order of ParametersHeld.

    ``local`` is the gradient of this rank as its last backward had added it up, before anybody could exchange it;
    ``given`` what the step was given; ``values`` the parameter before the step; ``added`` how many backwards added to
    the gradient since the step before. ``exchanges`` are the communications since the step before; ``sent`` counts all
    of this process so far: operation, calls, elements. ``options`` are those of each group of parameters,
    ``evaluating`` names modules that hold these parameters and are in evaluation mode. ``subgroups``: there are process
    groups of some ranks. ``hooks`` are communication hooks of wrapped models: name, file and line. ``frozen`` are the
    places of parameters that require no gradient. ``state`` is what the optimizer remembered before the step: key, of
    how many parameters, and the norm of all together. ``nested`` counts the backwards
    of the process so far that began within another, ``backwards`` the others, ``clock`` the collectives of
    the process group so far, DDP's own among them, which all its ranks count alike; ``bare`` the shards
    that require a gradient and have none. ``cleared`` says how often gradients were cleared since the step before after
    a backward had added to them. ``clips`` are what clipped them since then; ``divisors`` the numbers that the loss of
    a backward since then was divided by at its end. ``used`` are modules that were called since then; of the first step
    there are none. ``factors`` are numbers that losses since then were computed with, ``statistics`` what was held
    right before the step's batch was drawn. ``loss`` is the sum of the losses that backward was given since then, as it
    was given them. ``parts`` are gradients of which each rank holds a part. ``products``
    are those of matrices that losses since then were computed with, ``numbers`` those that the user's lines computed
    tensors with; ``holdings`` are what such lines could mean, and best results so far, by where they were held before
    the batch was drawn. ``rows`` are those of what a wrapped model was given last. ``terms`` has, for each loss since
    then, what its terms were divided by; ``backward`` is the file and line that asked for the gradients last.
    """

    optimizer: int
    number: int
    local: Prints
    given: Prints
    values: Prints
    added: tuple[int, ...]
    exchanges: tuple[Exchange, ...]
    sent: tuple[tuple[str, int, int], ...]
    options: tuple[tuple[tuple[str, str], ...], ...]
    evaluating: tuple[str, ...]
    subgroups: bool
    hooks: tuple[tuple[str, str, int], ...]
    frozen: tuple[int, ...] = ()
    state: tuple[tuple[str, int, float], ...] = ()
    backwards: int = 0
    nested: int = 0
    clock: int = 0
    bare: int = 0
    cleared: int = 0
    clips: tuple[Clip, ...] = ()
    divisors: tuple[float, ...] = ()
    used: tuple[Used, ...] = ()
    factors: tuple[Factor, ...] = ()
    statistics: tuple[Statistic, ...] = ()
    loss: float | None = None
    parts: tuple[ShardedGradient, ...] = ()
    products: tuple[Product, ...] = ()
    numbers: tuple[Number, ...] = ()
    holdings: tuple[tuple[str, float], ...] = ()
    rows: int = 0
    terms: tuple[tuple[LossTerm, ...], ...] = ()
    backward: tuple[str, int] = ("", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class OthersFingerprinted(Event):
    """Parameters beside those of an optimizer, in modules that it trains, which no optimizer of this rank holds.

    They are told in a sampled step from the second one on, where a backward has added to some of them; names and
    fingerprints are as in ParametersHeld and StepFingerprinted.
    """

    optimizer: int
    number: int
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    local: Prints
    values: Prints


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatedWith(Event):
    """An evaluation is over, the ``number``-th that was looked at: what it called, as it was at its end.

    ``used`` are as in StepFingerprinted: without what an optimizer holds.
    """

    number: int
    used: tuple[Used, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerLoaded(Event):
    """An optimizer was given a state by load_state_dict, for so many parameters.

    ``path`` is the file that it was read from, where that is known, and ``progress`` as in FileWritten.
    """

    optimizer: int
    kind: str
    parameters: int
    path: str = ""
    progress: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsFingerprinted(Event):
    """The ``number``-th backward begins, and no optimizer was built so far: the parameters of the modules in sight.

    Names, sizes and ``managed`` are as in ParametersHeld, ``values`` and ``sent`` as in StepFingerprinted. ``forwards``
    counts those through wrappers, ``hooks`` says that a wrapped model has a communication hook, and ``subgroups`` that
    there are process groups of some ranks. ``clock`` is as in StepFingerprinted. Where nobody has wrapped a model, the
    second and the third tell what became of the backward before: ``local`` is what it has left of the gradients,
    ``given`` what they were when they were cleared, or now, and ``exchanges`` what was sent since; ``terms`` are
    as in StepFingerprinted. Else they are empty.
    """

    number: int
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    managed: tuple[int, ...]
    values: Prints
    sent: tuple[tuple[str, int, int], ...]
    forwards: int
    hooks: bool
    subgroups: bool
    clock: int
    local: Prints = ()
    given: Prints = ()
    exchanges: tuple[Exchange, ...] = ()
    terms: tuple[tuple[LossTerm, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NeverStepped(Event):
    """So many backwards of a wrapped model, and no optimizer of this process has stepped."""

    backwards: int
    clock: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsAtEnd(Event):
    """How many steps were made with what an optimizer holds of a wrapped model.

    ``backwards`` and ``clock`` are as in StepFingerprinted.
    """

    optimizer: int
    model: int
    number: int
    backwards: int
    clock: int
