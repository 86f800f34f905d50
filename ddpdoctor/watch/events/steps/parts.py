"""What is told of a compared step: its exchanges, and what its gradients and its loss were made of."""

from __future__ import annotations

import re
from typing import NamedTuple

Prints = tuple[tuple[float, ...] | None, ...]
"""By parameter: linear projections, then the norm that they are measured by; None where there is nothing."""

ANOTHERS = "another's gradient"
"""``Exchange.what`` of a gradient that another optimizer holds."""
BEST = re.compile(r"best|lowest|highest|minimum|maximum|(^|_)(min|max)(_|$)", re.IGNORECASE)
"""In the name of a number that is kept as the best so far, in ``StepFingerprinted.holdings``."""


class Exchange(NamedTuple):
    """Communications of one line that were given the same.

    ``what`` is gradient, parameter, ``ANOTHERS``, or empty where unknown.
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


class Carried(NamedTuple):
    """What gradients were when the first backward after a step began: how many are not zero, and their norm together.

    ``file`` and ``line`` are where they were cleared last since the step; empty and 0 where they were not, or by hand.
    """

    parameters: int
    norm: float
    file: str
    line: int


class Used(NamedTuple):
    """A module that was called between two steps, and is no part of another: what of it no optimizer holds.

    The first ``parameters`` of ``names`` are parameters, the others buffers; ``prints`` are as before the step.
    ``variable`` is what the user's code holds it by, empty where that was not seen.
    """

    kind: str
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    parameters: int
    prints: Prints
    file: str
    line: int
    variable: str = ""


class Factor(NamedTuple):
    """A number that a loss was computed with: the operation, its place in the loss's graph, and the graph's shape.

    ``paths`` are where the user's functions held that number before the step's batch was drawn.
    """

    operation: str
    place: int
    shape: int
    value: float
    paths: tuple[str, ...]


class HeldGenerator(NamedTuple):
    """A random generator that an object of the user's holds: where it is from the function that trains, and of whom.

    ``kind`` is the class of the object, of a ``file``, or empty for a variable of a function of that file; ``state`` a
    digest, ``seed`` what it was seeded with, empty where that is not known.
    """

    path: str
    kind: str
    file: str
    state: str
    seed: str


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

    ``mean``: torch has divided by the number of this rank's elements, and nobody by another count; ``line`` is the one
    that asked for the loss's gradients, or 0.
    """

    divided: float
    rest: float
    mean: bool = False
    line: int = 0


class ShardedGradient(NamedTuple):
    """What a rank holds of a sharded gradient: as the last backward has left it, and as the step is given it."""

    name: str
    left: tuple[float, ...]
    given: tuple[float, ...]
