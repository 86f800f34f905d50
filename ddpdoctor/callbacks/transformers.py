"""The watch as a callback of the transformers Trainer: ``Trainer(..., callbacks=[Watch()])``.

For Accelerate on its own see ``ddpdoctor.callbacks.accelerate``.
"""

from __future__ import annotations

from typing import Any

from ddpdoctor.callbacks import needs, parts_of

needs("transformers", (4, 40))

with parts_of("transformers"):
    from transformers import TrainerCallback

from ddpdoctor.watch.rank.install import install  # noqa: E402 - see above


class Watch(TrainerCallback):  # type: ignore[misc,unused-ignore]  # without transformers the base class is unknown
    """Watches each process of the Trainer from its construction to the end of the training.

    Takes what ``ddpdoctor.install`` takes.
    """

    def __init__(self, **options: Any) -> None:
        """Switch the watch on."""
        self._watch = install(**options)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002 - its signature
        """Switch the watch off."""
        self._watch.undo()
