"""Objects of a process by number: loaders, optimizers, samplers, which ranks can then compare."""

from __future__ import annotations

import weakref
import zlib
from collections import Counter
from collections.abc import Callable

from ddpdoctor.watch.events.numbered import OF_LINES, with_line
from ddpdoctor.watch.user_frames import user_site


class Numbers:
    """Numbers the objects of a kind in the order in which they are first seen, from 0.

    Of a kind of which a rank can have others beside those of all ranks, the number says at which line of the user's one
    was first seen as well: the monitor knows by that which are the same.
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
            number = self._next(what, 0)
            if what in OF_LINES:
                line = _line()
                number = with_line(number, line, self._next(what, line))
            self._numbers[key] = (number, _reference(thing))
        return number

    def _next(self, what: str, line: int) -> int:
        self._counts[what, line] += 1
        return self._counts[what, line] - 1


def _line() -> int:
    """Return a number, from 1, of the user's line that is being executed; of none as well."""
    site = user_site()
    return 1 + zlib.crc32(f"{site.file}:{site.line}".encode() if site is not None else b"")


def _reference(thing: object) -> Callable[[], object]:
    try:
        return weakref.ref(thing)
    except TypeError:  # a list, say: kept, so that its identity stays its own
        return lambda: thing
