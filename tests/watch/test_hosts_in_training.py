"""What happens to a host in mid training, and what ``ddpdoctor run`` says of it there and on the other hosts."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from namespaces import network
from trained_hosts import Training, pids, trained

if TYPE_CHECKING:
    from namespaces import Hosts

CABLE = "ip link set p1 {}"
LARGE = (
    "nft add table bridge t; nft 'add chain bridge t f { type filter hook forward priority 0; policy accept; }'; "
    "nft add rule bridge t f ip length '>' 1300 drop"
)
POLLS = """
if step == 20 and rank == 1:
    work = dist.irecv(torch.zeros(4), src=0)
    while not work.is_completed():
        pass
"""
ASKS = """
if step == 20:
    if rank == 0:
        while not os.path.exists("/nowhere/evaluated"):
            time.sleep(0.2)
    dist.barrier()
"""
EVALUATES = """
if step == 20:
    ends = time.monotonic() + 25
    while rank == 1 and time.monotonic() < ends:
        torch.randn(64, 64) @ torch.randn(64, 64)
    dist.barrier()
    print("evaluated", flush=True)
"""
RECEIVES = """
if step == 20:
    ends = time.monotonic() + 12
    while rank == 1 and time.monotonic() < ends:
        torch.randn(64, 64) @ torch.randn(64, 64)
    dist.broadcast(torch.zeros(1000), 1)
"""
LOST = "error DDP343 peer-connection-lost: "


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    """Yield two hosts, which one test breaks, and no other one has."""
    with network(2) as made:
        yield made


def between(hosts: Hosts, script: str) -> None:
    """Run a shell script where the hosts' cables end."""
    subprocess.run(["ip", "netns", "exec", f"{hosts.tag}x", "sh", "-ec", script], check=True, timeout=20)


def no_alarm(said: str) -> bool:
    """Whether a host has said nothing but notes."""
    return "error DDP" not in said and "warning DDP" not in said


@pytest.mark.nightly
def test_a_cable_that_is_pulled_is_named_on_both_hosts(hosts: Hosts, tmp_path: Path) -> None:
    """By the interface on the one that it was pulled out of."""
    words = {0: f"{LOST}10.77.0.2 has stopped answering", 1: f"{LOST}eth0, the interface of this host at 10.77.0.2, is"}
    told = trained(
        hosts, tmp_path, Training(happens=partial(between, hosts, CABLE.format("down")), until=words, hang_after=30)
    )

    for host, each in words.items():
        assert each in told.said[host], told.said[host]
    assert "went down in the training" in told.explained


@pytest.mark.nightly
def test_a_cable_that_is_put_back_is_no_fault(hosts: Hosts, tmp_path: Path) -> None:
    """TCP sends again what was lost: the training goes on."""

    def pulled() -> None:
        between(hosts, CABLE.format("down"))
        time.sleep(6)
        between(hosts, CABLE.format("up"))

    told = trained(hosts, tmp_path, Training(happens=pulled, until={}, hang_after=30, patience=40))

    assert all(map(no_alarm, told.said)), told.said


@pytest.mark.nightly
def test_a_path_that_loses_large_packets_is_named(hosts: Hosts, tmp_path: Path) -> None:
    """Small ones are answered: it is the size."""
    words = dict.fromkeys((0, 1), "answers small packets")
    told = trained(hosts, tmp_path, Training(happens=partial(between, hosts, LARGE), until=words, hang_after=30))

    assert all("large packets are lost (MTU)" in each for each in told.said), told.said


@pytest.mark.nightly
def test_a_host_that_was_lost_while_nothing_was_sent_to_it_is_named(hosts: Hosts, tmp_path: Path) -> None:
    """The rank that only receives has nothing under way; nobody in its network has the other address any more."""
    told = trained(
        hosts,
        tmp_path,
        Training(
            RECEIVES,
            happens=partial(between, hosts, "sleep 3; ip link set p1 nomaster"),
            until={0: LOST},
            hang_after=30,
        ),
    )

    assert f"{LOST}10.77.0.2 has stopped answering: no host in the network of eth0 answers" in told.said[0], told.said


@pytest.mark.nightly
def test_a_host_that_sleeps_is_the_one_of_which_no_log_tells(tmp_path: Path) -> None:
    """Its kernel acknowledges, so that nothing is lost; the other hosts wait at one line."""
    with network(3) as three:

        def sleeps() -> None:
            for pid in pids(three, 1):
                os.kill(pid, signal.SIGSTOP)

        told = trained(
            three, tmp_path, Training(happens=sleeps, until=dict.fromkeys((0, 2), "all ranks of this host wait"))
        )

    assert no_alarm(told.said[0] + told.said[2])
    assert "ranks 0, 2 wait in backward at train.py:9, and rank 1, of which no log tells" in told.explained
    assert "1.log says nothing of its ranks" in told.explained


def test_a_rank_that_polls_is_named_on_its_host(hosts: Hosts, tmp_path: Path) -> None:
    """Also where it computes while it does: the loop does nothing but ask."""
    asks = "(`while not work.is_completed()`)"
    told = trained(hosts, tmp_path, Training(POLLS, until={0: "all ranks of this host wait", 1: asks}))

    assert f"note DDP711 slow-rank: rank 1 working at train.py:15 {asks}" in told.said[1]
    assert "DDP711 slow-rank: rank 1 working at train.py:15" in told.explained
    assert asks in told.explained
    assert all(map(no_alarm, told.said))


@pytest.mark.nightly
def test_a_rank_that_asks_for_a_file_is_named_on_its_host(hosts: Hosts, tmp_path: Path) -> None:
    """Where it sleeps between two questions."""
    told = trained(hosts, tmp_path, Training(ASKS, until={0: "evaluated", 1: "all ranks of this host wait"}))

    assert "note DDP711 slow-rank: rank 0 asking again and again at train.py:16" in told.said[0], told.said
    assert "rank 0 asking again and again at train.py:16" in told.explained


def test_a_long_evaluation_on_one_host_is_no_fault(hosts: Hosts, tmp_path: Path) -> None:
    """A note says what that host does; once it goes on, the logs tell of no failure."""
    told = trained(hosts, tmp_path, Training(EVALUATES, until={0: "evaluated", 1: '"world": 0'}))

    assert all(map(no_alarm, told.said)), told.said
    assert "and no rank of this host has met those of others meanwhile: no hang" in told.said[1], told.said
    assert "DDP711 slow-rank: rank 1" not in told.explained.partition("no failure in")[0]
