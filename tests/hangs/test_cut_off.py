"""A host that is cut off is told before --hang-after: its kernel's silence is certain sooner than a wait is a hang."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from namespaces import finish, network

from ddpdoctor.host.process import connections, system_calls as host_calls
from ddpdoctor.host.process.connections import Peer
from ddpdoctor.host.process.waits.wait import Awaited
from ddpdoctor.watch.events import Doing, Position, Stalled
from ddpdoctor.watch.monitor import followed
from ddpdoctor.watch.monitor.stands import positions
from ddpdoctor.watch.monitor.stands.answering import answering
from ddpdoctor.watch.training import Training

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
LINE = "   0: 01004D0A:9C40 02004D0A:{port:04X} 01 {unacked:08X}:00000000 01:00000014 {tries:08X} 0 0 {inode} 2\n"


def test_ranks_that_nothing_on_another_host_lets_go_on() -> None:
    """One that asks a question, sleeps for long or is stopped; not one that waits for its own thread, or for others."""
    asleep = subprocess.Popen((sys.executable, "-S", "-c", "import time; time.sleep(3600)"))
    try:
        while not host_calls.asleep(asleep.pid):
            time.sleep(0.01)
        kept = [
            (Doing.STANDING, os.getpid(), Awaited("somebody to type", typed=True), True),
            (Doing.STANDING, asleep.pid, Awaited("the end of a sleep"), True),
            (Doing.STOPPED, os.getpid(), None, True),
            (Doing.STANDING, os.getpid(), Awaited("a lock", thread=True), False),
            (Doing.STANDING, os.getpid(), Awaited("an answer of 10.0.0.1:80"), False),
            (Doing.STANDING, os.getpid(), None, False),
            (Doing.ASKING, os.getpid(), Awaited("somebody to type", typed=True), False),
        ]
        for doing, pid, awaited, expected in kept:
            position = Position(rank=1, pid=pid, doing=doing, seconds=40, awaited=awaited)
            assert positions._all_kept_here([position], 30.0) is expected
            assert not positions._all_kept_here([position], 50.0)
    finally:
        asleep.kill()
        asleep.wait()


def test_ranks_that_stand_apart_are_told_once_and_are_no_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ranks of other hosts do is not seen: a rehearsal is not ended for it."""
    position = Position(rank=1, pid=os.getpid(), doing=Doing.STANDING, seconds=40)
    event = Stalled(pid=0, time=0.0, ranks=(position,), world_size=2, apart=True)
    monkeypatch.setattr(followed, "stalled", lambda *_: event)
    training = followed.Followed(Training())
    assert training.look(30.0) is event
    assert not training.hung
    training.looked = 0.0
    assert training.look(30.0) is None
    assert positions._all_stand([position], 30.0)
    assert not positions._all_stand([position], 50.0)


@pytest.mark.parametrize(
    ("peer", "cut"),
    [
        (Peer("10.77.0.1", "10.77.0.2", 0, 0, "eth0", down=True), True),
        (Peer("10.77.0.1", "10.77.0.2", 512, 6, "eth0"), True),
        (Peer("10.77.0.1", "10.77.0.2", 512, 5, "eth0"), False),  # a link that flaps comes back by then
        (Peer("10.77.0.1", "10.77.0.2", 0, 9, "eth0"), False),
        (Peer("10.77.0.1", "10.77.0.2", 0, 9, "eth0", connecting=29500), False),  # it can come up yet
    ],
)
def test_what_is_certain_soon(peer: Peer, *, cut: bool) -> None:
    """An interface that is down, and bytes that were sent again for longer than a link takes to come up."""
    assert peer.cut == cut


def test_a_server_of_the_web_is_no_peer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A logger whose server is gone keeps no rank."""
    sockets = tmp_path / "proc/7/fd"
    sockets.mkdir(parents=True)
    (tmp_path / "proc/7/net").mkdir()
    for inode in (111, 222):
        (sockets / str(inode)).symlink_to(f"socket:[{inode}]")
    lines = [LINE.format(port=port, unacked=99, tries=9, inode=inode) for port, inode in ((443, 111), (41000, 222))]
    (tmp_path / "proc/7/net/tcp").write_text(HEAD + "".join(lines))
    monkeypatch.setattr(connections, "Path", lambda path: tmp_path / path.removeprefix("/"))
    assert [(each.peer, each.unacked, each.tries) for each in connections.peers([7])] == [("10.77.0.2", 99, 9)]
    (tmp_path / "proc/7/net/tcp").write_text(HEAD + lines[0])
    assert connections.peers([7]) == ()


@pytest.mark.parametrize(
    ("rested", "peer", "looked"),
    [
        (21.0, Peer("10.77.0.1", "10.77.0.2", 512, 6, "eth0"), 20.0),
        (21.0, Peer("10.77.0.1", "10.77.0.2", 512, 3, "eth0"), None),
        (19.0, Peer("10.77.0.1", "10.77.0.2", 512, 6, "eth0"), None),
        (31.0, Peer("10.77.0.1", "10.77.0.2", 0, 0, "eth0"), 30.0),
    ],
)
def test_when_ranks_are_looked_at(
    monkeypatch: pytest.MonkeyPatch, rested: float, peer: Peer, looked: float | None
) -> None:
    """After twenty seconds where a host is cut off, else after --hang-after."""
    after: list[float] = []

    def look(_: Any, __: Training, seconds: float) -> None:
        after.append(seconds)
        raise InterruptedError

    monkeypatch.setattr(positions, "look_twice", look)
    monkeypatch.setattr(positions, "peers", lambda _: (peer,))
    rank: Any = SimpleNamespace(rank=0, alive=True, since=time.monotonic() - rested, reader=SimpleNamespace(pid=1))
    with contextlib.suppress(InterruptedError):
        assert positions.stalled([rank], Training(), 30.0) is None
    assert after == ([] if looked is None else [looked])


@pytest.mark.parametrize("answer", ["refused", "open", "silent"])
def test_a_silent_host_is_asked_whether_it_answers_a_small_packet(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    """A refusal is an answer too; what is down, or acknowledges all, is not asked."""
    asked = []

    def connect(to: tuple[str, int], *_: object) -> socket.socket:
        asked.append(to[0])
        if answer != "open":
            raise ConnectionRefusedError if answer == "refused" else TimeoutError
        return socket.socket()

    monkeypatch.setattr(socket, "create_connection", connect)
    silent, down = Peer("10.0.0.1", "10.0.0.2", 512, 6, "eth0"), Peer("10.0.0.1", "10.0.0.3", 0, 0, "eth0", down=True)
    healthy = Peer("10.0.0.1", "10.0.0.4", 0, 0, "eth0")
    found = answering([silent, down, healthy])

    assert asked == ["10.0.0.2"]
    assert [each.answers for each in found] == [answer != "silent", False, False]


ASKS = """
import sys
from ddpdoctor.host.process.connections import Peer
from ddpdoctor.watch.monitor.stands.answering import answering

print(answering([Peer(*sys.argv[1:], 512, 6, "eth0")])[0].answers)
"""


def test_a_host_behind_a_path_that_loses_large_packets_answers() -> None:
    """And one to which no packet comes does not."""
    drop = "nft add table ip t; nft 'add chain ip t i { type filter hook input priority 0; policy accept; }'; "
    with network(2) as hosts:
        for rule, answers in (("ip length \\> 1400 drop", "True"), ("drop", "False")):
            hosts.reset()
            hosts.on(1, f"{drop}nft add rule ip t i {rule}")
            done = finish(hosts.start(0, sys.executable, "-c", ASKS, hosts.address(0), hosts.address(1)))
            assert done.out.strip() == answers, done.said
