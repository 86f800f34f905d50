"""How a rank of a job ended: with a value, an exception, its death, or stuck at a stack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddpdoctor.host.stack import Frame


@dataclass(frozen=True, slots=True)
class Returned:
    """The rank's function returned ``value``."""

    rank: int
    output: str
    value: Any


@dataclass(frozen=True, slots=True)
class Raised:
    """The rank's function raised; ``frames`` run from the outermost call to the place of the error."""

    rank: int
    output: str
    kind: str
    message: str
    traceback: str
    frames: tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class Died:
    """The rank's process ended before its function did, by a signal or by an exit."""

    rank: int
    output: str
    signal: int | None
    exitcode: int | None


@dataclass(frozen=True, slots=True)
class Stuck:
    """The rank was still running when the job ended; ``stack`` runs from the innermost frame outwards."""

    rank: int
    output: str
    stack: tuple[Frame, ...]


Outcome = Returned | Raised | Died | Stuck
