"""Handles of asynchronous collectives: those that the script drops without ever having waited for them."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ddpdoctor.watch.events import AsyncWorkDropped, Site
from ddpdoctor.watch.user_frames import PACKAGE, frames, is_users

if TYPE_CHECKING:
    from ddpdoctor.watch.rank.process import Process

OWN = ("torch/distributed/distributed_c10d.py", "torch/distributed/c10d_logger.py")  # what a user's call goes through
TWICE = 2  # an exception between the call and the wait drops a handle, once


class Handle(NamedTuple):
    """A collective that was begun and not yet waited for; ``alive`` sees its handle go."""

    operation: str
    group: str
    ordered: bool
    site: Site | None
    alive: weakref.ref[Any]


@dataclass(slots=True)
class Handles:
    """What the user's own code has begun, by the identity of the handle, oldest first."""

    recorder: Process
    waiting: dict[int, Handle] = field(default_factory=dict)
    dropped: dict[tuple[str, Site | None], int] = field(default_factory=dict)

    def began(self, work: Any, operation: str, group: Any, site: Site | None) -> None:
        """Follow the handle of a collective that the user's own code calls; torch's functions wait for some at once."""
        if work is None or not _called_by_user():
            return
        identity = id(work)
        ordered = group.name() != "gloo"  # NCCL runs the collectives of a group in order, on one stream
        alive = weakref.ref(work, lambda _: self._gone(identity))
        self.waiting[identity] = Handle(operation, group.group_name, ordered, site, alive)

    def touched(self, work: Any) -> None:
        """Forget a handle that is waited for, or asked; where they run in order, those of its group before it, too."""
        handle = self.waiting.pop(id(work), None)
        if handle is not None and handle.ordered:
            for identity in [key for key, each in self.waiting.items() if each.group == handle.group]:
                del self.waiting[identity]

    def _gone(self, identity: int) -> None:
        handle = self.waiting.pop(identity, None)
        if handle is not None and self.recorder.is_rank:
            key = (handle.operation, handle.site)
            self.dropped[key] = self.dropped.get(key, 0) + 1
            if self.dropped[key] == TWICE:
                self.recorder.emit(AsyncWorkDropped, operation=handle.operation, count=TWICE, site=handle.site)


def _called_by_user() -> bool:
    """Whether the user's own code called torch's function, and not another part of torch, or a library."""
    for frame in frames():
        file = frame.f_code.co_filename
        if is_users(file):
            return True
        if not file.startswith(PACKAGE) and not file.endswith(OWN):
            return False
    return False
