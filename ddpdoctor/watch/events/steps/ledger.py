"""What the ledger of gradients tells of a sampled step: fingerprints that the monitor compares between ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddpdoctor.watch.events.base import Event

if TYPE_CHECKING:
    from ddpdoctor.watch.events.steps.parts import (
        Carried,
        Clip,
        Exchange,
        Factor,
        HeldGenerator,
        LossTerm,
        Number,
        Prints,
        Product,
        ShardedGradient,
        Statistic,
        Used,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ParametersHeld(Event):
    """What an optimizer holds, told before its first sampled step and again where that changed; by parameter.

    ``names`` are as DDP has them, else with the variable that holds the module first. ``managed`` is the number of the
    wrapped model that reduces the parameter, -1 for none; ``constant`` says that all its elements are equal, as those
    of biases often are at first; ``shards`` counts parameters beside these of which each
    rank holds a part. ``holders`` are the variables that hold the modules of what no wrapped model has, empty for the
    others. ``site`` is where the optimizer was built.
    """

    optimizer: int
    kind: str
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    managed: tuple[int, ...]
    constant: tuple[bool, ...]
    shards: int = 0
    holders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFingerprinted(Event):
    """A sampled step of an optimizer, by parameter in the order of ParametersHeld.

    ``local`` is the gradient of this rank as its last backward had added it up, before anybody could exchange it;
    ``given`` what the step was given; ``values`` the parameter before the step; ``added`` how many backwards added to
    the gradient since the step before. ``exchanges`` are the communications since the step before; ``sent`` counts all
    of this process so far: operation, calls, elements. ``options`` are those of each group of parameters,
    ``evaluating`` names modules that hold these parameters and are in evaluation mode, ``still`` what computes
    otherwise in training mode, where the whole model is in evaluation mode. ``subgroups``: there are process
    groups of some ranks. ``hooks`` are communication hooks of wrapped models: name, file and line. ``frozen`` are the
    places of parameters that require no gradient. ``state`` is what the optimizer remembered before the step: key, of
    how many parameters, and the norm of all together. ``nested`` counts the backwards
    of the process so far that began within another, ``backwards`` the others, ``clock`` the collectives of
    the process group so far, DDP's own among them, which all its ranks count alike; ``bare`` the shards
    with elements on this rank that require a gradient and have none. ``cleared`` says how often gradients were cleared
    since the step before after a backward had added to them.
    ``clips`` are what clipped them since then; ``divisors`` the numbers that the loss of
    a backward since then was divided by at its end. ``used`` are modules that were called since then; of the first step
    there are none. ``factors`` are numbers that losses since then were computed with, ``statistics`` and
    ``held_generators`` what was held right before the step's batch was drawn. ``loss`` is the sum of the losses that
    backward was given since then, as it was given them. ``parts`` are gradients of which each rank holds a part,
    ``without`` the DTensors beside these that require one and have none. ``products`` are those of matrices that losses
    since then were computed with, ``numbers`` those that the user's lines computed tensors with; ``holdings`` are what
    such lines could mean, and best results so far, by where they were held before the batch was drawn. ``rows`` are
    those of what a wrapped model was given last. ``terms`` has, for each loss since
    then, what its terms were divided by; ``backward`` is the file and line that asked for the gradients last.
    ``carried`` is None before the first step.
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
    held_generators: tuple[HeldGenerator, ...] = ()
    still: tuple[str, ...] = ()
    loss: float | None = None
    parts: tuple[ShardedGradient, ...] = ()
    without: tuple[str, ...] = ()
    products: tuple[Product, ...] = ()
    numbers: tuple[Number, ...] = ()
    holdings: tuple[tuple[str, float], ...] = ()
    rows: int = 0
    terms: tuple[tuple[LossTerm, ...], ...] = ()
    backward: tuple[str, int] = ("", 0)
    carried: Carried | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LossNotFinite(Event):
    """The first loss of a rank that is NaN or infinite: ``value``, after ``steps`` steps of any optimizer.

    ``site`` is the line that asked for its gradients. Told of losses on a CPU alone: elsewhere, to read is to wait.
    """

    value: str
    steps: int


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
    """An evaluation is over, the ``number``-th that was looked at, and so was what it called.

    ``used`` are as in StepFingerprinted, as they were when they were called first: without what an optimizer holds.
    """

    number: int
    used: tuple[Used, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatedInTraining(Event):
    """A module of the class ``module`` was called in training mode in the ``number``-th evaluation that was looked at.

    ``names`` are parts of it that compute otherwise in evaluation mode, ``callers`` the lines that led to the call,
    innermost first: file, line and function.
    """

    number: int
    module: str
    names: tuple[str, ...]
    callers: tuple[tuple[str, int, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsFingerprinted(Event):
    """The ``number``-th backward begins, and no optimizer was built so far: the parameters of the modules in sight.

    Names, sizes and ``managed`` are as in ParametersHeld, ``values`` and ``sent`` as in StepFingerprinted. ``forwards``
    counts those through wrappers, ``hooks`` says that a wrapped model has a communication hook, and ``subgroups`` that
    there are process groups of some ranks. ``clock`` is as in StepFingerprinted. Where nobody has wrapped a model, the
    second and the third tell what became of the backward before: ``local`` is what it has left of the gradients,
    ``given`` what they were when they were cleared, or now, and ``exchanges`` what was sent since; ``terms`` are
    as in StepFingerprinted. Else they are empty.

    Where a script asks for gradients by torch.autograd.grad or torch.func, it is the ``number``-th call that asks for
    those of these tensors; ``returned`` is what it has given, and ``exchanges`` are since the call before. ``local``
    and ``given`` are empty then.
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
    returned: Prints = ()
