"""Where logs come from: files, each with the rank and the host that its name tells."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Origin:
    """The name of a source as reports give it, and the rank and node whose output it is, where its path tells."""

    name: str
    rank: int | None = None
    node: str | None = None
