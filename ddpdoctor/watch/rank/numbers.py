"""Objects of a process by number: loaders, optimizers, samplers, which ranks can then compare."""

from __future__ import annotations

import weakref
import zlib
from collections import Counter
from collections.abc import Callable

from ddpdoctor.watch.user_frames import user_site

OF_LINES = {"optimizer"}
"""Kinds of which a rank can have others beside those of all ranks: a teacher that rank 0 trains by itself."""
LINES, OF_A_LINE = 2**20, 2**10


class Numbers:
    """Numbers the objects of a kind in the order in which they are first seen, from 0.

    Those of some kinds are numbered within the line of the user's at which they are first seen, so that ranks know the
    same object by the same number though one of them has made others before.
    """

    def __init__(self) -> None:
        """Begin with nothing seen."""
        self._numbers: dict[tuple[str, int], tuple[int, Callable[[], object]]] = {}
        self._counts: Counter[tuple[str, int]] = Counter()

    def __call__(self, what: str, thing: object) -> int:
        """Return the number of an object of a kind."""
        key = (what, id(thing))
        number, alive = self._numbers.get(key, (0, None))
        if alive is None or alive() is not thing:  # not seen, or one that took the place of one that was freed
            line = _line() if what in OF_LINES else 0
            number = line * OF_A_LINE + min(self._counts[what, line], OF_A_LINE - 1) if line else self._counts[what, 0]
            self._counts[what, line] += 1
            self._numbers[key] = (number, _reference(thing))
        return number


def _line() -> int:
    """Return a number of the user's line that is being executed; 0 where there is none."""
    site = user_site()
    return zlib.crc32(f"{site.file}:{site.line}".encode()) % LINES if site is not None else 0


def _reference(thing: object) -> Callable[[], object]:
    try:
        return weakref.ref(thing)
    except TypeError:  # a list, say: kept, so that its identity stays its own
        return lambda: thing
