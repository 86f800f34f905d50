"""Where objects were made, by identity; none is kept alive, and none is written to: they are pickled for workers."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddpdoctor.watch.events import Site

MOST = 1000  # objects


@dataclass(slots=True)
class Built:
    """The user's lines that made objects that are still there."""

    known: dict[int, tuple[weakref.ref[Any], Site]] = field(default_factory=dict)

    def note(self, made: Any, site: Site | None) -> None:
        """Keep where an object was made."""
        if site is None:
            return
        if len(self.known) >= MOST:
            self.known = {identity: each for identity, each in self.known.items() if each[0]() is not None}
        if len(self.known) < MOST:
            self.known[id(made)] = weakref.ref(made), site

    def site(self, made: Any) -> Site | None:
        """Return where an object was made; None where that was not seen."""
        known = self.known.get(id(made))
        return known[1] if known is not None and known[0]() is made else None
