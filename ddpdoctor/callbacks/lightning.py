"""The watch as a callback of Lightning: ``Trainer(callbacks=[Watch()])``."""

from __future__ import annotations

from typing import Any

from ddpdoctor.callbacks import needs, parts_of

needs("lightning", (2, 0))

with parts_of("lightning"):
    from lightning.pytorch import Callback, LightningModule, Trainer

from ddpdoctor.watch.rank.install import install  # noqa: E402 - see above


class Watch(Callback):
    """Watches each process of the Trainer from its construction, which every rank does, to the end of the fit.

    Takes what ``ddpdoctor.install`` takes.
    """

    def __init__(self, **options: Any) -> None:
        """Switch the watch on."""
        self._watch = install(**options)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:  # noqa: ARG002
        """Explain what the Trainer is about to raise."""
        self._watch.recorder.explain(exception)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:  # noqa: ARG002 - its signature
        """Switch the watch off."""
        self._watch.undo()
