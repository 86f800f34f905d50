"""Gradients of which each rank holds a part, as FSDP leaves them: what becomes of a part before the step."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ddpdoctor.checkpoint.keys import FSDP_NAMES
from ddpdoctor.watch.events import ShardedGradient
from ddpdoctor.watch.rank.compared.fingerprints import fold, is_dense, read
from ddpdoctor.watch.rank.model.parameter_names import names_of
from ddpdoctor.watch.rank.model.shards import is_dtensor

MOST = 64  # of an optimizer
INSIDE = re.compile(rf"(?:{'|'.join(FSDP_NAMES)})\.")


@dataclass(slots=True)
class Parts:
    """The sharded parameters of an optimizer whose next step is sampled, and the folds of their gradients by place."""

    parameters: tuple[Any, ...] = ()
    left: dict[int, Any] = field(default_factory=dict)
    given: dict[int, Any] = field(default_factory=dict)

    def watch(self, parameters: Iterable[Any]) -> None:
        """Look at these from now on."""
        self.parameters = tuple(parameters)[:MOST]

    def after_backward(self) -> None:
        """Keep what a backward has left: of several, the last one's is what the step begins with."""
        self.left = dict(self._folds())

    def before_step(self) -> None:
        """Keep what the step is given."""
        self.given = dict(self._folds())

    def told(self) -> tuple[ShardedGradient, ...]:
        """Return what an event has of them; this reads from the device."""
        places = sorted(self.left.keys() & self.given.keys())
        if not places:
            return ()
        names = names_of([self.parameters[at] for at in places], {})
        prints = read([*(self.left[at] for at in places), *(self.given[at] for at in places)])
        pairs = zip(names, prints[: len(places)], prints[len(places) :], strict=True)
        return tuple(
            ShardedGradient(INSIDE.sub("", name), left, given) for name, left, given in pairs if left and given
        )

    def without(self) -> tuple[str, ...]:
        """Name those that require a gradient and have none, of tensors that know how they are sharded."""
        bare = [each for each in self.parameters if each.requires_grad and each.grad is None and is_dtensor(each)]
        return tuple(INSIDE.sub("", name) for name in names_of(bare, {})) if bare else ()

    def forget(self) -> None:
        """Let go of all of them."""
        self.parameters = ()
        self.left.clear()
        self.given.clear()

    def _folds(self) -> Iterable[tuple[int, Any]]:
        for at, each in enumerate(self.parameters):
            own = getattr(each.grad, "_local_tensor", each.grad)  # autograd would record to_local()
            if own is not None and is_dense(own):
                yield at, fold(own)
