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
from collections.abc import Iterator

from ddpdoctor.check import (
    Ailment,
    Evidence,
    Finding,
    Fix,
    LinkUse,
    Place,
    Profiled,
    Severity,
    StepsTimed,
    Training,
    watch,
)

from ._links import rate_text, seen, slow_links

AILMENT = Ailment("DDP917", Severity.NOTE)
FAR = 0.005  # seconds there and back: more than within a data centre
SHOWN = 4  # ranks


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
    expected = f"{link.interface} says that it carries {link.speed:,} Mbit/s" if link.speed else ""
    yield Finding(
        f"the link from rank {rank} to {link.peer} carries {rate_text(link.rate)}: in each step of {1e3 * total:.0f} "
        f"ms it has something to send for {1e3 * busy:.0f} ms, {link.busy / max(1, told.window):.0%} of the time",
        (
            seen(rank, told, link, expected),
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
