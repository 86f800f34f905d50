"""The meeting of the hosts: one serves at the master's address and port, the others come there, each with a deadline.

The stages, each begun by what the server says: hello (who is there), row (who reaches whom), joint (a job over all),
done (what each found of its own).
"""

from __future__ import annotations

import contextlib
import errno
import math
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from ddpdoctor.cluster.client import (
    CONNECT,
    LOST_AGAIN,
    NO_STORE,
    OTHER_JOB,
    PAUSE,
    REFUSED,
    SILENT,
    UNREACHABLE,
    Client,
    Try,
    find,
)
from ddpdoctor.cluster.cluster import Cluster, Joint
from ddpdoctor.cluster.host import LONGEST, Host, ProtocolError, as_data, host_from
from ddpdoctor.cluster.launch import DEFAULT_PORT
from ddpdoctor.cluster.matrix import row, row_data, row_from
from ddpdoctor.cluster.probing import OK
from ddpdoctor.cluster.server import Guest, Server
from ddpdoctor.host.network import Network, is_loopback, try_connect

EVERY = 10.0  # seconds between two lines that say who is absent
ROW = 30.0  # seconds for all tries of a host
LATECOMERS = 2.0  # seconds
JOINT = 40.0  # seconds for the job over all hosts
HOPELESS = 20.0  # seconds of the same answer that only a fault gives
ALONE = 10.0  # seconds after which a rank 0 that does not own the master's address serves itself: a NAT leads to it
OTHER_PORTS = (1, DEFAULT_PORT)  # a host that is up, and lets them through, refuses or answers

STATES = {"open": "", "refused": REFUSED, "filtered": SILENT, "unreachable": UNREACHABLE}

Say = Callable[[str], None]


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

    @property
    def clean(self) -> bool:
        """Whether each host reaches each other: else a job over all of them hangs."""
        count = len(self.cluster.hosts)
        return count > 1 and len({(each.source, each.target) for each in self.cluster.links if each.state == OK}) == (
            count * (count - 1)
        )

    def run_joint(self, run: Callable[[int, int, int], str], port: Callable[[], int]) -> None:
        """Run a job over all hosts; ``run`` gets the master's port, the rank and world size, and says what failed."""
        count = len(self.cluster.hosts)
        if self.server is not None:
            complete = self.here == 0 and len(self.cluster.hosts) == self.cluster.expected
            number = port() if self.clean and complete else 0
            self.server.announce({"joint": number}, list(self.guests.values()))
            if number:
                said = {self.here: run(number, self.here, count)}
                self.server.collect("joint", lambda have: len(have) >= len(self.guests), time.monotonic() + JOINT)
                for seat, guest in self.guests.items():
                    said[seat] = str(guest.said.get("joint", {}).get("problem", "it said nothing"))[:LONGEST]
                joint = tuple(Joint(seat, "gloo", problem) for seat, problem in sorted(said.items()))
                self.cluster = replace(self.cluster, joint=joint)
        elif self.client is not None:
            with contextlib.suppress(OSError, ProtocolError, KeyError, TypeError, ValueError):
                number = int(self.client.hear(time.monotonic() + ROW + ROW)["joint"])
                if number:
                    self.client.tell("joint", problem=run(number, self.here, count)[:LONGEST])

    def report(self, findings: list[dict[str, Any]]) -> bool:
        """Tell the server what was found here; whether it has taken it."""
        if self.client is None:
            return False
        try:
            self.client.tell("done", findings=findings)
        except OSError:
            return False
        return True

    def reported(self, until: float) -> tuple[dict[int, object], tuple[int, ...]]:
        """Return what the other hosts found, and who did not say it in time."""
        if self.server is None:
            return {}, ()
        guests = self.guests
        self.server.collect("done", lambda have: len(have) >= _still(guests.values(), "done"), until)
        said = {seat: guest.said["done"].get("findings") for seat, guest in guests.items() if "done" in guest.said}
        return said, tuple(sorted(guests.keys() - said.keys()))


def meet(invitation: Invitation, stack: ExitStack) -> Meeting:
    """Meet the other hosts; connections stay open until the stack ends."""
    host, network = invitation.host, invitation.network
    addresses = network.resolve(host.master).addresses if host.master else ()
    if invitation.board is not None:
        return _through(invitation.board, invitation, stack, ours=any(map(network.owns, addresses)))
    if any(network.owns(address) for address in addresses):
        if host.node and all(map(is_loopback, addresses)):
            return _unmet(invitation, ())  # the master is elsewhere, and this address leads nowhere else
        return _serve_or_come(invitation, stack)
    patience = ALONE if host.node == 0 else invitation.wait
    meeting = _come(invitation, stack, patience)
    if not meeting.cluster.met and host.node == 0 and addresses:
        with contextlib.suppress(OSError):
            server = stack.enter_context(Server(host.port, invitation.token))
            return _serve(replace(invitation, wait=invitation.wait - ALONE), server)
    return meeting


def _through(board: Board, invitation: Invitation, stack: ExitStack, *, ours: bool) -> Meeting:
    """Meet at a port that the kernel picks, since torchrun's agent holds the master's, and say so in its store."""
    started = time.monotonic()
    try:
        if ours:
            server = stack.enter_context(Server(0, invitation.token))
            board.put(server.port)
            return _serve(invitation, server)
        if tries := _closed(invitation, started):
            return _unmet(invitation, tries, time.monotonic() - started)
        port = board.get(invitation.wait)
    except OSError as exc:
        tried = Try(invitation.host.master, invitation.host.port, NO_STORE, str(exc))
        return _unmet(invitation, (tried,), time.monotonic() - started)
    meeting = _come(invitation, stack, max(1.0, started + invitation.wait - time.monotonic()), (port,))
    if not meeting.cluster.met:
        meeting.cluster = replace(meeting.cluster, announced=port)
    return meeting


def _closed(invitation: Invitation, started: float) -> tuple[Try, ...]:
    """Wait until the master's port answers; return how the last tries ended where it does not."""
    host = invitation.host
    waiting = _waiting(invitation, started)
    while True:
        tries = []
        for address in invitation.network.resolve(host.master).addresses:
            ended = STATES[try_connect(address, host.port, CONNECT)]
            if not ended:
                return ()
            tries.append(Try(address, host.port, ended))
        if waiting(tries) or time.monotonic() > started + invitation.wait:
            return tuple(tries) or (Try(host.master, host.port, UNREACHABLE),)
        time.sleep(PAUSE)


def places(port: int) -> tuple[int, ...]:
    """Return the ports at which a master is looked for: its own, and those that it is mistaken for."""
    others = (DEFAULT_PORT, port + 1, port - 1)
    return tuple(dict.fromkeys(each for each in (port, *others) if 0 < each < 1 << 16))


def _serve_or_come(invitation: Invitation, stack: ExitStack) -> Meeting:
    port = invitation.host.port
    try:
        return _serve(invitation, stack.enter_context(Server(port, invitation.token)))
    except OSError as exc:
        if exc.errno != errno.EADDRINUSE:
            raise
    meeting = _come(invitation, stack, 0)  # another process of this launch on this host may serve there
    if meeting.cluster.met:
        return meeting
    for other in places(port)[1:]:
        with contextlib.suppress(OSError):
            return _serve(invitation, stack.enter_context(Server(other, invitation.token)))
    return meeting


def _serve(invitation: Invitation, server: Server) -> Meeting:
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
    order = sorted(range(len(hosts)), key=lambda each: _by_number(hosts[each]))
    listed = tuple(hosts[each] for each in order)
    here = order.index(0)
    seats = {order.index(number + 1): guest for number, guest in enumerate(present)}
    cluster = Cluster(
        listed,
        invitation.expected,
        skews=tuple(skews[each] for each in order),
        strangers=tuple(server.strangers),
        waited=time.monotonic() - started,
    )
    came_in_order = tuple(came[each] for each in order)
    meeting = Meeting(cluster, here, server, None, seats)
    roster = [as_data(_essence(host)) for host in listed]
    for seat, guest in seats.items():
        server.announce({"roster": roster, "came": came_in_order, "seat": seat}, [guest])
    links = list(row(here, listed, came_in_order))
    server.collect("row", lambda have: len(have) >= _still(present, "row"), time.monotonic() + ROW)
    for seat, guest in seats.items():
        with contextlib.suppress(ProtocolError):
            links += row_from(guest.said.get("row", {}).get("links"), seat, len(listed))
    in_order = sorted(links, key=lambda link: (link.source, link.target, link.use))
    meeting.cluster = replace(cluster, links=tuple(in_order))
    return meeting


def _by_number(host: Host) -> tuple[bool, int, str]:
    return host.node is None, host.node or 0, host.name


def _still(guests: Iterable[Guest], stage: str) -> int:
    """Count those from whom something can still come, or has."""
    return len([guest for guest in guests if not guest.gone or stage in guest.said])


def _essence(host: Host) -> Host:
    """Return what the others need to know of a host."""
    return replace(host, addresses={}, versions={}, variables={}, code={})


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


def _come(invitation: Invitation, stack: ExitStack, patience: float, ports: tuple[int, ...] = ()) -> Meeting:
    host = invitation.host
    started = time.monotonic()
    waiting = _waiting(invitation, started)

    def resolve() -> tuple[str, ...]:
        return invitation.network.resolve(host.master).addresses if host.master else ()

    client, tries = find(resolve, ports or places(host.port), invitation.token, started + patience, waiting)
    if client is None:
        return _unmet(invitation, tuple(tries), time.monotonic() - started)
    stack.enter_context(client)
    try:
        return _take_part(invitation, client)
    except PermissionError:
        return _unmet(invitation, (Try(host.master, host.port, OTHER_JOB),), time.monotonic() - started)
    except (OSError, ProtocolError, KeyError, TypeError, ValueError) as exc:
        return _unmet(invitation, (Try(host.master, host.port, LOST_AGAIN, str(exc)),), time.monotonic() - started)


def _waiting(invitation: Invitation, started: float) -> Callable[[list[Try]], bool]:
    """Return a function that says now and then what is waited for, and returns whether it is in vain."""
    host, said_at = invitation.host, [started]

    def waiting(tries: list[Try]) -> bool:
        now = time.monotonic()
        if now - said_at[0] >= EVERY:
            said_at[0] = now
            invitation.say(f"no master at {host.master}:{host.port} for {now - started:.0f} s: {_why(tries)}")
        return now - started > HOPELESS and not invitation.patient and _is_hopeless(tries)

    return waiting


def _take_part(invitation: Invitation, client: Client) -> Meeting:
    client.tell("hello", host=as_data(invitation.host), skew=client.skew)
    roster = client.hear(time.monotonic() + invitation.wait + ROW)
    hosts = tuple(host_from(each) for each in roster["roster"])
    came, seat = tuple(map(str, roster["came"])), int(roster["seat"])
    links = row(seat, hosts, came)
    client.tell("row", links=row_data(links))
    return Meeting(Cluster(hosts, invitation.expected, links=links), seat, None, client)


def _unmet(invitation: Invitation, tries: tuple[Try, ...], waited: float = 0.0) -> Meeting:
    return Meeting(Cluster((invitation.host,), invitation.expected, met=False, tries=tries, waited=waited), 0)


def _why(tries: list[Try]) -> str:
    ended = dict.fromkeys(f"{each.address}:{each.port} {each.ended}" for each in tries)
    return ", ".join(ended) or "the name does not resolve"


def _is_hopeless(tries: list[Try]) -> bool:
    """Whether only a fault answers so: no name, no route, or a host that is up and keeps silent at this port."""
    if not tries or all(each.ended not in (REFUSED, SILENT) for each in tries):
        return True
    silent = {each.address for each in tries if each.ended == SILENT}
    return bool(silent) and all(
        any(try_connect(address, port) in ("open", "refused") for port in OTHER_PORTS) for address in silent
    )


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else 0.0
