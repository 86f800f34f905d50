"""What the watch knows of a running training: all events of all ranks, as checks ask for them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ddpdoctor.frameworks import FRAMEWORK_WORDS, Framework
from ddpdoctor.watch.events import Event, FrameworkSeen, Joined, Joining

AnyEvent = TypeVar("AnyEvent", bound=Event)
Concluded = TypeVar("Concluded")


@dataclass(frozen=True, slots=True)
class Training:
    """All events so far; a check reads, the monitor adds.

    ``rivals`` are processes that joined, at the same place, as a rank that another process is, or at another place as
    a rank that is missing here: each for itself is taken for a training of its own.
    """

    _events: dict[type[Event], list[Event]] = field(default_factory=lambda: defaultdict(list))
    rivals: list[Joining] = field(default_factory=list)
    _concluded: dict[tuple[object, int], tuple[Event, Any]] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        """Take up one more event."""
        self._concluded.clear()
        self._events[type(event)].append(event)

    def once(self, conclude: Callable[[AnyEvent, Training], Concluded], event: AnyEvent) -> Concluded:
        """Return what is concluded of an event, which many checks ask for: anew only where more has been told since."""
        key = (conclude, id(event))  # the event is kept, so that no other one gets its place
        if key not in self._concluded:
            self._concluded[key] = (event, conclude(event, self))
        found: Concluded = self._concluded[key][1]
        return found

    def hand_over(self, pid: int, other: Training) -> None:
        """Hand all events of a process over to another training: it has turned out to be one of its ranks."""
        self._concluded.clear()
        for kind, events in self._events.items():
            for event in [each for each in events if each.pid == pid]:
                other.add(event)
            self._events[kind] = [each for each in events if each.pid != pid]

    def of(self, kind: type[AnyEvent], **having: Any) -> list[AnyEvent]:
        """List the events of a type, in the order in which they were read, that have these values."""
        found: list[Any] = self._events.get(kind, [])[:]
        for name, value in having.items():
            found = [event for event in found if getattr(event, name) == value]
        return found

    def by_rank(self, kind: type[AnyEvent], **having: Any) -> dict[int, AnyEvent]:
        """Return each rank's last event of a type that has these values, by rank."""
        found = {event.rank: event for event in self.of(kind, **having) if event.rank is not None}
        return dict(sorted(found.items()))

    def complete(self, kind: type[AnyEvent], **having: Any) -> dict[int, AnyEvent]:
        """Return ``by_rank`` once every rank of the training has told; empty until then."""
        found = self.by_rank(kind, **having)
        return found if len(found) == self.world_size > 1 else {}

    @property
    def world_size(self) -> int:
        """The number of ranks, as init_process_group was told; 0 before."""
        return max((event.world_size for event in self.of(Joined)), default=0)

    @property
    def framework(self) -> Framework | None:
        """The framework that wraps the model, or else makes the process group; None where the user's code does."""
        seen = self.of(FrameworkSeen, wraps=True) or self.of(FrameworkSeen)
        return FRAMEWORK_WORDS.get(seen[-1].framework) if seen else None

    def before(self, event: AnyEvent, **having: Any) -> Iterator[AnyEvent]:
        """Yield the earlier events of the same type, process and values, latest first."""
        for other in reversed(self.of(type(event), pid=event.pid, **having)):
            if other is not event and other.time <= event.time:
                yield other
