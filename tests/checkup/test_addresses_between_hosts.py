"""Hosts that met and do not reach each other at the address of gloo: which fix follows from what was seen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from helpers import CHECKS, Run

from ddpdoctor.cluster.cluster import SMALL_STEP, Cluster, Joint
from ddpdoctor.cluster.host import Host
from ddpdoctor.cluster.matrix import Link
from ddpdoctor.engine import evaluate
from ddpdoctor.host import network
from ddpdoctor.registry import find

if TYPE_CHECKING:
    from ddpdoctor.findings import Finding


def host(number: int, gloo: str, interface: str, **addresses: str) -> Host:
    """Return a host with the address that gloo would use, and others by their interfaces."""
    every = {gloo: interface} | {address: name for name, address in addresses.items()}
    return Host("ab"[number], nodes=2, node=number, gloo=gloo, gloo_interface=interface, addresses=every)


def found(slug: str, hosts: tuple[Host, ...], links: tuple[Link, ...]) -> tuple[Finding, ...]:
    """Return what a check finds between these hosts."""
    check = find(CHECKS, slug)
    assert check is not None
    offers = {"cluster": Cluster(hosts, 2, links=links)}
    return evaluate(check, check.facets[0], offers.__getitem__).findings


def test_an_interface_that_is_used_already_is_not_proposed_by_itself() -> None:
    """IPv6 is dropped and comes first: the name of the master leads there, too, whatever interface gloo has."""
    hosts = tuple(
        Host(
            "ab"[each], node=each, nodes=2, gloo=f"fd00::{each + 1}", gloo_interface="eth0",
            addresses={f"fd00::{each + 1}": "eth0", f"10.0.0.{each + 1}": "eth0"},
        )
        for each in (0, 1)
    )  # fmt: skip
    links = tuple(
        Link(1 - each, each, "gloo", f"fd00::{each + 1}", "silent", None, f"10.0.0.{each + 1}", "ok") for each in (0, 1)
    )
    first, second = found("interface-not-reached", hosts, links)
    assert "IPv6 is blocked between the hosts, and IPv4 is not" in first.message
    for each in (first, second):
        assert "export MASTER_ADDR=10.0.0.1 GLOO_SOCKET_IFNAME=eth0" in each.fix.command


def test_another_interface_is_proposed() -> None:
    """It is not the one that is used."""
    hosts = (host(0, "10.0.0.1", "eth0"), host(1, "10.9.0.2", "eth1", eth0="10.0.0.2"))
    (one,) = found("interface-not-reached", hosts, (Link(0, 1, "gloo", "10.9.0.2", "silent", None, "10.0.0.2", "ok"),))
    assert one.fix.command == "export GLOO_SOCKET_IFNAME=eth0   # on b"


@pytest.mark.parametrize("answer", ["refused", "ok"])
def test_a_host_that_came_from_an_address_of_a_router_is_behind_a_nat(answer: str) -> None:
    """No interface to name, and no firewall to open would help by itself."""
    hosts = (host(0, "10.0.0.1", "eth0"), host(1, "192.168.50.2", "eth0"))
    links = (
        Link(0, 1, "gloo", "192.168.50.2", "silent", None, "10.0.0.254", answer),
        Link(1, 0, "gloo", "10.0.0.1", "ok"),
    )
    slug = "interface-not-reached" if answer == "ok" else "data-ports-closed"
    (one,) = found(slug, hosts, links)
    assert "is behind a NAT: its connections come from 10.0.0.254" in one.message
    assert "GLOO_SOCKET_IFNAME=" not in one.fix.command
    assert (one.ambiguity is None) == (answer == "ok")


@pytest.mark.parametrize("met_at", ["10.0.9.9", "10.0.0.1"])
def test_a_master_that_others_meet_at_an_address_of_a_router_is_behind_a_nat(met_at: str) -> None:
    """One of its ports is published, and nothing leads to the address that it tells; the twin is met at its own."""
    hosts = (host(0, "10.0.0.1", "eth0"), replace(host(1, "10.1.0.2", "eth0"), master_at=met_at))
    links = (Link(1, 0, "gloo", "10.0.0.1", "unreachable"), Link(0, 1, "gloo", "10.1.0.2", "ok"))
    (one,) = found("data-ports-closed", hosts, links)
    assert ("is behind a NAT: b meets it at 10.0.9.9, which is no address of it" in one.message) == (
        met_at != "10.0.0.1"
    )
    assert ("iptables" in one.fix.command) == (met_at == "10.0.0.1")


def test_of_two_hosts_neither_is_said_to_be_the_one_that_drops() -> None:
    """What goes out of the one looks as what comes in at the other; a third host would tell."""
    hosts = (host(0, "10.0.0.1", "eth0"), host(1, "10.0.0.2", "eth0"))
    links = (Link(1, 0, "gloo", "10.0.0.1", "silent"), Link(0, 1, "gloo", "10.0.0.2", "ok"))
    (one,) = found("data-ports-closed", hosts, links)
    assert one.message.startswith("no connection of b to host 0 (a) comes about but for the master's port: silent")
    assert "INPUT" in one.fix.command.splitlines()[0]
    assert "OUTPUT" in one.fix.command.splitlines()[1]
    assert one.ambiguity is not None


def test_a_host_that_came_from_its_own_address_is_behind_a_firewall() -> None:
    """The healthy look-alike of a NAT: it came from another address that it has, which is silent as well."""
    hosts = (host(0, "10.0.0.1", "eth0"), host(1, "10.0.0.2", "eth0", eth1="10.1.0.2"))
    links = (Link(0, 1, "gloo", "10.0.0.2", "silent", None, "10.1.0.2", "silent"), Link(1, 0, "gloo", "10.0.0.1", "ok"))
    (one,) = found("data-ports-closed", hosts, links)
    assert "NAT" not in one.message


def test_bridges_with_one_address_give_way_to_the_interface_that_was_reached() -> None:
    """Each host has a bridge of its own, with one address on all; a container without another needs a network."""
    hosts = tuple(host(each, "172.17.0.1", "docker0", eth0=f"10.0.0.{each + 1}") for each in (0, 1))
    links = tuple(
        Link(1 - each, each, "gloo", "172.17.0.1", "refused", None, f"10.0.0.{each + 1}", "ok") for each in (0, 1)
    )
    (one,) = found("hosts-share-address", hosts, links)
    assert one.fix.command == "export GLOO_SOCKET_IFNAME=eth0   # on all hosts"
    (one,) = found("hosts-share-address", hosts, ())
    assert one.fix.command.startswith("docker run --network=host")


def test_the_line_that_names_this_host_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By its number; not one of another host, and no comment."""
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost\n172.17.0.1 node-a.lan node-a  # of docker\n10.0.0.2 node-b # node-a\n")
    monkeypatch.setattr(network, "HOSTS", hosts)
    assert network._entries("node-a") == (f"{hosts}:2: 172.17.0.1 node-a.lan node-a",)


@pytest.mark.parametrize(("local", "rejects"), [("10.77.0.2", True), ("10.78.0.2", False)])
def test_no_route_to_a_neighbour_is_a_firewall_first(
    ddpdoctor: Run, tmp_path: Path, local: str, *, rejects: bool
) -> None:
    """Of hosts in two networks it can be the route."""
    (tmp_path / "b.log").write_text(
        f"gloo/transport/tcp/debug_logger.cc:9] ERROR failed to connect, willRetry=0, retry=4, retryLimit=3, rank=1, "
        f"size=2, local=[{local}]:44184, remote=[10.77.0.1]:56731$1, error=SO_ERROR: No route to host, "
        "remote=[10.77.0.1]:56731$1\nRuntimeError: Gloo connectFullMesh failed with [gloo/transport/tcp/pair.cc:152] "
        "timed out connecting: SO_ERROR: No route to host, remote=[10.77.0.1]:56731$1\n"
    )
    said = " ".join(ddpdoctor("explain", str(tmp_path / "b.log")).stdout.split())
    assert ("a firewall on 10.77.0.1 that rejects gloo's ports" in said) == rejects
    assert ("iptables -I INPUT -p tcp -s 10.77.0.2 -j ACCEPT # on 10.77.0.1" in said) == rejects


def test_a_connection_that_carries_little_alone_stalls() -> None:
    """One that fails with the first bytes already is told as it was; so is an error that is no time-out."""
    hosts = (host(0, "10.0.0.1", "eth0"), host(1, "10.0.0.2", "eth0"))
    check = find(CHECKS, "collective-between-hosts-fails")
    assert check is not None
    for step, problem, stalls in (
        ("all_reduce", "RuntimeError: Timed out waiting 20000ms for recv", True),
        (SMALL_STEP, "RuntimeError: Timed out waiting 20000ms for recv", False),
        ("all_reduce", "RuntimeError: Connection reset by peer", False),
    ):
        cluster = Cluster(hosts, 2, joint=tuple(Joint(each, "gloo", problem, step) for each in (0, 1)))
        offers = {"cluster": cluster, "jobs": None}
        (one,) = evaluate(check, check.facets[0], offers.__getitem__).findings
        assert ("the connection stalls after some bytes" in one.message) == stalls
        assert (one.ambiguity is not None) == stalls
        assert ("nc -N 10.0.0.2 29999" in one.fix.command) == stalls
