"""The meeting of the hosts as it goes on: what it is begun with, and what is asked of it once they have met.

The stages, each begun by what the server says: hello (who is there), row (who reaches whom), warm (jobs can begin),
joint and model (jobs over all), carried (what the links carry), alone (what each found without torch), done (the rest
of it).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ddpdoctor.cluster.cluster import Cluster, Joint, Throughput
from ddpdoctor.cluster.host import LONGEST, Host, ProtocolError
from ddpdoctor.cluster.joint.throughput import row_from
from ddpdoctor.cluster.plan import links
from ddpdoctor.cluster.probing import OK

if TYPE_CHECKING:
    from ddpdoctor.cluster.joint.throughput import Row
    from ddpdoctor.cluster.wire.client import Client
    from ddpdoctor.cluster.wire.server import Guest, Server
    from ddpdoctor.host.network import Network

ROW = 30.0  # seconds for all tries of a host
WARMING = 60.0  # seconds in which a host imports torch
LONGER = 10.0  # seconds that other hosts may take for a job, beyond its deadline

SILENT = "it said nothing"
WARM, CARRIED, ALONE, DONE = "warm", "carried", "alone", "done"

Say = Callable[[str], None]
RunJoint = Callable[[int, int, int], tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Board:
    """Where one host writes down the port at which it waits, and the others read it; both raise OSError in vain."""

    put: Callable[[int], None]
    get: Callable[[float], int]


@dataclass(frozen=True, slots=True)
class Invitation:
    """Who this host is, whom it waits for, how long, and by what token they know each other.

    ``board`` is torchrun's store, where it holds the master's port.
    ``patient``: names and routes come with the hosts, as in Kubernetes; that there is none yet proves nothing.
    """

    host: Host
    expected: int
    wait: float
    token: bytes
    network: Network
    say: Say
    patient: bool = False
    board: Board | None = None


@dataclass(slots=True)
class Meeting:
    """A meeting that goes on; exactly one of ``server`` and ``client`` is there, or none: then nobody was met."""

    cluster: Cluster
    here: int
    server: Server | None = None
    client: Client | None = None
    guests: dict[int, Guest] = field(default_factory=dict)
    warm: bool = False
    """Whether all hosts are ready for jobs over all of them."""
    sound: bool = False
    """Whether all hosts came and reach each other, and the jobs over all of them went well so far."""

    @property
    def clean(self) -> bool:
        """Whether each host reaches each other that it tries: else a job over all of them hangs."""
        count = len(self.cluster.hosts)
        reached = {(each.source, each.target) for each in self.cluster.links if each.state == OK}
        return count > 1 and len(reached) == links(count)

    def warm_up(self, start: Callable[[], bool], seconds: float, *, wanted: bool) -> None:
        """Start what runs the jobs, on all hosts, where there can be any; ``start`` returns whether that went well.

        They begin together then: one that imports torch for half a minute is not waited for in vain.
        """
        if not self.agree(WARM, wanted and self.clean and self._complete, time.monotonic() + ROW + ROW):
            return
        self.warm = wanted and start()
        if self.client is not None:
            with contextlib.suppress(OSError):
                self.client.tell(WARM, warm=self.warm)
        elif self.server is not None:
            guests = self.guests.values()
            self.server.collect(WARM, lambda have: len(have) >= still(guests, WARM), time.monotonic() + seconds)
            self.warm = self.warm and all(guest.said.get(WARM, {}).get("warm") is True for guest in guests)

    @property
    def _complete(self) -> bool:
        return self.here == 0 and len(self.cluster.hosts) == self.cluster.expected

    def run_joint(self, stage: str, run: RunJoint, port: Callable[[], int], seconds: float) -> None:
        """Run a job over all hosts; ``run`` returns the step that failed and what failed, empty where all is right."""

        def told(*where: int) -> dict[str, str]:
            step, problem = run(*where)
            return {"step": step[:LONGEST], "problem": problem[:LONGEST]}

        silent = {"step": stage, "problem": SILENT}
        every = ((seat, said or silent) for seat, said in self._on_all(stage, told, port, seconds).items())
        joint = tuple(
            Joint(seat, "gloo", str(said.get("problem", SILENT))[:LONGEST], str(said.get("step", ""))[:LONGEST])
            for seat, said in every
        )
        self.cluster = replace(self.cluster, joint=self.cluster.joint + joint)

    def measure(self, run: Callable[[int, int, int], Row], port: Callable[[], int], seconds: float) -> None:
        """Measure what the links between the hosts carry."""

        def told(*where: int) -> dict[str, Row]:
            return {CARRIED: run(*where)}

        found: list[Throughput] = []
        for seat, said in self._on_all(CARRIED, told, port, seconds).items():
            with contextlib.suppress(ProtocolError):
                found += row_from(said.get(CARRIED, []), seat, len(self.cluster.hosts))
        self.cluster = replace(self.cluster, carried=tuple(found))

    def _on_all(
        self, stage: str, run: Callable[..., dict[str, Any]], port: Callable[[], int], seconds: float
    ) -> dict[int, dict[str, Any]]:
        """Run a job on all hosts, for so many seconds at most; return what each told, where all meet.

        ``run`` gets the master's port, the rank and world size. A port of 0: there is no job, and the other hosts are
        told so. What a host told is empty where it said nothing in time.
        """
        count = len(self.cluster.hosts)
        if self.server is not None:
            self.sound = self.clean and self._complete and not any(each.problem for each in self.cluster.joint)
            number = port() if self.sound and self.warm else 0
            self.server.announce({stage: number, "sound": self.sound}, list(self.guests.values()))
            if number:
                said = {self.here: run(number, self.here, count)}
                until = time.monotonic() + seconds + LONGER
                self.server.collect(stage, lambda have: len(have) >= still(self.guests.values(), stage), until)
                said |= {seat: guest.said.get(stage, {}) for seat, guest in self.guests.items()}
                return dict(sorted(said.items()))
        elif self.client is not None:
            with contextlib.suppress(OSError, ProtocolError, KeyError, TypeError, ValueError):
                told = self.client.hear(time.monotonic() + WARMING + ROW)
                number, self.sound = int(told[stage]), told["sound"] is True
                if number:
                    self.client.tell(stage, **run(number, self.here, count))
        return {}

    def agree(self, stage: str, fact: bool, until: float) -> bool:  # noqa: FBT001 - it is the one thing that is told
        """Tell the others whether something holds, or hear it from the one where all meet; False where it is gone."""
        if self.server is not None:
            self.server.announce({stage: fact}, list(self.guests.values()))
            return fact
        if self.client is None:
            return False
        try:
            return self.client.hear(until)[stage] is True
        except (OSError, ProtocolError, KeyError, TypeError):
            return False

    def report(self, findings: list[dict[str, Any]], stage: str = DONE) -> bool:
        """Send the server what was found here; return whether it has taken it."""
        if self.client is None:
            return False
        try:
            self.client.tell(stage, findings=findings)
        except OSError:
            return False
        return True

    def reported(self, until: float, stage: str = DONE) -> dict[int, object]:
        """Return what the other hosts found, as far as they say it in time."""
        if self.server is None:
            return {}
        guests = self.guests
        self.server.collect(stage, lambda have: len(have) >= still(guests.values(), stage), until)
        return {seat: guest.said[stage].get("findings") for seat, guest in guests.items() if stage in guest.said}


def still(guests: Iterable[Guest], stage: str) -> int:
    """Count those from whom something can still come, or has."""
    return len([guest for guest in guests if not guest.gone or stage in guest.said])
