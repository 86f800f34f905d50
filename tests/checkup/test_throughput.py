"""What links between hosts carry: what is told of it, and what is read of it from a peer. test_hosts.py measures it."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st

from ddpdoctor.checks.performance.exchange import slow_link_between_hosts
from ddpdoctor.cluster.cluster import Cluster, Throughput
from ddpdoctor.cluster.host import Host, ProtocolError
from ddpdoctor.cluster.joint.throughput import MOST_ROUNDS, row_from, steps
from ddpdoctor.host.tcp import LinkUse

if TYPE_CHECKING:
    from ddpdoctor.findings import Finding

FAST = 100e6  # bytes a second
PAIRS = [(a, b) for a in range(3) for b in range(3) if a != b]


def sent(source: int, target: int, rate: float, speed: int = 10_000) -> Throughput:
    """Return what a host sent another one at so many bytes a second."""
    use = LinkUse(f"10.0.0.{target + 1}", "eth0", speed, 1 << 19, int(1e9 * (1 << 19) / rate), 0, 100_000)
    return Throughput(source, target, use)


def found(carried: list[Throughput]) -> list[Finding]:
    """Return what is told of the links of three hosts."""
    hosts = tuple(Host(name, node=at, gloo_interface="eth0") for at, name in enumerate("abc"))
    cluster = Cluster(hosts, 3, carried=tuple(carried))
    return list(slow_link_between_hosts.between_all_hosts.examine(cluster=cluster, jobs=None))


@pytest.mark.parametrize(
    ("slow", "words", "host"),
    [
        ({(1, 0), (1, 2)}, "what b sends to the other hosts goes at 2 MB/s", "b"),
        ({(0, 2), (1, 2)}, "what c receives from the other hosts goes at 2 MB/s", "c"),
        ({(0, 1), (1, 0), (1, 2), (2, 1)}, "what b sends to the other hosts and receives from them goes at", "b"),
        ({(0, 1)}, "what a sends to b goes at 2 MB/s (16 Mbit/s)", "a"),
        (set(PAIRS), "as 5 more of 6 links do, goes at 2 MB/s", "a"),
    ],
)
def test_the_host_is_named_whose_links_alone_are_slow(slow: set[tuple[int, int]], words: str, host: str) -> None:
    """What it sends, what it receives, or both; else the link, and both of its ends are to be looked at."""
    (finding,) = found([sent(*pair, 2e6 if pair in slow else FAST) for pair in PAIRS])

    assert words in finding.message
    assert finding.place.host == host
    assert f"tc qdisc show dev eth0; ethtool eth0   # on {host}" in finding.fix.command
    assert ("# on c" in finding.fix.command) == (host == "c" or len(slow) == len(PAIRS))


@pytest.mark.parametrize(
    "carried",
    [
        pytest.param([sent(*pair, FAST) for pair in PAIRS], id="all carry what a training needs"),
        pytest.param([sent(*pair, 11e6, speed=100) for pair in PAIRS], id="old ports, which do what they can"),
        pytest.param([sent(*pair, 20e6) for pair in PAIRS], id="all alike: the hosts are busy, or the switch is slow"),
        pytest.param([sent(0, 1, 20e6), sent(1, 0, FAST)], id="a fifth of the other direction: a busy host"),
        pytest.param([sent(0, 1, 13.1e6), sent(1, 0, 125e6)], id="half a megabyte that is confirmed 40 ms late"),
    ],
)
def test_links_that_a_busy_host_can_make_so_slow_are_not_blamed(carried: list[Throughput]) -> None:
    """Nor those that carry what their interface is for."""
    assert found(carried) == []


@pytest.mark.parametrize(("hosts", "rounds"), [(2, 1), (9, 8), (10, 4), (100, 7), (4096, 8)])
def test_each_host_sends_in_each_round_to_another_one(hosts: int, rounds: int) -> None:
    """To all others where these are few; else to some, in no more rounds."""
    far = steps(hosts)

    assert len(set(far)) == len(far) == rounds <= MOST_ROUNDS
    assert all(0 < step < hosts for step in far)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9), st.lists, max_leaves=9
)


@given(JSON | st.lists(st.lists(st.integers() | st.text(max_size=9), min_size=8, max_size=8), max_size=9))
def test_what_a_peer_says_of_links_is_such_or_refused(data: object) -> None:
    """Numbers, of a host that there is."""
    with suppress(ProtocolError):
        for each in row_from(data, 1, 3):
            assert each.source == 1
            assert 0 <= each.target < 3
            assert each.use.rate >= 0


def test_what_is_said_of_links_is_read_as_it_was_said() -> None:
    """Through JSON and back."""
    told = [sent(1, 0, 2e6), sent(1, 2, FAST)]

    assert list(row_from(json.loads(json.dumps([[each.target, *each.use] for each in told])), 1, 3)) == told
