"""The watch as a handler of Ignite: ``watch = Watch()``, and ``watch.attach(trainer)``.

    from ddpdoctor.callbacks.ignite import Watch

    def training(local_rank, config):
        watch = Watch()
        model = idist.auto_model(...)
        trainer = Engine(train_step)
        watch.attach(trainer)

On each rank: within the function that ``idist.Parallel`` or ``idist.spawn`` runs, and first in it. Of a model that was
wrapped before, neither its loaders nor what it is given are looked at.
"""

from __future__ import annotations

from typing import Any

from ddpdoctor.callbacks import needs, parts_of
from ddpdoctor.watch.rank.install import install

needs("pytorch-ignite", (0, 5))
with parts_of("pytorch-ignite"):
    from ignite.engine import Engine, Events


class Watch:
    """Watches each process of an engine from its construction to the end of the engine's run.

    Takes what ``ddpdoctor.install`` takes.
    """

    def __init__(self, **options: Any) -> None:
        """Switch the watch on."""
        self._watch = install(**options)

    def attach(self, engine: Engine) -> None:
        """Have the watch end with the run of an engine: the one that trains."""
        engine.add_event_handler(Events.COMPLETED, self._watch.undo)
