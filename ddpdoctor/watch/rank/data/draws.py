"""States of torch's random generators when a batch comes and when the model is given it, in the first batches.

They are read and never set: what the training draws is what it would draw.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ddpdoctor.watch.events import Drew

if TYPE_CHECKING:
    from ddpdoctor.watch.events import Site
    from ddpdoctor.watch.rank.process import Process

PASSES = 4  # of a loader
BATCHES = 3  # of a pass
WORDS = 624  # of a Mersenne twister
NEXT = 16  # bytes before the place of the next one in the state


class Batch(Protocol):
    """The last batch of a pass, as ``Pass`` has it."""

    loader: int
    number: int
    batches: int
    rows: int | None
    site: Site | None


@dataclass(frozen=True, slots=True)
class State:
    """The states of the generators of the CPU and of the current GPU; that of the GPU is empty before it is used."""

    cpu: bytes
    gpu: bytes

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


def now() -> State:
    """Read the states."""
    import torch

    gpu = b""
    used = torch.cuda.is_available() and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    if used and not torch.cuda.is_current_stream_capturing():
        gpu = torch.cuda.get_rng_state().numpy().tobytes()
    return State(torch.get_rng_state().numpy().tobytes(), gpu)


@dataclass(slots=True)
class Draws:
    """The state when a pass gave its last batch, by loader."""

    recorder: Process
    at_batch: dict[int, State] = field(default_factory=dict)

    def gave(self, this: Batch) -> None:
        """Read the state when a batch of the first ones has come."""
        if this.number < PASSES and this.batches <= BATCHES:
            self.at_batch[this.loader] = now()

    def taken(self, this: Batch) -> None:
        """Record it when a model that trains is given the batch."""
        before = self.at_batch.pop(this.loader, None)
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
            site=this.site,
        )
