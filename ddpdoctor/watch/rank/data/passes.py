"""Passes over loaders in a watched process, and which of them feed a model that trains."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddpdoctor.watch.events import Site
    from ddpdoctor.watch.rank.data.draws import Draws

AHEAD = 2  # batches that a loop draws before a forward takes the first of them: a prefetcher is one ahead
FEWEST = 4  # batches, before it is said of all that each went through the model


@dataclass(slots=True)
class Pass:
    """One pass over a loader; ``forwards`` counts batches that a training forward took, ``whole`` those taken whole.

    ``began`` is how many forwards and steps the process had made before, ``epoch`` how many earlier passes fed a model,
    ``trains`` whether it was begun where a wrapped model trains.
    """

    loader: int
    number: int
    iterable: bool
    site: Site | None
    digested: int
    stride: int
    began: int = 0
    epoch: int = 0
    trains: bool = False
    indices: list[int] = field(default_factory=list)
    drawn: list[int] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)
    batches: int = 0
    waiting: int = 0
    rows: int | None = None
    forwards: int = 0
    whole: int = 0
    joins: bool = False
    told: bool = False
    over: bool = False
    complete: bool = False
    sums: set[int] = field(default_factory=set)
    summed: int = 0
    plain: dict[str, Any] = field(default_factory=dict)

    @property
    def took_all(self) -> bool:
        """Whether each batch that came out went through the model, with all of its rows; the last may wait."""
        return self.batches >= FEWEST and self.whole >= self.batches - 1


@dataclass(slots=True)
class Feed:
    """The passes whose last batches no forward of a wrapped model has followed yet."""

    draws: Draws
    passes: list[Pass] = field(default_factory=list)

    def gave(self, this: Pass, batch: Any) -> None:
        """Take note of a batch that the training was given."""
        this.rows = next(iter(_rows(batch)), None)
        this.waiting += 1
        self.draws.gave(this)
        if this.waiting == 1:
            self.passes.append(this)

    def taken(self, wrapper: Any, given: Any) -> None:
        """Take note of a forward of a wrapped model, and of what it was given."""
        if not self.passes:
            return
        import torch

        trains = wrapper.training and torch.is_grad_enabled()
        rows = _rows(given) if trains else []
        for this in self.passes:
            if trains and this.waiting <= AHEAD:
                this.forwards += 1
                self.draws.taken(this)
                this.whole += this.rows in rows
                this.joins = bool(getattr(getattr(wrapper, "_join_config", None), "enable", False))
            this.waiting = 0
        self.passes.clear()

    def learned(self) -> None:
        """Take note of a backward where nobody has wrapped a model: the last batches were trained with."""
        for this in self.passes:
            if this.waiting <= AHEAD and not this.over:
                this.forwards += 1
                self.draws.taken(this)
            this.waiting = 0
        self.passes.clear()


def _rows(value: Any, depth: int = 0) -> list[int]:
    """List the first dimensions of the tensors in a batch, or the lengths of its lists of texts."""
    if hasattr(value, "shape"):
        return [int(value.shape[0])] if len(value.shape) else []
    if depth > 3:  # noqa: PLR2004 - deeper than batches are
        return []
    if isinstance(value, dict) or hasattr(value, "keys"):
        value = list(dict(value).values())
    if isinstance(value, (list, tuple)):
        if value and isinstance(value[0], str):
            return [len(value)]
        return [rows for each in value[:8] for rows in _rows(each, depth + 1)]
    return []
