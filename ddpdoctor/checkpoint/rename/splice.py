"""A change of a file: some bytes become others. All repairs are such changes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Splice:
    """The bytes of ``path`` from ``start`` to ``stop`` become ``data``; ``size`` is the length of the file before."""

    path: str
    size: int
    start: int
    stop: int
    data: bytes

    @property
    def changes(self) -> bool:
        """Whether it does anything."""
        return self.start != self.stop or bool(self.data)


@dataclass(frozen=True, slots=True)
class Growth:
    """``data`` are appended to ``path``, of ``size`` bytes; their last bytes decide whether all the others count.

    ``last`` are these bytes, ``before`` what stands in their place until the others are written: the file is then read
    as if nothing had been appended. They lie within one page, so that they are never there in part.
    """

    path: str
    size: int
    data: bytes
    before: bytes
    last: bytes
