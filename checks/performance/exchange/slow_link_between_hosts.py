"""The link to another host carries little, and each step waits for it.

## What happens

Between hosts gradients travel over a network interface. One that carries a hundredth of what it is made for (traffic
shaping, a VPN, a Docker bridge or a management port in the place of the fast one, a bad cable that made the port fall
back, a neighbour who fills it) sets the pace of all ranks: they wait in each backward until all has arrived.

## How to be sure

`ddpdoctor run --profile 50 -- COMMAND` on each host asks the kernel of the host, for each TCP connection of a rank to
another host, what it has sent and for how long it had something to send (tcp(7), TCP_INFO). ddpdoctor finds the link
where that is three tenths of the measured steps or more, 10 ms a step or more, and less than 50 MB/s and less than a
tenth of what the interface says were sent meanwhile (12.5 MB/s where it says nothing). The time in which the receiver
had no room does not count: it does not read then. So a rank that is late, and a host whose cores are taken, are no slow
link. It sees what this host sends; what it receives slowly is told on the host that sends it. Not seen: RDMA.
`ddpdoctor check` on all hosts sends half a megabyte over each link once its small jobs went well, several times, and
takes the fastest: more than 130 MB/s it cannot tell. A link that is below the same limits is told where it is eight
times as slow as the fastest one between these hosts and carries less than 10 MB/s, or carries less than 5 MB/s: busy
hosts make no link so slow. Half a megabyte whose last packet Linux confirms 40 ms late (TCP_DELACK_MIN) looks like
13 MB/s on any link.
`ddpdoctor bench --launched` measures each pair of hosts, without the training.

## How to mend it

Look which interface the addresses of the ranks lead to (`ip route get PEER`), and choose the fast one
(`GLOO_SOCKET_IFNAME`, `NCCL_SOCKET_IFNAME`). Look for a limit on it (`tc qdisc show dev IFACE`), for what its port came
down to (`ethtool IFACE`), for lost packets (`nstat -az TcpRetransSegs`). Until it is mended, send gradients less often.

## Versions and sources

Holds for torch 2.2 to 2.13, Linux 4.10 and later. Sources: Linux, include/uapi/linux/tcp.h (tcpi_busy_time,
tcpi_rwnd_limited); torch.distributed documentation, "Common environment variables".
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Fix,
    LinkUse,
    NotRun,
    Place,
    Profiled,
    Severity,
    StepsTimed,
    Training,
    probe,
    watch,
)

from ._links import is_slow, rate_text, said_by_interface, seen, slow_links

if TYPE_CHECKING:
    from ddpdoctor.check import Cluster, Jobs, Throughput

AILMENT = Ailment("DDP917", Severity.NOTE)
FAR = 0.005  # seconds there and back: more than within a data centre
SHOWN = 4  # ranks, or links
AS_SLOW = 8  # times, next to the fastest link between these hosts
CONFIRMED_LATE = 10e6  # bytes a second: a sound link on which what confirms the last packet comes 40 ms late does more
SLOW_FOR_ALL = 5e6  # the same: slow on busy hosts too


@probe
def between_all_hosts(cluster: Cluster, jobs: Jobs) -> Iterator[Finding]:
    """Look at what each host has sent the others: by its pool, when the hosts met."""
    del jobs
    if not cluster.carried:
        raise NotRun("links are measured where all hosts came, and jobs over all of them went well")
    if not (slow := _slow(cluster.carried)):
        return
    end, what, at_fault = _end(cluster, slow)
    rates = [each.use.rate for each in slow]
    rate = rate_text(rates[-1]) + (" and less" if rates[0] < rates[-1] else "")
    look = dict.fromkeys(
        f"tc qdisc show dev {name}; ethtool {name}   # on {host}" for host, name in _interfaces(cluster, slow, at_fault)
    )
    yield Finding(
        f"{what} goes at {rate}",
        tuple(_carried(cluster, each) for each in slow[:SHOWN]) + _fastest(cluster, slow),
        Fix(
            "take the limit from the interface, or let gloo and NCCL use a faster one (GLOO_SOCKET_IFNAME, "
            "NCCL_SOCKET_IFNAME); what limits it, and what its port came down to:",
            command="\n".join(look),
        ),
        Place(host=end),
        severity=Severity.WARNING,
    )


def _slow(carried: Sequence[Throughput]) -> list[Throughput]:
    """Return the links that carry little, also next to the fastest one: busy hosts make all of them slower."""
    fastest = max(each.use.rate for each in carried)
    limit = max(min(fastest / AS_SLOW, CONFIRMED_LATE), SLOW_FOR_ALL)
    slow = [each for each in carried if is_slow(each.use) and each.use.rate < limit]
    return sorted(slow, key=lambda each: each.use.rate)


def _end(cluster: Cluster, slow: Sequence[Throughput]) -> tuple[str, str, int | None]:
    """Return the host where to look first, what is slow, and whose links alone are slow, if there is one such host."""
    names = [host.name for host in cluster.hosts]
    fast = [each for each in cluster.carried if each not in slow]
    for side, verb in (("source", "sends to"), ("target", "receives from")):
        ends = {getattr(each, side) for each in slow}
        if len(ends) == 1 and not ends & {getattr(each, side) for each in fast} and len(slow) > 1:
            (end,) = ends
            return names[end], f"what {names[end]} {verb} the other hosts", end
    ends = set.intersection(*({each.source, each.target} for each in slow))
    if len(ends) == 1 and not any(ends & {each.source, each.target} for each in fast):
        (end,) = ends
        return names[end], f"what {names[end]} sends to the other hosts and receives from them", end
    first = slow[0]
    also = f", as {len(slow) - 1} more of {len(cluster.carried)} links do," if len(slow) > 1 else ""
    return names[first.source], f"what {names[first.source]} sends to {names[first.target]}{also}", None


def _carried(cluster: Cluster, each: Throughput) -> Evidence:
    between = f"{cluster.hosts[each.source].place} to {cluster.hosts[each.target].place}"
    over = f" over {each.use.interface}" if each.use.interface else ""
    return Evidence(
        f"{between}{over}: {rate_text(each.use.rate)}", said_by_interface(each.use), f"{each.use.sent:,} bytes"
    )


def _fastest(cluster: Cluster, slow: Sequence[Throughput]) -> tuple[Evidence, ...]:
    """Return the fastest link, where one is sound."""
    best = max(cluster.carried, key=lambda each: each.use.rate)
    return () if best in slow else (_carried(cluster, best),)


def _interfaces(cluster: Cluster, slow: Sequence[Throughput], at_fault: int | None) -> Iterator[tuple[str, str]]:
    """Yield the interfaces that can be the cause, with their hosts: of one host that is at fault, or of both ends."""
    for each in slow[:SHOWN]:
        for end in (each.source, each.target):
            host = cluster.hosts[end]
            name = each.use.interface if end == each.source else host.gloo_interface
            if name and at_fault in (None, end):
                yield host.name, name


@watch(StepsTimed)
def while_training(training: Training) -> Iterator[Finding]:
    """Look for the link of this host that has something to send most of the time."""
    slow, measured = slow_links(training), training.by_rank(Profiled)
    if not slow:
        return
    rank, link = max(slow.items(), key=lambda each: each[1].busy / max(1, measured[each[0]].window))
    told = measured[rank]
    steps, total = max(1, len(told.total)), statistics.median(told.total) / 1e9
    busy = link.busy / 1e9 / steps
    yield Finding(
        f"the link from rank {rank} to {link.peer} carries {rate_text(link.rate)}: in each step of {1e3 * total:.0f} "
        f"ms it has something to send for {1e3 * busy:.0f} ms, {link.busy / max(1, told.window):.0%} of the time",
        (
            seen(rank, told, link, said_by_interface(link)),
            *(seen(number, measured[number], each) for number, each in list(slow.items())[:SHOWN] if number != rank),
            *_path(link, steps),
        ),
        _fix(link, told, total, busy),
        Place(rank=rank),
    )


def _path(link: LinkUse, steps: int) -> Iterator[Evidence]:
    """Yield what else the kernel has counted, where that is unusual."""
    if link.round_trip > FAR * 1e9:
        yield Evidence(f"{link.round_trip / 1e6:.3g} ms there and back at least", "well below 1 ms in a data centre")
    if link.resent > steps:
        yield Evidence(f"{link.resent} packets were sent again", "next to none")


def _fix(link: LinkUse, told: Profiled, total: float, busy: float) -> Fix:
    """Return what to look at, and what a step takes once nothing is waited for that the link has to carry."""
    waits = statistics.median(told.exposed) / 1e9 if told.exposed else busy
    then = max(0.0, total - min(waits, busy))
    where = f"ip route get {link.peer}" + (f"; tc qdisc show dev {link.interface}" if link.interface else "")
    return Fix(
        "send over the fast interface (GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME), or take the limit from this one: "
        f"about {1e3 * then:.0f} ms a step or less instead of {1e3 * total:.0f}; which one it is, and what limits it:",
        command=where,
    )
