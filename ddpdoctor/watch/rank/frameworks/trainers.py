"""The transformers Trainer: the folder in which all ranks are to find what one of them has saved."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddpdoctor.frameworks import TRAINER
from ddpdoctor.watch.events import SavesInto
from ddpdoctor.watch.rank.frameworks.before import before

if TYPE_CHECKING:
    from ddpdoctor.watch.rank.patch import Wrap
    from ddpdoctor.watch.rank.process import Process

TRAIN = "transformers.trainer.Trainer.train"


@dataclass(slots=True)
class Trainers:
    """How many trainings of a Trainer have begun."""

    recorder: Process
    begun: int = 0

    def hooks(self) -> list[tuple[str, Wrap]]:
        """Return what is to be hooked, by its full name."""
        return [(TRAIN, before(self.recorder, self._tell))]

    def _tell(self, trainer: Any, *_: Any, **__: Any) -> None:
        """Record the folder where each rank is to load the best checkpoint from, which rank 0 has written."""
        if trainer.args.load_best_model_at_end and trainer.args.output_dir:
            folder = os.path.realpath(trainer.args.output_dir)
            self.recorder.emit(SavesInto, framework=TRAINER.name, number=self.begun, folder=folder)
            self.begun += 1
