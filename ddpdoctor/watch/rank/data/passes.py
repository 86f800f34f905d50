"""Passes over loaders in a watched process, and which of them feed a model that trains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch.rank.modes import is_training

if TYPE_CHECKING:
    from ddpdoctor.watch.events import Site
    from ddpdoctor.watch.rank.data.draws import Draws
    from ddpdoctor.watch.rank.data.suspended import Streams

AHEAD = 2  # batches that a loop draws before a forward takes the first of them: a prefetcher is one ahead
FOLLOWED = 6  # forwards of a pass over a sampler without a loader
FEWEST = 4  # batches, before it is said of all that each went through the model


@dataclass(slots=True)
class Pass:
    """One pass over a loader; ``forwards`` counts batches that a training forward took, ``whole`` those taken whole.

    ``began`` is how many forwards and steps the process had made before, ``epoch`` how many earlier passes fed a model,
    ``trains`` whether it was begun where a wrapped model trains. ``behind`` are batches that came one after the other,
    and that forwards take one after the other. ``by_hand``: the script goes through a sampler itself. ``drawers`` are
    random generators that the data set holds, by where they are in it.
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
    was_whole: bool = False
    joins: bool = False
    told: bool = False
    over: bool = False
    complete: bool = False
    all_drawn: bool = False
    sums: set[int] = field(default_factory=set)
    summed: int = 0
    behind: int = 0
    by_hand: bool = False
    plain: dict[str, Any] = field(default_factory=dict)
    drawers: tuple[tuple[str, Any], ...] = ()

    @property
    def took_all(self) -> bool:
        """Whether each batch that came out went through the model, with all of its rows; the last may wait."""
        return self.batches >= FEWEST and self.whole >= self.batches - 1


@dataclass(slots=True)
class Feed:
    """The passes whose last batches no forward of a wrapped model has followed yet.

    ``peeked`` are those whose last batch a forward without gradients has followed, in a pass that began as one that
    trains: a GAN makes its samples so, before its discriminator learns from the batch. ``windows`` are those of
    which several batches came before the first forward. ``hand`` is a pass over a sampler that the script goes
    through itself, and ``tell`` what tells of it, until some forwards have followed.
    """

    draws: Draws
    streams: Streams
    passes: list[Pass] = field(default_factory=list)
    windows: list[Pass] = field(default_factory=list)
    peeked: list[Pass] = field(default_factory=list)
    hand: Pass | None = None
    tell: Callable[[], None] | None = None

    def gave(self, this: Pass, batch: Any) -> None:
        """Take note of a batch that the training was given."""
        this.rows = next(iter(_rows(batch)), None)
        this.was_whole = False
        self.peeked.clear()
        this.waiting += 1
        this.behind = 0
        self.draws.gave(this)
        if this.waiting == 1:
            self.passes.append(this)

    def goes_through(self, this: Pass, tell: Callable[[], None]) -> None:
        """Take note that the script begins to go through a sampler itself."""
        if self.hand is not None and self.hand.forwards and self.tell is not None:
            self.tell()
        self.forget()
        self.hand, self.tell = this, tell
        self.passes.append(this)
        self.draws.gave(this)
        this.batches = 1

    def forget(self) -> None:
        """Follow no sampler any more: a loader gives batches, or another pass has begun."""
        self.passes[:] = [each for each in self.passes if each is not self.hand]
        self.hand = self.tell = None

    def stepped(self) -> None:
        """Look at the generators when a step has ended, before the script makes the next batch itself."""
        if self.hand is not None:
            self.hand.batches += 1
            self.draws.gave(self.hand)

    def taken(self, wrapper: Any, given: Any) -> None:
        """Take note of a forward of a wrapped model, and of what it was given."""
        if not (self.passes or self.windows or self.peeked):
            return
        import torch

        in_training = is_training(wrapper)
        trains = in_training and torch.is_grad_enabled()
        rows = _rows(given) if in_training else []
        if in_training and not trains:
            self.peeked += [each for each in self.passes if each.trains]
            for this in self.peeked:
                this.was_whole = this.was_whole or this.rows in rows
        for this in self._at_hand(trains=trains):
            this.forwards += 1
            if this.by_hand:
                this.rows = rows[0] if rows else None
            self.draws.taken(this)
            this.whole += this.was_whole or this.rows in rows
            this.joins = bool(getattr(getattr(wrapper, "_join_config", None), "enable", False))
        self._go_on()

    def learned(self) -> None:
        """Take note of a backward where nobody has wrapped a model: the last batches were trained with."""
        for this in self._at_hand(trains=True):
            if not this.over:
                this.forwards += 1
                self.draws.taken(this)
        self._go_on()

    def _at_hand(self, *, trains: bool) -> list[Pass]:
        """Return the passes whose last batch a forward takes; of a window, once it has taken as many as there were."""
        found = [each for each in self.passes if trains and each.waiting <= AHEAD]
        if trains:
            found += [each for each in self.peeked if not each.over]
            self.peeked.clear()
        for this in self.windows if trains else ():
            this.behind -= 1
            if not this.behind and not this.over:
                this.forwards += 1
        late = [each for each in self.passes if trains and each.waiting > AHEAD]
        self.windows = [each for each in self.windows if trains and each.behind > 0]
        for this in late:
            this.behind = this.waiting - 1
            self.windows.append(this)
        return found

    def _go_on(self) -> None:
        for this in self.passes:
            this.waiting = 0
        self.passes.clear()
        if self.hand is not None and self.hand.forwards < FOLLOWED:
            self.passes.append(self.hand)
        elif self.tell is not None:
            self.tell()
            self.forget()


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
