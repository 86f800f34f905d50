"""Who is at the other end of a connection that a process waits for."""

from __future__ import annotations

from contextlib import suppress

from ddpdoctor.host.process.threads import thread_folders
from ddpdoctor.host.process.waits.wait import KEY_IS_SET, OWN_STORE, THE_STORE, Awaited

STORE_THREAD = "pt_tcpstore"
"""How torch 2.4 and later begin the name of the thread in which a store answers."""


def connection(pid: int, descriptor: int, store: int) -> Awaited | None:
    """Return who is to answer, or to connect; ``store`` is the port of the ranks' store, or 0."""
    found = _of_inet(pid, descriptor)
    return None if found is None else _socket(pid, found, store)


def sending(pid: int, descriptor: int) -> Awaited | None:
    """Return who is to read what is sent over a connection, whose buffers on both ends are full."""
    found = _of_inet(pid, descriptor)
    if found is None or not found.raddr:
        return None
    peer = f"{found.raddr.ip.removeprefix('::ffff:')}:{found.raddr.port}"
    return Awaited(
        f"{peer} to read what it sends, of which no more fits into the connection",
        "send with a time-out, settimeout(), and mend what reads there",
        f"ss -tnpi dst {peer}   # PID {pid}",
    )


def of_store(peer: str, port: int, store: str = THE_STORE) -> Awaited:
    """Return that a key is awaited; ``peer`` is where the store is."""
    return Awaited(
        f"an answer of {store} ({peer}), {KEY_IS_SET}",
        "set the key on a rank before another one waits for it",
        port=port,
    )


def _of_inet(pid: int, descriptor: int):  # type: ignore[no-untyped-def]  # noqa: ANN202 - psutil is imported late
    import psutil

    with suppress(psutil.Error):
        return next((each for each in psutil.Process(pid).net_connections("inet") if each.fd == descriptor), None)
    return None


def _socket(pid: int, connection, store: int) -> Awaited:  # type: ignore[no-untyped-def]  # noqa: ANN001 - psutil is imported late
    if connection.status == "LISTEN":
        return Awaited(f"somebody to connect to its port {connection.laddr.port}")
    peer = f"{connection.raddr.ip.removeprefix('::ffff:')}:{connection.raddr.port}" if connection.raddr else "its peer"
    if connection.status == "SYN_SENT":
        return Awaited(
            f"{peer} to answer at all", "open that port, or mend the address", f"nc -vz {peer.replace(':', ' ')}"
        )
    if store and connection.raddr and connection.raddr.port == store:
        return of_store(peer, store)
    if connection.raddr and _serves_a_store(connection.raddr.port):
        return of_store(peer, connection.raddr.port, OWN_STORE)
    return Awaited(
        f"an answer of {peer}",
        "ask with a time-out, and find out why nothing comes",
        f"ss -tnpi dst {peer}   # PID {pid}",
        port=connection.raddr.port if connection.raddr else 0,
    )


def _serves_a_store(port: int) -> bool:
    """Whether a process of this host listens at a port that has the thread of a store of torch's."""
    import psutil

    with suppress(psutil.Error, OSError):
        listening = {
            each.pid
            for each in psutil.net_connections("tcp")
            if each.pid and each.status == "LISTEN" and each.laddr and each.laddr.port == port
        }
        threads = [folder for pid in listening for folder in thread_folders(pid)]
        return any((folder / "comm").read_text().startswith(STORE_THREAD) for folder in threads)
    return False
