"""A host that comes to the one where all meet: looks for it, says what it waits for, and takes part."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ddpdoctor.cluster.cluster import Cluster
from ddpdoctor.cluster.compared.folders import marks_seen
from ddpdoctor.cluster.host import Host, ProtocolError, as_data, host_from
from ddpdoctor.cluster.launch import DEFAULT_PORT
from ddpdoctor.cluster.matrix import row, row_data
from ddpdoctor.cluster.meet.meeting import ROW, Meeting
from ddpdoctor.cluster.wire.client import (
    CONNECT,
    FULL,
    LOST_AGAIN,
    OTHER_JOB,
    PAUSE,
    REFUSED,
    SILENT,
    UNREACHABLE,
    Client,
    Try,
    find,
)
from ddpdoctor.host.network import try_connect

if TYPE_CHECKING:
    from contextlib import ExitStack

    from ddpdoctor.cluster.meet.meeting import Invitation

EVERY = 10.0  # seconds between two lines that say what is waited for
HOPELESS = 20.0  # seconds of the same answer that only a fault gives
RESTARTED = "the hosts have met, and this one was among them: start the check again on all of them"
OTHER_PORTS = (1, DEFAULT_PORT)  # a host that is up, and lets them through, refuses or answers

STATES = {"open": "", "refused": REFUSED, "filtered": SILENT, "unreachable": UNREACHABLE}


def places(port: int) -> tuple[int, ...]:
    """Return the ports at which a master is looked for: its own, and those that it is mistaken for."""
    others = (DEFAULT_PORT, port + 1, port - 1)
    return tuple(dict.fromkeys(each for each in (port, *others) if 0 < each < 1 << 16))


def come(invitation: Invitation, stack: ExitStack, patience: float, ports: tuple[int, ...] = ()) -> Meeting:
    """Look for the master for so many seconds, at its ports or at these, and meet there."""
    host = invitation.host
    started = time.monotonic()
    waiting = _waiting(invitation, started)

    def resolve() -> tuple[str, ...]:
        return invitation.network.resolve(host.master).addresses if host.master else ()

    client, tries = find(resolve, ports or places(host.port), invitation.token, started + patience, waiting)
    if client is None:
        return unmet(invitation, tuple(tries), time.monotonic() - started)
    stack.enter_context(client)
    try:
        return _take_part(invitation, client)
    except PermissionError:
        return unmet(invitation, (Try(host.master, host.port, OTHER_JOB),), time.monotonic() - started)
    except (OSError, ProtocolError, KeyError, TypeError, ValueError) as exc:
        return unmet(invitation, (Try(host.master, host.port, LOST_AGAIN, str(exc)),), time.monotonic() - started)


def _take_part(invitation: Invitation, client: Client) -> Meeting:
    client.tell("hello", host=as_data(invitation.host), skew=client.skew)
    roster = client.hear(time.monotonic() + invitation.wait + ROW)
    if "full" in roster:
        return _too_late(invitation, tuple(host_from(each) for each in roster["full"]))
    hosts = tuple(host_from(each) for each in roster["roster"])
    came, seat = tuple(map(str, roster["came"])), int(roster["seat"])
    links = row(seat, hosts, came)
    client.tell("row", links=row_data(links), sees=[target for _, target in marks_seen(seat, hosts)])
    return Meeting(Cluster(hosts, invitation.expected, links=links), seat, None, client)


def _too_late(invitation: Invitation, there: tuple[Host, ...]) -> Meeting:
    host = invitation.host
    if host.name in {each.name for each in there}:
        return unmet(invitation, (Try(host.master, host.port, LOST_AGAIN, RESTARTED),))
    meeting = unmet(invitation, (Try(host.master, host.port, FULL),))
    meeting.cluster = replace(meeting.cluster, late=there)
    return meeting


def closed(invitation: Invitation, started: float) -> tuple[Try, ...]:
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


def _waiting(invitation: Invitation, started: float) -> Callable[[list[Try]], bool]:
    """Return a function that says now and then what is waited for, and returns whether it is in vain."""
    host, said_at = invitation.host, [started]

    def waiting(tries: list[Try]) -> bool:
        now = time.monotonic()
        if now - said_at[0] >= EVERY:
            said_at[0] = now
            invitation.say(f"no master at {host.master}:{host.port} for {now - started:.0f} s: {_why(tries)}")
        beyond = host.node is not None and host.node >= invitation.expected  # nobody waits for it
        return now - started > HOPELESS and not invitation.patient and (beyond or _is_hopeless(tries))

    return waiting


def unmet(invitation: Invitation, tries: tuple[Try, ...], waited: float = 0.0) -> Meeting:
    """Return that nobody was met, how the last tries ended, and after how many seconds."""
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
