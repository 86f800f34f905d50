"""What the parts of a rank's watch ask of the recorder that they belong to."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ddpdoctor.watch.event_log import Writer
    from ddpdoctor.watch.events import Event
    from ddpdoctor.watch.rank.patch import Patch
    from ddpdoctor.watch.settings import Settings


class Process(Protocol):
    """A watched process, as ``Recorder`` is one."""

    settings: Settings
    late: list[Patch]
    rank: int | None
    log: Writer | None
    last_looks: list[Callable[[], None]]

    @property
    def is_rank(self) -> bool:
        """Whether this process was told a rank, or joins a process group."""

    @property
    def writer(self) -> Writer:
        """The event log of a process that is a rank."""

    def become_rank(self, rank: int | None) -> None:
        """Open the event log; from now on the monitor sees this process."""

    def emit(self, event: type[Event], /, **values: Any) -> None:
        """Write an event of this process, if it is a rank."""

    def number(self, what: str, thing: object) -> int:
        """Return the number of an object of a kind, in the order in which they are first seen."""

    def safely(self, function: Callable[..., None], *args: Any) -> None:
        """Call a function of the watch; if it fails itself, training goes on."""
