"""The lines of the user's that steps spend their time in, and the calls that keep them waiting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ddpdoctor.watch.events.base import Event


class TimedCall(NamedTuple):
    """Calls of one kind that a line of the user's made: how often, in how many steps, nanoseconds of the median one.

    ``numbers``: the most that one of them gave to a collective.
    """

    what: str
    file: str
    line: int
    function: str
    times: int
    steps: int
    nanoseconds: int
    numbers: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CallsTimed(Event):
    """The calls that kept so many steps waiting which were measured closely, those that took longest first.

    They are of the thread that trains, made by the user's own lines: tensors read, collectives, prints, logging.
    """

    steps: int
    calls: tuple[TimedCall, ...]


class LineKind:
    """What torch or Python can do for a line of the user's: ``SampledLine.kind``, empty for the user's own code."""

    DATA = "data"
    LOADER_BEGUN = "loader begun"
    FORWARD = "forward"
    MODULE_CALLED = "module called"
    RECOMPUTED = "recomputed"
    STACK_KEPT = "stack kept"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    GRAPH_SEARCHED = "graph searched"
    BUFFERS_BROADCAST = "buffers broadcast"
    COLLECTIVE = "collective"
    OBJECTS_EXCHANGED = "objects exchanged"
    CHECKPOINT_WRITTEN = "checkpoint written"
    STATE_LOADED = "state loaded"
    COPIED = "copied"
    CACHE_EMPTIED = "cache emptied"
    LOGGING = "logging"
    GARBAGE_COLLECTED = "garbage collected"
    SERVER_ASKED = "server asked"
    PROGRAM_WAITED_FOR = "program waited for"


class SampledLine(NamedTuple):
    """A line of the loop that makes the steps: nanoseconds by the clock and of the processor, in how many steps.

    ``kind`` is what torch or Python did there for it (``LineKind``), empty where that was the user's own code.
    ``inner`` is the innermost line of the user's that it spent most in, for ``most`` nanoseconds. ``waited`` are the
    nanoseconds in which it had no core. ``inside`` are the innermost lines that it spent most in, longest first: file,
    line, function, and nanoseconds by the clock, of the processor, and without a core.
    """

    kind: str
    file: str
    line: int
    function: str
    nanoseconds: int
    processor: int
    steps: int
    inner_file: str
    inner_line: int
    inner_function: str
    most: int
    waited: int = 0
    inside: tuple[tuple[str, int, str, int, int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LinesSampled(Event):
    """Where the thread that trains was in so many steps, looked at every few milliseconds: the longest lines first.

    ``nanoseconds`` and ``processor`` are of all samples together, by the clock and of the processor; ``waited`` are the
    nanoseconds of them in which the thread waited for a core.
    """

    steps: int
    nanoseconds: int
    processor: int
    sampled: tuple[SampledLine, ...]
    waited: int = 0
