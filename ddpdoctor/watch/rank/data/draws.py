"""States of the global random generators when a batch comes and when the model is given it, in the first batches.

They are read and never set: what the training draws is what it would draw.
"""

from __future__ import annotations

import hashlib
import random
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ddpdoctor.watch.events import Drew
from ddpdoctor.watch.rank.data.dataset_digest import digest
from ddpdoctor.watch.rank.data.generators import state_of
from ddpdoctor.watch.rank.data.index_digest import bytes_of

if TYPE_CHECKING:
    from ddpdoctor.watch.events import Site
    from ddpdoctor.watch.rank.process import Process

PASSES = 4  # of a loader
BATCHES = 3  # of a pass
WORDS = 624  # of a Mersenne twister
NEXT = 16  # bytes before the place of the next one in the state


class Batch(Protocol):
    """The last batch of a pass, as ``Pass`` has it; ``drawers`` are generators that its data set holds."""

    drawers: tuple[tuple[str, Any], ...]
    loader: int
    number: int
    batches: int
    rows: int | None
    site: Site | None


@dataclass(frozen=True, slots=True)
class Twister:
    """The state of a generator that is no part of torch: its key, and the place of the next word in it."""

    name: str
    key: bytes
    place: int

    def digest(self) -> str:
        """Return a short hash."""
        return hashlib.blake2b(self.key + self.place.to_bytes(4, "little"), digest_size=8).hexdigest()

    def drawn_since(self, before: Twister) -> int:
        """Return how many numbers were drawn, at least: each takes two words at most."""
        words = self.place - before.place if self.key == before.key else WORDS - before.place + self.place
        return max(words, 0) // 2


@dataclass(frozen=True, slots=True)
class State:
    """The states of the generators of the CPU and of the current GPU; that of the GPU is empty before it is used.

    ``held`` are digests of those of generators that the data set holds, by where they are in it.
    """

    cpu: bytes
    gpu: bytes
    twisters: tuple[Twister, ...] = ()
    held: tuple[tuple[str, str], ...] = ()

    def others_since(self, before: State) -> tuple[tuple[str, str, int], ...]:
        """Return what was drawn from generators of other libraries than torch: their name, state, and how many."""
        pairs = ((this, last) for this in self.twisters for last in before.twisters if this.name == last.name)
        return tuple((this.name, this.digest(), this.drawn_since(last)) for this, last in pairs if this != last)

    def all_since(self, before: State) -> tuple[tuple[str, str, int], ...]:
        """Return the same of all libraries, torch among them, and of held ones, of which any draw counts as many."""
        drawn = self.drawn_since(before)
        moved = ((name, state, WORDS) for name, state in self.held if dict(before.held).get(name, state) != state)
        return (*((("torch", self.digest(), drawn),) if drawn else ()), *self.others_since(before), *moved)

    def digest(self) -> str:
        """Return a short hash of both."""
        return hashlib.blake2b(self.cpu + self.gpu, digest_size=8).hexdigest()

    def drawn_since(self, before: State) -> int:
        """Return how many numbers were drawn on the CPU, at least; on the GPU any draw counts as many."""
        if self.gpu != before.gpu:
            return WORDS
        if self.cpu == before.cpu:
            return 0
        this, last = _place(self.cpu), _place(before.cpu)
        return this - last if this > last else WORDS - last + this


def _place(state: bytes) -> int:
    place: int = struct.unpack_from("<Q", state, NEXT)[0]
    return min(place, WORDS)


def now(drawers: tuple[tuple[str, Any], ...] = ()) -> State:
    """Read the states, those of a data set's own generators among them."""
    import torch

    gpu = b""
    used = torch.cuda.is_available() and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    if used and not torch.cuda.is_current_stream_capturing():
        gpu = bytes_of(torch.cuda.get_rng_state())
    held = tuple((name, digest(state_of(each))) for name, each in drawers)
    return State(bytes_of(torch.get_rng_state()), gpu, tuple(_twisters()), held)


def _twisters() -> Iterator[Twister]:
    """Read the global generators of Python, and of numpy where that is imported."""
    _, words, _ = random.getstate()
    yield Twister("Python's random", struct.pack(f"<{WORDS}I", *words[:WORDS]), words[WORDS])
    numpy = sys.modules.get("numpy.random")
    state = numpy.get_state(legacy=False) if numpy is not None else {}
    if state.get("bit_generator") == "MT19937":
        yield Twister("numpy.random", state["state"]["key"].tobytes(), int(state["state"]["pos"]))


@dataclass(slots=True)
class Draws:
    """The state when a pass gave its last batch, and when it was asked for it, by loader."""

    recorder: Process
    at_batch: dict[int, State] = field(default_factory=dict)
    at_ask: dict[int, State] = field(default_factory=dict)

    def asked(self, this: Batch) -> None:
        """Read the state when one of the first batches is asked for, after ``batches`` others."""
        if this.number < PASSES and this.batches < BATCHES:
            self.at_ask[this.loader] = now(this.drawers)

    def gave(self, this: Batch) -> None:
        """Read the state when a batch of the first ones has come."""
        if this.number < PASSES and this.batches <= BATCHES:
            self.at_batch[this.loader] = now(this.drawers)

    def taken(self, this: Batch) -> None:
        """Record it when a model that trains is given the batch."""
        before, asked = self.at_batch.pop(this.loader, None), self.at_ask.pop(this.loader, None)
        if before is None or this.number >= PASSES or this.batches > BATCHES:
            return
        state = now()
        self.recorder.emit(
            Drew,
            loader=this.loader,
            number=this.number,
            batch=this.batches,
            rows=this.rows or 0,
            state=state.digest(),
            drawn=state.drawn_since(before),
            others=state.others_since(before),
            fetched=before.all_since(asked) if asked is not None else (),
            site=this.site,
        )
