from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st

from ddpdoctor.checks.network.interfaces import gloo_cannot_connect
from ddpdoctor.cluster.launch import several_hosts
from ddpdoctor.facets import Check, Instrument, NotRun
from ddpdoctor.host import network as module
from ddpdoctor.host.backend_network import gloo_address, nccl_interface, nccl_interfaces
from ddpdoctor.host.network import (
    Interface,
    Network,
    Resolution,
    gather_network,
    resolve,
    try_connect,
)
from ddpdoctor.jobs.outcome import Returned, Stuck

if TYPE_CHECKING:
    from ddpdoctor.host.facts import Facts

LO = Interface("lo", ("127.0.0.1", "::1"), up=True)
DOCKER = Interface("docker0", ("172.17.0.1",), up=True)
ETH = Interface("eth0", ("10.0.0.5",), up=True)
IB = Interface("ib0", ("10.1.0.5",), up=True)
DOWN = Interface("eth1", ("10.0.0.6",), up=False)


def _network(*interfaces: Interface, own: tuple[str, ...] = ("10.0.0.5",)) -> Network:
    return Network("host", Resolution("host", own), interfaces, ())


def test_this_host_is_gathered_quickly_and_knows_itself() -> None:
    """Loopback is there, listeners are named with their process."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        started = time.monotonic()
        network = gather_network()

        assert time.monotonic() - started < 1
        assert network.owns("127.0.0.1")
        assert [listener.pid for listener in network.listeners if listener.port == port] == [os.getpid()]


@pytest.mark.parametrize(
    ("interfaces", "setting", "name"),
    [
        ((LO, DOCKER, ETH), None, "eth0"), ((LO, DOCKER, ETH, IB), None, "ib0"), ((LO, DOCKER), None, "docker0"),
        ((LO,), None, "lo"), ((LO, ETH), "=eth0", "eth0"), ((LO, ETH), "^eth", "lo"), ((LO, ETH, IB), "ib,eth", "eth0"),
        ((LO, DOWN), "eth1", None), ((LO, ETH), "=eth", None),
    ],
)  # fmt: skip
def test_nccls_choice(interfaces: tuple[Interface, ...], setting: str | None, name: str | None) -> None:
    """InfiniBand first, docker and loopback last; a setting decides."""
    chosen = nccl_interface(_network(*interfaces), setting)

    assert (chosen.name if chosen else None) == name


NAMES = st.sampled_from(["lo", "eth0", "eth1", "ens5", "ib0", "docker0", "bond0.7"])


@given(st.lists(NAMES, unique=True).map(tuple), st.lists(NAMES, min_size=1).map(",".join))
def test_excluding_and_including_are_complements(names: tuple[str, ...], entries: str) -> None:
    """`^x` lets through exactly what `x` does not, with `=` and without."""
    for mark in ("", "="):
        chosen, rest = nccl_interfaces(names, mark + entries), nccl_interfaces(names, "^" + mark + entries)

        assert set(chosen) | set(rest) == set(names)
        assert not set(chosen) & set(rest)


def test_gloo_takes_the_address_of_the_hosts_name() -> None:
    """If it is one of this host's, else loopback; a setting decides."""
    assert gloo_address(_network(LO, ETH), None) == "10.0.0.5"
    assert gloo_address(_network(LO, ETH, own=("203.0.113.9",)), None) == "127.0.0.1"
    assert gloo_address(_network(LO, ETH, IB), "ib0") == "10.1.0.5"
    assert gloo_address(_network(LO, ETH), "ens9") is None


def test_a_port_is_open_refused_or_filtered() -> None:
    """Told apart by real connections: a server, a port without one, a server whose queue is full."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert try_connect("127.0.0.1", server.getsockname()[1]) == "open"
        port = server.getsockname()[1]
    assert try_connect("127.0.0.1", port) == "refused"
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        port = full.getsockname()[1]
        waiting = [socket.create_connection(("127.0.0.1", port), timeout=1)]
        assert try_connect("127.0.0.1", port, patience=0.5) == "filtered"
        for each in waiting:
            each.close()


def test_a_resolver_that_does_not_answer_is_waited_for_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken DNS is a fact, not a hang."""

    def slow(*_: object, **__: object) -> list[object]:
        time.sleep(2)
        return []

    monkeypatch.setattr(module, "PATIENCE", 0.2)
    monkeypatch.setattr(socket, "getaddrinfo", slow)

    assert resolve("slow.example").problem == "no answer within 0 s"


@pytest.mark.parametrize("name", ["", "a" * 300, "..", "no such host", "\0"])
def test_a_name_that_is_none_does_not_resolve(name: str) -> None:
    """Whatever stands in MASTER_ADDR, looking it up ends."""
    found = resolve(name)

    assert found.addresses == () or name == ""


@pytest.mark.parametrize(
    ("environ", "several"),
    [
        ({}, False), ({"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4"}, False), ({"SLURM_NNODES": "1"}, False),
        ({"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"}, True), ({"SLURM_NNODES": "2"}, True),
        ({"PET_NNODES": "1:4"}, True),
        ({"WORLD_SIZE": "8"}, False), ({"NNODES": "many"}, False),
    ],
)  # fmt: skip
def test_signs_of_several_hosts(environ: dict[str, str], several: object) -> None:
    """Only where the environment says so; WORLD_SIZE alone does not."""
    assert bool(several_hosts(environ)) is several


def test_a_single_host_gets_no_alarm_about_its_name(checks: dict[str, Check], facts: Facts) -> None:
    """127.0.1.1 in /etc/hosts is harmless on one host, and most hosts of Debian have it."""
    world = replace(facts, environ={}, network=_network(LO, ETH, own=("127.0.1.1",)))
    by_its_name, _ = checks["hostname-loopback"].of(Instrument.PROBE)

    with pytest.raises(NotRun, match="several hosts"):
        list(by_its_name.examine(facts=world))


VETH = (
    "ip link set lo up; ip link add eth9 type veth peer name eth8; ip addr add 10.9.9.1/24 dev eth9;"
    "ip link set eth9 up; ip link set eth8 up;"
)


def _in_namespace(script: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script in network, host-name and mount namespaces of its own."""
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-num", "true"], check=False).returncode:
        pytest.skip("no namespaces can be made here")
    if shutil.which("ip") is None:
        pytest.skip("no iproute2")
    script = f'ddpdoctor() {{ "{sys.executable}" -m ddpdoctor "$@"; }}\n{script}'
    return subprocess.run(
        ["unshare", "-num", "bash", "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "1000"},
        timeout=90,
        check=False,
    )


def test_a_host_without_any_network_is_told_what_is_down() -> None:
    """Loopback down: one error with its fix; jobs over gloo are not run, because of it."""
    done = _in_namespace("ddpdoctor check --verbose --only network,collectives")

    assert done.returncode == 1
    assert "error DDP311 loopback-down" in done.stdout
    assert "ip link set lo up" in done.stdout
    assert "because the loopback interface is down" in done.stdout
    assert "1 error" in done.stdout


def test_a_host_with_loopback_alone_is_well() -> None:
    """No other interface, and a name that nobody knows: notes at most."""
    check = "ddpdoctor check --verbose --only network,collectives"
    done = _in_namespace(f"ip link set lo up; hostname nobody-knows-me; {check}")

    assert done.returncode == 0, done.stdout
    assert "passed  DDP701 gloo-collectives-fail" in done.stdout


def test_two_hosts_and_a_name_that_resolves_to_loopback() -> None:
    """The line that Debian puts into /etc/hosts, really there, and an environment that says two hosts."""
    done = _in_namespace(
        f"{VETH} hostname node0; printf '127.0.0.1 localhost\\n127.0.1.1 node0\\n' > /tmp/hosts.$$;"
        "mount --bind /tmp/hosts.$$ /etc/hosts;"
        "trap 'umount /etc/hosts; rm /tmp/hosts.$$' EXIT;"
        "SLURM_NNODES=2 ddpdoctor check --only hostname-loopback"
    )

    assert done.returncode == 1, done.stdout + done.stderr
    assert "node0 resolves to 127.0.1.1" in done.stdout
    assert "export GLOO_SOCKET_IFNAME=eth9" in done.stdout


def test_a_master_behind_a_firewall_is_filtered() -> None:
    """Another address of the namespace's own, whose port a packet filter drops."""
    if shutil.which("nft") is None:
        pytest.skip("no nftables")
    done = _in_namespace(
        f"{VETH} nft add table ip t; nft 'add chain ip t o {{ type filter hook output priority 0; }}';"
        "nft add rule ip t o ip daddr 10.9.9.2 drop;"
        "MASTER_ADDR=10.9.9.2 MASTER_PORT=29511 ddpdoctor check --only master-unreachable"
    )

    assert done.returncode == 1, done.stdout + done.stderr
    assert "10.9.9.2" in done.stdout
    assert "a firewall drops the packets" in done.stdout


@pytest.mark.parametrize(
    ("variable", "setting", "said"),
    [
        ("GLOO_SOCKET_IFNAME", "^docker0", "^ is a sign of NCCL_SOCKET_IFNAME alone"),
        ("GLOO_SOCKET_IFNAME", "^docker0,lo", "^ is a sign of NCCL_SOCKET_IFNAME alone"),
        ("GLOO_SOCKET_IFNAME", "=eth0", "= is a sign of NCCL_SOCKET_IFNAME alone"),
        ("NCCL_SOCKET_IFNAME", "=ens5", "= asks for the whole name"),
        ("GLOO_SOCKET_IFNAME", "ens5", ""),
    ],
)
def test_signs_before_a_name_are_explained(
    variable: str, setting: str, said: str, facts: Facts, checks: dict[str, Check]
) -> None:
    """What is excluded is not named in the fix."""
    docker = replace(ETH, name="docker0", addresses=("172.17.0.1",))
    told = replace(facts, environ={variable: setting}, network=_network(LO, docker, ETH))
    (facet,) = checks["interface-missing"].of(Instrument.PROBE)
    (found,) = facet.examine(told)
    assert said in found.message
    assert bool(said) == ("sign of" in found.message or "asks for" in found.message)
    assert found.fix.command == f"export {variable}=eth0"


@pytest.mark.parametrize(
    ("setting", "command"),
    [
        ("^lo,docker,eth", "export NCCL_SOCKET_IFNAME=^lo,docker"), ("^=lo,eth0", "export NCCL_SOCKET_IFNAME=^=lo"),
        ("^lo,docker", None), ("^e,l", "export NCCL_SOCKET_IFNAME=^l"),
    ],
)  # fmt: skip
def test_a_name_that_excludes_all_is_said_to(
    setting: str, command: str | None, facts: Facts, checks: dict[str, Check]
) -> None:
    """What keeps NCCL from the first interface that is not loopback is left out of the list."""
    environ = {"NCCL_SOCKET_IFNAME": setting}
    check = checks["interface-missing"]
    found = [
        finding
        for facet in check.of(Instrument.PROBE)
        for finding in facet.examine(replace(facts, environ=environ, network=_network(LO, ETH)))
    ]

    assert [each.fix.command for each in found] == [command] * (command is not None)
    assert all("excludes all interfaces of this host: lo, eth0" in each.message for each in found)


@pytest.mark.parametrize("several", [False, True])
def test_ranks_that_do_not_connect_are_not_sent_to_loopback_between_hosts(facts: Facts, *, several: bool) -> None:
    """Of one host loopback mends it; of several it would cut the ranks of the others off."""
    outcomes = iter([[Stuck(0, "", ())], [Returned(0, "", None)]])
    jobs: Any = SimpleNamespace(run=lambda *_, **__: next(outcomes))
    environ = {"NNODES": "2", "NODE_RANK": "1"} if several else {}
    (found,) = gloo_cannot_connect.as_a_training_would.examine(replace(facts, environ=environ), jobs, ("gloo",))

    assert ("IFNAME=lo" in found.fix.command) is not several
    assert ("firewall" in found.fix.summary) is several
