"""What every event is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ddpdoctor.findings import Place


class Site(NamedTuple):
    """A line of the user's own code; ``line`` counts from 1."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        """Render as editors open it."""
        return f"{self.file}:{self.line}"


def place(site: Site | None, *, rank: int | None = None, key: str | None = None) -> Place:
    """Return a line as findings do; only the rest where no line is known."""
    return Place(file=site and site.file, line=site and site.line, rank=rank, key=key)


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
