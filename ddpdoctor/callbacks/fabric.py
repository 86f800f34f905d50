"""The watch as a callback of Lightning Fabric: ``Fabric(callbacks=[Watch()])``."""

from __future__ import annotations

from typing import Any

from ddpdoctor.callbacks import needs
from ddpdoctor.watch.rank.install import install

needs("lightning", (2, 0), "lightning-fabric")


class Watch:
    """Watches each process that Fabric starts, from the construction to the end of the program.

    Fabric calls what the script names: ``fabric.call("on_train_end")`` switches the watch off before that. Takes what
    ``ddpdoctor.install`` takes.
    """

    def __init__(self, **options: Any) -> None:
        """Switch the watch on."""
        self._watch = install(**options)

    def on_train_end(self, **_: Any) -> None:
        """Switch the watch off."""
        self._watch.undo()
