"""A launcher that has started no rank yet, since it waits for other nodes; seen from outside."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from ddpdoctor.cluster.command import TORCHRUN, Rendezvous, rendezvous
from ddpdoctor.cluster.host import Host, host_line
from ddpdoctor.host.network import Network, gather_network, is_loopback, try_connect
from ddpdoctor.watch.events import LauncherWaits

CONNECT = 3.0  # seconds for a connection
OWN, LOOPBACK, UNKNOWN, OPEN = "own", "loopback", "unknown name", "open"


def launcher_waits(pid: int, after: float) -> LauncherWaits | None:
    """Look for a torchrun below a process that waits for other nodes, and has started no rank for so long.

    While it imports torch it has no socket, and once it has started ranks it has children.
    """
    for process, meeting in _without_ranks(pid):
        with suppress(psutil.Error):
            seconds = time.time() - process.create_time()
            connected = bool(process.net_connections("tcp"))
            if seconds > after and meeting.nodes > 1:
                return _seen(process.pid, meeting, seconds, connected=connected)
            if seconds > after and connected and (holder := _taken_by(process.pid, meeting)):
                return LauncherWaits(
                    pid=process.pid, time=time.time(), nodes=1, seconds=seconds, host=meeting.host, port=meeting.port,
                    answer=LOOPBACK, holder=holder,
                )  # fmt: skip
    return None


def _taken_by(pid: int, meeting: Rendezvous) -> str:
    """Return another launcher of this host, of one node too, whose rendezvous this one has come to: it is full.

    That is certain where both name one port and one id.
    """
    if not _is_of_one_node(meeting):
        return ""
    for each in gather_network().listeners:
        if each.port == meeting.port and each.pid not in {None, pid}:
            with suppress(psutil.Error):
                theirs = rendezvous(psutil.Process(each.pid).cmdline())
                if theirs and _is_of_one_node(theirs) and (theirs.port, theirs.id) == (meeting.port, meeting.id):
                    return f"pid {each.pid} ({each.command})"
    return ""


def _is_of_one_node(meeting: Rendezvous) -> bool:
    """Whether a launcher meets others by c10d that cannot be: it is told of one node."""
    return meeting.backend == "c10d" and meeting.nodes == 1 and meeting.most < 2  # noqa: PLR2004 - several


def _seen(pid: int, meeting: Rendezvous, seconds: float, *, connected: bool) -> LauncherWaits | None:
    """Try the place where the nodes meet; None where the process has not come so far."""
    network = gather_network()
    addresses = network.resolve(meeting.host).addresses if meeting.at_a_port else ()
    answer = _answer(network, addresses, meeting) if meeting.at_a_port else ""
    # A node that is told a number but 0 opens no store: between two tries to reach the master's it has no socket.
    if not connected and (answer in {"", OPEN} or (answer in {OWN, LOOPBACK} and not meeting.node)):
        return None
    holder = _holder(network, pid, meeting.port) if answer in {OWN, LOOPBACK} else ""
    return LauncherWaits(
        pid=pid, time=time.time(), nodes=meeting.nodes, seconds=seconds, node=meeting.node, host=meeting.host,
        port=meeting.port, addresses=addresses, answer=answer, holder=holder,
        line=_line(network, meeting, addresses, answer) if answer else "", launcher=meeting.launcher,
    )  # fmt: skip


def _answer(network: Network, addresses: tuple[str, ...], meeting: Rendezvous) -> str:
    port = meeting.port
    if not addresses:
        return UNKNOWN
    if all(map(is_loopback, addresses)):
        # Nodes that are started beside each other on one host meet on loopback: the first one waits there.
        beside = meeting.node and OPEN in {try_connect(each, port, CONNECT) for each in addresses}
        return OPEN if beside else LOOPBACK
    if any(map(network.owns, addresses)):
        return OWN
    answers = [try_connect(each, port, CONNECT) for each in addresses]
    return OPEN if OPEN in answers else "refused" if "refused" in answers else answers[0]


def _holder(network: Network, pid: int, port: int) -> str:
    """Return the command of another program that listens on the port; empty where that is a torchrun, or nobody."""
    for each in network.listeners:
        if each.port == port and each.pid not in {None, pid} and not _is_torchrun(each.pid or 0):
            return f"pid {each.pid} ({each.command})"
    return ""


def _is_torchrun(pid: int) -> bool:
    with suppress(psutil.Error):
        return any(Path(word).name in {*TORCHRUN, "accelerate"} for word in psutil.Process(pid).cmdline())
    return True  # nothing is known of it


def _line(network: Network, meeting: Rendezvous, addresses: tuple[str, ...], answer: str) -> str:
    """Return the line by which ``ddpdoctor explain`` puts the logs of hosts together that did not meet."""
    host = Host(
        name=network.hostname,
        launcher="torchrun",
        by=f"--nnodes={meeting.nodes}",
        nodes=meeting.nodes,
        node=meeting.node,
        master=meeting.host,
        master_at=" ".join(addresses),
        port=meeting.port,
        rdzv_id=meeting.id,
        rdzv_backend=meeting.backend,
        addresses={address: each.name for each in network.interfaces for address in each.addresses},
    )
    return host_line(host, [f"{each}:{meeting.port} {answer}" for each in addresses or (meeting.host,)])


def end_those_without_ranks(pid: int, number: int) -> None:
    """Send a signal to each torchrun below a process that waits for nodes and has no rank: nothing is lost with it.

    With static rendezvous it waits for the store in native code, and comes back to Python for no Ctrl-C.
    """
    for process, _ in _without_ranks(pid):
        with suppress(psutil.Error):
            process.send_signal(number)


def _without_ranks(pid: int) -> Iterator[tuple[psutil.Process, Rendezvous]]:
    """Yield each torchrun that meets others, from a process on down, that has no child; and where they meet."""
    with suppress(psutil.Error):
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            with suppress(psutil.Error):
                meeting = rendezvous(process.cmdline())
                if meeting and (meeting.nodes > 1 or _is_of_one_node(meeting)) and not process.children():
                    yield process, meeting
