"""Links between hosts, by what the kernel counts of a rank's connections: real sockets, and what is made of them."""

from __future__ import annotations

import socket
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
from helpers import CHECKS

from ddpdoctor.host import tcp
from ddpdoctor.watch.dispatcher import Dispatcher
from ddpdoctor.watch.event_log import Reader, Writer
from ddpdoctor.watch.events import Joined, LinkUse, Profiled, RankSteps, StepsTimed

if TYPE_CHECKING:
    from pathlib import Path

SENT = 1 << 20
MILLISECOND = 1_000_000


def sent(number: int) -> tuple[LinkUse, ...]:
    """Send so many bytes from one address of this host to another, and return what the kernel has counted."""
    with socket.create_server(("127.0.0.2", 0)) as server:
        client = socket.create_connection(server.getsockname(), source_address=("127.0.0.1", 0))
        with client, server.accept()[0] as reader:
            before = tcp.connections()
            thread = threading.Thread(target=reader.recv, args=(number, socket.MSG_WAITALL))
            thread.start()
            client.sendall(bytes(number))
            thread.join()
            return tcp.used(before, tcp.connections())


@pytest.mark.skipif(sys.platform != "linux", reason="TCP_INFO has this form on Linux")
def test_the_kernel_tells_what_was_sent_to_another_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes and for how long there was something to send; nothing of an address of this host, nor of few bytes."""
    assert sent(SENT) == ()
    monkeypatch.setattr(tcp, "own_addresses", frozenset)
    monkeypatch.setattr(tcp, "LOOPBACK", "none")

    (found,) = (each for each in sent(SENT) if each.peer == "127.0.0.2")
    assert SENT / 2 <= found.sent <= SENT + 100, "what is confirmed so far"
    assert found.busy >= 0
    assert found.round_trip > 0
    assert not [each for each in sent(1000) if each.peer == "127.0.0.2"]


def link(**given: Any) -> LinkUse:
    """Return a link of 1 Gbit/s which was busy for 60 of 100 steps of 100 ms and carried 2 MB/s."""
    usual: dict[str, Any] = {
        "peer": "10.0.0.2", "interface": "eth0", "speed": 1000, "sent": 12_000_000, "busy": 6_000 * MILLISECOND,
        "resent": 0, "round_trip": MILLISECOND // 5,
    }  # fmt: skip
    return LinkUse(**{**usual, **given})


def found(*links: LinkUse, exposed: int = 60, starved: float = 0.0) -> list[tuple[str, str]]:
    """Return what all checks find on a host of one rank of two, which measured 100 steps of 100 ms with these links."""
    dispatcher = Dispatcher(CHECKS)
    told: dict[str, Any] = {"pid": 100, "time": 1.0, "rank": 0}
    list(dispatcher.see(Joined(**told, world_size=2, backend="gloo")))
    measured = Profiled(
        **told, model=0, total=(100 * MILLISECOND,) * 100, exposed=(exposed * MILLISECOND,) * 100, hidden=(0,) * 100,
        buckets=(8 << 20,), forwards=1.0, synced=1.0, backwards=1.0, cost=0.0, window=10_000 * MILLISECOND, links=links,
    )  # fmt: skip
    list(dispatcher.see(measured))
    event = StepsTimed(pid=0, time=2.0, ranks=(RankSteps(0, 1, (), device="cpu", starved=starved),))
    (training,) = dispatcher.trainings
    seen = [(each.check.slug, each.finding.message) for each in dispatcher.see_of(training, event)]
    assert not dispatcher.crashes
    return seen


def test_a_link_that_carries_little_most_of_the_time_is_named() -> None:
    """With its share of the step and its rate, on a loaded machine too, and where the interface says no speed."""
    for slow in (link(), link(speed=0), link(speed=100_000)):
        ((slug, message),) = found(slow, starved=0.8)
        assert slug == "slow-link-between-hosts"
        assert "from rank 0 to 10.0.0.2 carries 2 MB/s (16 Mbit/s): in each step of 100 ms it has something" in message
        assert "for 60 ms, 60% of the time" in message


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"busy": 2_000 * MILLISECOND}, id="it seldom has something to send: the others are late"),
        pytest.param({"sent": 600_000_000}, id="it carries 100 MB/s, all that its port can"),
        pytest.param({"sent": 120_000_000, "speed": 0}, id="it carries 20 MB/s, and nobody knows of how many"),
        pytest.param({"sent": 60_000_000, "speed": 100}, id="it carries 10 MB/s, all that its old port can"),
    ],
)
def test_a_link_that_carries_what_it_can_or_waits_is_not_blamed(change: dict[str, Any]) -> None:
    """Whoever waits for a rank of another host, and whoever uses its link well."""
    assert "slow-link-between-hosts" not in [slug for slug, _ in found(link(**change), exposed=15)]


def test_of_other_hosts_no_more_is_waited_for_than_is_sent() -> None:
    """Their late ranks are not seen here: a wait of 60 ms counts as communication where that was to be sent."""
    fast = link(sent=600_000_000)
    assert [slug for slug, _ in found(fast)] == ["communication-not-hidden"]
    assert found(fast._replace(busy=500 * MILLISECOND)) == []
    assert found() == []


def test_links_are_read_as_they_were_written(tmp_path: Path) -> None:
    """What a rank tells the monitor of its links comes through the file."""
    writer = Writer(str(tmp_path))
    given = Profiled(
        pid=writer.pid, time=1.0, model=-1, total=(1,), exposed=(), hidden=(), buckets=(), forwards=0.0, synced=0.0,
        backwards=0.0, cost=0.0, links=(link(),),
    )  # fmt: skip
    writer.event(given)
    assert list(Reader(tmp_path / f"{writer.pid}.events").new()) == [given]
