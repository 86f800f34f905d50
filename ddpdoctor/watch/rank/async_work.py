"""Handles of asynchronous collectives: those that the script drops, or steps past, without having waited for them."""

from __future__ import annotations

import functools
import sys
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ddpdoctor.watch.events import AsyncWorkDropped, GradientsInFlight, Site
from ddpdoctor.watch.user_frames import PACKAGE, is_users, user_site

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType

    from ddpdoctor.watch.rank.process import Process

OWN = ("torch/distributed/distributed_c10d.py", "torch/distributed/c10d_logger.py")  # what a user's call goes through
TWICE = 2  # an exception between the call and the wait drops a handle, once
WRITES_TO_ITS_OWN = frozenset({"all_reduce", "all_reduce_coalesced", "broadcast", "reduce"})
MOST = 10_000  # tensors that are kept in mind


class Handle(NamedTuple):
    """A collective that was begun and not yet waited for; ``alive`` sees its handle go, ``memory`` is written to."""

    operation: str
    group: str
    ordered: bool
    site: Site | None
    alive: weakref.ref[Any]
    memory: tuple[int, ...]


@dataclass(slots=True)
class Handles:
    """What the user's own code has begun, by the identity of the handle, oldest first."""

    recorder: Process
    waiting: dict[int, Handle] = field(default_factory=dict)
    dropped: dict[tuple[str, Site | None], int] = field(default_factory=dict)
    in_flight: dict[int, int] = field(default_factory=dict)
    """Whose handle writes to the memory that begins there, of groups whose collectives end in any order."""
    stepped: int = 0

    def began(self, work: Any, operation: str, group: Any, site: Site | None, given: Any) -> None:
        """Follow the handle of a collective that the user's own code calls; torch's functions wait for some at once."""
        if work is None or not _called_by_user():
            return
        identity = id(work)
        ordered = group.name() != "gloo"  # NCCL runs the collectives of a group in order, on one stream
        alive = weakref.ref(work, lambda _: self._gone(identity))
        writes = not ordered and operation in WRITES_TO_ITS_OWN and isinstance(given, (list, tuple))
        room = MOST - len(self.in_flight)
        memory = tuple(filter(None, map(_address, given))) if writes and len(given) <= room else ()
        self.in_flight.update(dict.fromkeys(memory, identity))
        self.waiting[identity] = Handle(operation, group.group_name, ordered, site, alive, memory)

    def touched(self, work: Any) -> None:
        """Forget a handle that is waited for, or asked; where they run in order, those of its group before it, too."""
        handle = self._taken(id(work))
        if handle is not None and handle.ordered:
            for identity in [key for key, each in self.waiting.items() if each.group == handle.group]:
                del self.waiting[identity]

    def steps(self, groups: Iterable[dict[str, Any]]) -> None:
        """Look at the gradients that a step is given, while something is under way."""
        if not self.in_flight or self.stepped >= TWICE:
            return
        grads = [each.grad for group in groups for each in group["params"] if each.grad is not None]
        found = [self.in_flight[at] for each in grads if (at := _address(each)) in self.in_flight]
        if not found:
            return
        self.stepped += 1
        if self.stepped == TWICE:
            handle, place = self.waiting[found[0]], user_site()
            told = {"file": place.file, "line": place.line} if place else {}
            self.recorder.emit(
                GradientsInFlight, operation=handle.operation, parameters=len(found), count=TWICE, site=handle.site,
                **told,
            )  # fmt: skip

    def _taken(self, identity: int) -> Handle | None:
        handle = self.waiting.pop(identity, None)
        for at in handle.memory if handle is not None else ():
            if self.in_flight.get(at) == identity:
                del self.in_flight[at]
        return handle

    def _gone(self, identity: int) -> None:
        handle = self._taken(identity)
        if handle is not None and self.recorder.is_rank:
            key = (handle.operation, handle.site)
            self.dropped[key] = self.dropped.get(key, 0) + 1
            if self.dropped[key] == TWICE:
                self.recorder.emit(AsyncWorkDropped, operation=handle.operation, count=TWICE, site=handle.site)


def _address(tensor: Any) -> int:
    """Return where a tensor begins in memory; 0 for one without elements, or without memory of its own."""
    try:
        return int(tensor.data_ptr())
    except RuntimeError:  # sparse ones, among others
        return 0


def _called_by_user() -> bool:
    """Whether the user's own code called torch's function, and not another part of torch, or a library."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - as user_frames does, for each communication
    while frame is not None and _passes_on(frame.f_code.co_filename):
        frame = frame.f_back
    return frame is not None and is_users(frame.f_code.co_filename)


@functools.cache
def _passes_on(file: str) -> bool:
    """Whether a call of the user's goes through a file to the collective: one of torch's own, or of the watch."""
    return not is_users(file) and (file.startswith(PACKAGE) or file.endswith(OWN))
