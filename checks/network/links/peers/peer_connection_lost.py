"""The other end of a connection is gone.

## What happens

A rank that ends, by an exception, by a signal or by torchrun's cleanup, takes its sockets with it, and all who talk
to it hear about it: NCCL says "Call to recv from 10.0.0.2<49901> failed : Broken pipe", "Connection closed by remote
peer" and ncclRemoteError ("remote process exited or there was a network error"); gloo "Connection closed by peer
[10.0.0.2]:3210" and "Read error [10.0.0.2]:3210: Connection reset by peer". It is hardly ever the first error: that
one stands in the log of the rank at the address given. "Connection timed out" and "No route to host" in its place are
not what a rank that ends leaves behind: the network broke, or the host is down.

"Connection refused", when NCCL has retried long enough, is the same before the connection: nobody listens any more.

## How to be sure

The log of that rank ends before this message. If it goes on, the network between the hosts broke.

Before anybody gives up, a rank waits in silence, over gloo for 15 minutes. `ddpdoctor run` looks at what the kernel
knows then: whether the interface is down, and what was sent and never acknowledged, however often. A host
whose processes are busy or stopped acknowledges all the same, so that it is not taken for one that is gone.

## How to mend it

Mend the first error of that rank.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: NCCL, src/misc/socket.cc and ncclGetErrorString; gloo, transport/tcp/pair.cc;
Linux, Documentation/networking/proc_net_tcp.rst.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ddpdoctor.check import (
    RANKS_LINE,
    Ailment,
    Ambiguity,
    Evidence,
    Finding,
    Fix,
    Log,
    Record,
    Role,
    Severity,
    Stalled,
    ends_from,
    log_pattern,
    place,
)

from ....collectives.hangs._hangs import on_hang
from ....collectives.hangs._kinds import Hang
from ....collectives.hangs._told import seen, short
from ._beside_the_loss import RECEIVES, SAVES, SENT, SHARDED, of_a_save, rank_of_this_host
from ._of_the_watch import ALIVE, OF_A_PEER, OF_ITS_OWN, of_a_peer, of_its_own
from ._peers import BOOTSTRAP, CLOSED, name
from ._silence import answers_small_ones, left, never_reached

AILMENT = Ailment("DDP343", Severity.ERROR)
ENDED = "it came to its end first: fewer batches, a return, sys.exit"


@log_pattern(
    CLOSED + r"|remote process exited or there was a network error|ncclRemoteError: A call failed"
    r"|MPI communication peer process has unexpectedly disconnected",
    role=Role.CONSEQUENCE,
    context=(BOOTSTRAP, CLOSED, RANKS_LINE),
)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Yield who went away, where any line of the log does."""
    named = re.search(CLOSED, record.text) or next(
        (found for _, found in log.find(CLOSED) if any(found.groups())), None
    )
    address = next(filter(None, named.groups()), "") if named else ""
    peer = name(log, address) if address else "a peer"
    causes: tuple[str, ...] = (
        f"the rank at {address or 'the other end'} died of an error of its own",
        "the network between the hosts broke",
        SENT if RECEIVES.search(record.text) else ENDED,
    )
    if broken_off := without_an_end(log):
        causes = (
            f"the host of {broken_off}, or all that ran there, was killed, or has gone down",
            causes[1],
            f"its ranks run on, and {broken_off} was taken before their end",
        )
    saved = SAVES.search(record.text) if SHARDED.search(record.text) else None
    if saved:
        yield of_a_save(record, match, saved, causes)
        return
    if address.startswith("127."):
        yield rank_of_this_host(record, match, address)
        return
    broke = bool(named and named["net"])  # a rank that ends says goodbye; silence is the network's, or a dead host's
    yield Finding(
        f"nothing comes from {peer} any more: the network to it broke, or its host is down"
        if broke
        else f"{peer} closed its connections: it ended, or the network to it broke"
        + (f"; {broken_off} breaks off before the end of its ranks" if broken_off else ""),
        (record.proof(match, "the peer stays until the collective is done"),),
        Fix(
            f"read the first error in the log of {peer}",
            command=f"ddpdoctor explain LOG_OF_{address or 'THE_OTHER_RANKS'}",
        ),
        record.place,
        ambiguity=Ambiguity(
            (causes[1], causes[0]) if broke else causes,
            "last -x reboot shutdown; journalctl -k --since -1d | tail -50   # on that host, when it is back"
            if broken_off
            else "ddpdoctor explain LOGS_OF_ALL_RANKS",
        ),
    )


def without_an_end(log: Log) -> str:
    """Return the log of a host that breaks off, where those of others have the line with which a watched run ends.

    One whose ranks tell of a connection that they have lost is not the one that was lost.
    """
    whole = {each.source for each, match in log.find(RANKS_LINE) if ends_from([match[1]])}
    losers = {each.source for each, _ in log.find(CLOSED)}
    broken = sorted({*log.lengths} - whole - losers) if whole else []
    return Path(broken[0]).name if len(broken) == 1 else ""


@log_pattern(OF_ITS_OWN)
def as_the_watch_of_that_host_told(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read what the watch said of its own host, which knows most."""
    yield of_its_own(record, match)


@log_pattern(OF_A_PEER, role=Role.CONSEQUENCE, context=(OF_ITS_OWN, ALIVE))
def as_the_watch_told(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Read what the watch said of another host, unless the watch there knows more."""
    if not log.first(OF_ITS_OWN):
        yield of_a_peer(record, match, log)


@on_hang(Hang.CUT)
def while_training(event: Stalled) -> Iterator[Finding]:
    """Yield the interface that is down, or the host that acknowledges nothing, and who waits for it."""
    gone = event.silent[0]
    waiting = event.ranks[0]
    waits = f"rank {waiting.rank} waits in {waiting.operation} at {short(waiting.site)}"
    if gone.down and not gone.interface:
        yield Finding(
            f"no interface of this host has {gone.local} any more, the address of its connections: {gone.peer} is out "
            f"of reach; {waits}",
            (Evidence(f"{gone.local} is gone", "the address stays as long as the training", "this host"), *seen(event)),
            Fix(
                "find out what takes it away (DHCP, a VPN, a change by hand), give it back, and start anew",
                command="ip -brief address; journalctl -u NetworkManager -u systemd-networkd --since -1h",
            ),
            place(waiting.site, rank=waiting.rank),
        )
        return
    if gone.down:
        yield Finding(
            f"{gone.interface}, the interface of this host at {gone.local}, is down: {gone.peer} is out of reach; "
            f"{waits}",
            (Evidence(f"{gone.interface} is down", "it is up, and its cable plugged in", gone.local), *seen(event)),
            Fix(f"bring {gone.interface} up again, and start anew", command=f"ip link show {gone.interface}"),
            place(waiting.site, rank=waiting.rank),
        )
        return
    if gone.connecting:
        yield never_reached(event, gone, waits)
        return
    if gone.left:
        yield left(event, gone, waits)
        return
    unacked = Evidence(
        f"{gone.unacked} bytes to {gone.peer}, sent again {gone.tries} times",
        "acknowledged at once, however busy the processes there are",
        f"from {gone.local}",
    )
    if gone.answers:
        yield answers_small_ones(event, gone, waits, unacked)
        return
    yield Finding(
        f"{gone.peer} has stopped answering: nothing of what this host sends is acknowledged; {waits}",
        (unacked, *seen(event)),
        Fix(f"see to the host {gone.peer} and the network to it, and start anew", command=f"ping -c 3 {gone.peer}"),
        place(waiting.site, rank=waiting.rank),
        ambiguity=Ambiguity(
            (
                f"the host {gone.peer} is down or frozen",
                "the network to it broke",
                "a firewall on one of the two, or between, drops what it let through before",
                "large packets are lost (MTU)",
            ),
            f"ping -c 3 {gone.peer}; ping -c 3 -M do -s 1472 {gone.peer}",
        ),
    )


@on_hang(Hang.ON_LOOPBACK)
def gloo_on_loopback(event: Stalled) -> Iterator[Finding]:
    """Yield why no rank of another host can come to this one's."""
    waiting = event.ranks[0]
    yield Finding(
        f"gloo tells the ranks of other hosts to come to a loopback address: {event.on_loopback}; rank {waiting.rank} "
        f"waits in init_process_group at {short(waiting.site)}",
        (
            Evidence(event.on_loopback, "an address that other hosts reach", "this host"),
            Evidence(f"{len(event.ranks)} of {event.world_size} ranks are here", "", "this host"),
        ),
        Fix(
            "name the interface that leads to the other hosts, on this host",
            command="ip -brief address; export GLOO_SOCKET_IFNAME=eth0   # the one with the address that they know",
        ),
        place(waiting.site, rank=waiting.rank),
    )
