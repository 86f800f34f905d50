"""The host that the others come to: waits for them, tells each who is there, and hears whom each reaches."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ddpdoctor.cluster.cluster import Cluster
from ddpdoctor.cluster.compared.folders import marks_from, marks_seen
from ddpdoctor.cluster.host import Host, ProtocolError, as_data, host_from
from ddpdoctor.cluster.matrix import row, row_from
from ddpdoctor.cluster.meet.meeting import ROW, Meeting, still
from ddpdoctor.cluster.plan import targets
from ddpdoctor.cluster.wire.protocol import as_text
from ddpdoctor.host.network import half_open

if TYPE_CHECKING:
    from ddpdoctor.cluster.meet.meeting import Invitation
    from ddpdoctor.cluster.wire.server import Guest, Server

NOWHERE = '""'
BRIEF = ("name", "node", "rank")
EVERY = 10.0  # seconds between two lines that say who is absent
LATECOMERS = 2.0  # seconds


def serve(invitation: Invitation, server: Server) -> Meeting:
    """Wait for the hosts that are expected, as long as they may take; return the meeting of those that came."""
    started = time.monotonic()
    guests = _wait_for_all(invitation, server, started)
    hosts, came, skews = [invitation.host], [""], [0.0]
    present = []
    for guest in guests:
        try:
            hosts.append(host_from(guest.said["hello"].get("host")))
        except ProtocolError:
            continue
        skews.append(_number(guest.said["hello"].get("skew")))
        came.append(guest.address)
        present.append(guest)
    came[0] = present[0].ours if present else ""
    order = sorted(range(len(hosts)), key=lambda each: _by_number(hosts[each], ours=each == 0))
    listed = tuple(hosts[each] for each in order)
    here = order.index(0)
    seats = {order.index(number + 1): guest for number, guest in enumerate(present)}
    cluster = Cluster(
        listed,
        invitation.expected,
        skews=tuple(skews[each] for each in order),
        strangers=tuple(server.strangers),
        waited=time.monotonic() - started,
        half_open=half_open(invitation.host.port) if len(listed) < invitation.expected else (),
    )
    came_in_order = tuple(came[each] for each in order)
    meeting = Meeting(cluster, here, server, None, seats)
    roster = Roster.of(tuple(map(_essence, listed)), came_in_order)
    for seat, guest in seats.items():
        server.tell(guest, roster.letter(seat))
    server.full = roster.full()
    links, sees = list(row(here, listed, came_in_order)), list(marks_seen(here, listed))
    server.collect("row", lambda have: len(have) >= still(present, "row"), time.monotonic() + ROW)
    for seat, guest in seats.items():
        with contextlib.suppress(ProtocolError):
            links += row_from(guest.said.get("row", {}).get("links"), seat, len(listed))
            sees += marks_from(guest.said.get("row", {}).get("sees"), seat, len(listed))
    in_order = sorted(links, key=lambda link: (link.source, link.target, link.use))
    late = tuple(_late(server, present, listed))
    meeting.cluster = replace(cluster, links=tuple(in_order), sees=tuple(sees), late=late)
    return meeting


@dataclass(frozen=True, slots=True)
class Roster:
    """What is said of each host, and from where it came, as JSON: each is made once, not once for each that hears it.

    ``brief`` is no more than who it is, for those that do not try it: of thousands, all would not go into a line.
    """

    whole: tuple[str, ...]
    brief: tuple[str, ...]
    came: tuple[str, ...]

    @classmethod
    def of(cls, hosts: tuple[Host, ...], came: tuple[str, ...]) -> Roster:
        """Return that of hosts in their order."""
        told = [as_data(host) for host in hosts]
        brief = ({name: each[name] for name in BRIEF} for each in told)
        return cls(tuple(map(as_text, told)), tuple(map(as_text, brief)), tuple(map(as_text, came)))

    def letter(self, seat: int) -> str:
        """Return what a host is told."""
        roster, came = list(self.brief), [NOWHERE] * len(self.came)
        for each in (seat, *targets(seat, len(roster))):
            roster[each], came[each] = self.whole[each], self.came[each]
        return f'{{"roster": [{", ".join(roster)}], "came": [{", ".join(came)}], "seat": {seat}}}'

    def full(self) -> str:
        """Return what a host is told that comes when all of these are there."""
        return f'{{"full": [{", ".join(self.brief)}]}}'


def _late(server: Server, present: list[Guest], listed: tuple[Host, ...]) -> Iterator[Host]:
    """Yield the hosts that came after these; one that was there before was started again."""
    for guest in server.guests:
        if guest not in present and "hello" in guest.said:
            with contextlib.suppress(ProtocolError):
                host = host_from(guest.said["hello"].get("host"))
                if host.name not in {each.name for each in listed}:
                    yield _essence(host)


def _by_number(host: Host, *, ours: bool) -> tuple[bool, int, bool, str]:
    """Order the hosts by their numbers; where the launch gives none, the one where they meet is the first."""
    return host.node is None, host.node or 0, not ours, host.name


def _essence(host: Host) -> Host:
    """Return what the others need to know of a host."""
    return replace(host, addresses={}, versions={}, variables={}, code={}, data={}, reads={}, settings={}, packages={})


def _wait_for_all(invitation: Invitation, server: Server, started: float) -> list[Guest]:
    until = started + invitation.wait
    while True:
        now = time.monotonic()
        turn = min(until, now + EVERY)
        guests = server.collect("hello", lambda have: len(have) >= invitation.expected - 1, turn)
        if len(guests) >= invitation.expected - 1:
            return _latecomers(invitation, server, guests)
        if time.monotonic() >= until:
            return guests
        invitation.say(_absent(invitation, guests, time.monotonic() - started))


def _latecomers(invitation: Invitation, server: Server, guests: list[Guest]) -> list[Guest]:
    """Wait a moment for hosts beyond those that are counted, where the numbers of the ones that came are odd."""
    wanted = set(range(invitation.expected))
    if _nodes(invitation, guests) == wanted:
        return guests
    return server.collect("hello", lambda have: _nodes(invitation, have) >= wanted, time.monotonic() + LATECOMERS)


def _nodes(invitation: Invitation, guests: list[Guest]) -> set[object]:
    said = (guest.said["hello"].get("host") for guest in guests)
    return {invitation.host.node} | {host.get("node") for host in said if isinstance(host, dict)}


def _absent(invitation: Invitation, guests: list[Guest], seconds: float) -> str:
    nodes = _nodes(invitation, guests)
    missing = [str(node) for node in range(invitation.expected) if node not in nodes]
    said = f"host {', '.join(missing[:20])}" if len(missing) == invitation.expected - len(guests) - 1 else "the others"
    return f"{len(guests) + 1} of {invitation.expected} hosts are here; {said} did not come for {seconds:.0f} s"


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else 0.0
