"""What ``ddpdoctor explain`` answers: plain frozen data, which the reporters print."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddpdoctor.logs.launchers import TORCHRUN, Launcher

if TYPE_CHECKING:
    from ddpdoctor.facets import Check, Role
    from ddpdoctor.findings import Finding, Severity
    from ddpdoctor.logs.records import Frame, Record


class Confidence(enum.Enum):
    """How sure the first cause is."""

    CERTAIN = "certain"
    """The message has this one cause."""
    LIKELY = "likely"
    """Another part of the log names another cause, later."""
    UNDECIDABLE = "undecidable"
    """The log leaves several causes; the finding's doubt lists them."""


@dataclass(frozen=True, slots=True)
class Named:
    """A check that the log shows: what it found first, where, and how often and on which ranks it stands there."""

    check: Check
    role: Role
    finding: Finding
    record: Record
    count: int
    ranks: tuple[int, ...]
    waits: bool = False
    """Whether those that printed it waited in vain for others."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """An error that no check knows: the exception of the rank that failed first."""

    record: Record
    count: int
    ranks: tuple[int, ...]
    lines_after: int = 0
    """How many lines its source has after the first of it."""
    of_ranks: int = 0
    """How many ranks the log has lines of, or torchrun's summary names."""
    launcher: Launcher = TORCHRUN
    """Who started the ranks, as far as the log tells."""

    @property
    def frames(self) -> tuple[Frame, ...]:
        """The frames of the user's own code; all, where none is. Once each, where ranks printed theirs in between."""
        frames = tuple(frame for frame in self.record.frames if frame.is_users) or self.record.frames
        return tuple(dict.fromkeys(frames)) if len(frames) > len(set(frames)) else frames

    @property
    def raised_in(self) -> Frame | None:
        """The innermost frame, where that is of a package, and the user's own code is above it."""
        last = self.record.frames[-1] if self.record.frames else None
        return last if last and not last.is_users and self.record.users else None


@dataclass(frozen=True, slots=True)
class Own:
    """A finding that ddpdoctor itself printed in the log: its first line is that of the record."""

    severity: Severity
    code: str
    slug: str
    record: Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The first cause, or what comes nearest to one; ``followed`` and the others by their order in the log.

    ``cause`` is None where the log shows none; ``unknown`` is set where an error came first that no check knows.
    """

    cause: Named | None = None
    confidence: Confidence | None = None
    unknown: Unknown | None = None
    also_unknown: Unknown | None = None
    """One beside a cause that only says that ranks waited, where nothing tells which came first."""
    others: tuple[Named, ...] = ()
    """Other causes that the log names, later or less surely."""
    followed: tuple[Named, ...] = ()
    harmless: tuple[Named, ...] = ()
    own: tuple[Own, ...] = ()
    """What ddpdoctor itself has found there, where the log shows no failure otherwise; the gravest first."""
    sources: tuple[str, ...] = ()
    """What was read."""
    lines: int = 0
    notes: tuple[str, ...] = ()
    """What was left out of the logs, and why."""
    faults: tuple[str, ...] = ()
    """What could not be read, and checks that failed."""

    @property
    def first(self) -> Named | None:
        """What the answer begins with: the first cause, or what is harmless where nothing failed."""
        return self.cause or (None if self.unknown else next(iter(self.harmless), None))

    @property
    def named(self) -> tuple[Named, ...]:
        """All that the log names, the first cause first."""
        return (*((self.cause,) if self.cause else ()), *self.others, *self.followed, *self.harmless)
