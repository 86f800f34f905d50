"""The transformers Trainer: the folder that all ranks find a checkpoint in, and what a script does to the loss."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddpdoctor.frameworks import TRAINER
from ddpdoctor.watch.events import RESUMED, LossOverAllItems, SavesInto, Site
from ddpdoctor.watch.rank.frameworks.before import before
from ddpdoctor.watch.rank.graph.constants import constants, is_other, other_number, tells_hooks
from ddpdoctor.watch.user_frames import is_users

if TYPE_CHECKING:
    from ddpdoctor.watch.rank.patch import Wrap
    from ddpdoctor.watch.rank.process import Process

CLASS = "transformers.trainer.Trainer"
SURE = 2  # losses that show the same
FIRST = 8  # losses that are looked at
QUOTIENT = "DivBackward0"


@dataclass(slots=True)
class Trainers:
    """How many trainings of a Trainer have begun; the last of them, and the items of the batches it has last drawn."""

    recorder: Process
    begun: int = 0
    last: weakref.ref[Any] | None = None
    items: Any = None
    looked: int = 0
    seen: int = 0

    def hooks(self) -> list[tuple[str, Wrap]]:
        """Return what is to be hooked, by its full name."""
        return [
            (f"{CLASS}.train", before(self.recorder, self._begins)),
            (f"{CLASS}.get_batch_samples", self._drawing),
        ]

    def forget(self) -> None:
        """Begin anew in a child that was forked."""
        self.begun, self.last, self.items, self.looked, self.seen = 0, None, None, 0, 0

    def bypassed(self) -> int:
        """Return the steps of accumulation of the Trainer that trains."""
        trainer = self.last() if self.last is not None else None
        return int(getattr(getattr(trainer, "args", None), "gradient_accumulation_steps", 1))

    def learns(self, loss: Any) -> None:
        """Look whether a loss that Accelerate is handed was divided by the items of all ranks, and by no more."""
        trainer, items = self.last() if self.last is not None else None, self.items
        if trainer is None or items is None or self.looked >= FIRST or not tells_hooks():
            return
        self.looked += 1
        code = getattr(getattr(type(trainer), "compute_loss", None), "__code__", None)
        tensor_parallel = getattr(trainer, "get_tp_size", lambda: 1)()
        ranks = trainer.accelerator.num_processes // max(1, tensor_parallel)
        node = _before_accumulation(getattr(loss, "grad_fn", None), trainer.args.gradient_accumulation_steps)
        if code is None or not is_users(code.co_filename) or ranks <= 1 or node is None:
            return
        if node.name() != QUOTIENT or not is_other(node, items) or any(each.value == ranks for each in constants(loss)):
            return
        self.seen += 1
        if self.seen == SURE:
            where = Site(code.co_filename, code.co_firstlineno, code.co_name)
            self.recorder.emit(LossOverAllItems, ranks=ranks, site=where)

    def _begins(self, trainer: Any, *given: Any, **named: Any) -> None:
        """Record the folder where each rank looks for a checkpoint, which rank 0 has written."""
        self.last = weakref.ref(trainer)
        resumed = named.get("resume_from_checkpoint", given[0] if given else None)
        folder = resumed if isinstance(resumed, (str, os.PathLike)) else trainer.args.output_dir
        if folder and (resumed or trainer.args.load_best_model_at_end):
            tag = RESUMED if resumed else ""
            folder = os.path.realpath(folder)
            self.recorder.emit(SavesInto, framework=TRAINER.name, number=self.begun, folder=folder, tag=tag)
            self.begun += 1

    def _drawing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def get_batch_samples(trainer: Any, *args: Any, **kwargs: Any) -> Any:
            found = original(trainer, *args, **kwargs)
            self.items = None
            if self.recorder.is_rank and self.looked < FIRST:
                self.recorder.safely(self._drawn, trainer, found)
            return found

        return get_batch_samples

    def _drawn(self, trainer: Any, found: Any) -> None:
        if getattr(trainer.args, "average_tokens_across_devices", False):
            self.items = found[1]


def _before_accumulation(node: Any, steps: int) -> Any:
    """Return the end of a loss's graph, but for a division by the steps of accumulation, which is the Trainer's."""
    if steps > 1 and node is not None and node.name() == QUOTIENT and other_number(node) == steps:
        return node.next_functions[0][0]
    return node
