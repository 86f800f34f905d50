"""What models are given of a pass: batches, samples of a stream, rows."""

from __future__ import annotations

from dataclasses import dataclass

from ddpdoctor.watch.events.base import Event

UNWRAPPED = -1
"""Stands for the number of a model that nobody has wrapped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drew(Event):
    """A model that trains is given one of the first batches of a pass, with torch's random generators in a ``state``.

    ``batch`` counts from 1 and has ``rows``; ``drawn`` is how many random numbers were drawn since it came, at least.
    ``site`` is the for loop. ``others`` are the same of numpy's and of Python's own generator, where numbers were drawn
    from them: name, state, and how many. ``fetched`` are those of all three that this process drew while the loader
    made the batch, and the states after it.
    """

    loader: int
    number: int
    batch: int
    rows: int
    state: str
    drawn: int
    others: tuple[tuple[str, str, int], ...] = ()
    fetched: tuple[tuple[str, str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSeen(Event):
    """An iterable data set without workers has given one of the first batches of a pass (``batch`` counts from 1).

    ``held`` are digests of what its generator has in its variables, by name: tensors, arrays, texts. ``orders`` are
    lists of numbers or texts there that are in no order, with the first batch alone: name, digest, digest of what they
    have whatever the order, and length. ``drawers`` are random generators there, and those that the data set has as
    attributes: name, digest of the state, and seed, empty where it is not known. ``pieces`` are digests of the parts of
    the batch, empty for what is no tensor. ``site`` is the line with which the generator has given the last sample.
    """

    loader: int
    number: int
    batch: int
    held: tuple[tuple[str, str], ...] = ()
    orders: tuple[tuple[str, str, str, int], ...] = ()
    drawers: tuple[tuple[str, str, str], ...] = ()
    pieces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsGiven(Event):
    """A checksum of each row that a model was given in training, without a loader, up to a step's ``number``.

    ``model`` is the number of a wrapped one; ``UNWRAPPED``: it is what an optimizer trains. ``forwards`` is how many
    there were, and ``site`` the line of the first one. ``several``: the model was given more than these, of which
    nothing is known. ``related``: one of these says which rows belong together, as the edges of a graph do.
    """

    number: int
    rows: tuple[float, ...]
    model: int = UNWRAPPED
    forwards: int = 0
    several: bool = False
    related: bool = False
