"""The InfiniBand or RoCE path does not work on a host.

## What happens

NCCL found RDMA devices ("NET/IB : Using [0]mlx5_0:1/RoCE"), prefers them to sockets, and fails in a call of
libibverbs or in the first transfer: a GID index that is not the RoCE v2 one, a port that is down, an OFED that does
not fit the kernel, a device that the container does not have, hosts whose InfiniBand networks are not connected. "Got
completion from peer ... with status=12" says that the peer never answered over RDMA.

## How to be sure

With `NCCL_IB_DISABLE=1` the same training runs over sockets. `ibv_devinfo` shows ports and states;
`show_gids` the index to choose.

## How to mend it

Compare OFED, GIDs and link states of the host that fails with a good one; NCCL_IB_HCA to choose
devices, NCCL_IB_GID_INDEX for RoCE. NCCL_IB_DISABLE=1 is a slow stop-gap.

## Versions and sources

Holds for NCCL 2.4 to 2.30, torch 2.2 to 2.13. Source: NCCL, src/misc/ibvwrap.cc and src/transport/net_ib.cc; NCCL
documentation, "NCCL_IB_GID_INDEX".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from ddpdoctor.check import Ailment, Ambiguity, Evidence, Finding, Fix, Log, Record, Severity, log_pattern

from ._nccl import WARN

AILMENT = Ailment("DDP337", Severity.ERROR)
FIX = Fix(
    "show that RDMA is at fault, then mend it; sockets are slower and work",
    command="export NCCL_IB_DISABLE=1   # runs: RDMA is broken\nibv_devinfo | grep -E 'hca_id|state'; show_gids",
)
GID = "export NCCL_IB_GID_INDEX=3   # RoCE: the number that show_gids gives for v2, on every host"
BROKEN = "the RDMA path of a host is broken (GID index, link, OFED, devices of the container)"
ENDS = (
    r"local GID ::ffff:(?P<net>\d+\.\d+\.\d+)\.(?P<host>\d+), ?"
    r"remote GID ::ffff:(?P<other>\d+\.\d+\.\d+)\.(?P<peer>\d+)"
)
STATUS = {  # ibv_wc_status
    "1": "local length error",
    "2": "local queue pair error",
    "4": "local protection error",
    "9": "remote invalid request",
    "10": "remote access error",
    "11": "remote operation error",
    "13": "the receiver was not ready",
}
USING = r"NET/IB : Using (?:\[\d+\][^\s;]{1,60}[ ]?){2,32}"
DEVICE = re.compile(r"\[\d+\](?P<device>[\w.-]+:\d+)/(?P<kind>IB|RoCE)\b")
UNLOCKED = "the limit on locked memory is too low"


@log_pattern(
    r"(?<!INFO )Call to (ibv_(?!fork|query_ece|set_ece|reg_mr)\w+) failed with (?:error )?"
    r"(?!Cannot allocate memory)(?:\d+ )?(?!Cannot allocate memory)([A-Z][^\n,]*)",
    context=(USING,),
)
def by_a_call(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Libibverbs says no, and not for want of memory; the addresses of a connection can say more."""
    ends = re.search(ENDS, record.text) if match[1] == "ibv_modify_qp" and "RTR" in record.text else None
    if ends and ends["net"] != ends["other"]:
        yield _between(record, match, ends)
        return
    used = log.first(USING)
    kinds = {each[1]: each[2] for each in DEVICE.finditer(used[1][0])} if used else {}
    if used and match[1] == "ibv_modify_qp" and len(set(kinds.values())) > 1:
        yield _of_two_kinds(record, match, used[0].proof(used[1]), kinds)
        return
    if match[1] == "ibv_modify_qp" and match[2].startswith(("Network is unreachable", "No route", "Connection timed")):
        yield _without_a_way(record, match)
        return
    yield Finding(
        f"InfiniBand does not work on this host: {match[1]} failed with {match[2].strip()}",
        (record.proof(match, f"{match[1]} succeeds"),),
        FIX,
        record.place,
    )


def _of_two_kinds(record: Record, match: re.Match[str], shown: Evidence, kinds: dict[str, str]) -> Finding:
    """Return that ports of InfiniBand and of Ethernet are used at once, which cannot be joined to each other."""
    few = min(set(kinds.values()), key=list(kinds.values()).count)
    rest = ",".join(device for device, kind in kinds.items() if kind != few)
    return Finding(
        f"NCCL uses adapters of InfiniBand and of Ethernet (RoCE) at once, and they are not joined to each other: "
        f"{match[1]} failed with {match[2].strip()}",
        (record.proof(match, f"{match[1]} succeeds"), shown),
        Fix("let NCCL use one kind, the same on all hosts", command=f"export NCCL_IB_HCA=={rest}"),
        record.place,
        ambiguity=Ambiguity(
            (f"a port of one kind was to be joined to one of the other ({few} is the rarer here)", BROKEN),
            f"NCCL_IB_HCA=={rest} torchrun ...   # runs: it was the two kinds",
        ),
    )


def _without_a_way(record: Record, match: re.Match[str]) -> Finding:
    """Return that the address of the peer's adapter has no route from this one."""
    return Finding(
        f"RDMA finds no way to the adapter of a peer: {match[1]} failed with {match[2].strip()}",
        (record.proof(match, "adapters that reach each other"),),
        Fix(
            "give each adapter a route to those that it is to reach, or let NCCL connect those of one network alone",
            command="show_gids; ip route   # on both hosts: an IPv4 address for each adapter, and a route\n"
            f"export NCCL_CROSS_NIC=0\n{GID}",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "the adapters are in different networks (rails) without a route between them",
                "an adapter has no address of the kind that NCCL_IB_GID_INDEX names (RoCE v2)",
                "NCCL took an adapter that is not connected, or is for storage: NCCL_IB_HCA names those to use",
            ),
            "show_gids; ibv_devinfo | grep -E 'hca_id|state'   # on both hosts",
        ),
    )


def _between(record: Record, match: re.Match[str], ends: re.Match[str]) -> Finding:
    """Return that two adapters of different networks do not reach each other."""
    local, remote = f"{ends['net']}.{ends['host']}", f"{ends['other']}.{ends['peer']}"
    return Finding(
        f"RDMA finds no way from the adapter {local} to {remote}, in another network: ibv_modify_qp failed with "
        f"{match[2].strip()}",
        (record.proof(match, "adapters that reach each other"),),
        Fix(
            "let NCCL connect only adapters of the same number, if each has a network of its own",
            command="export NCCL_CROSS_NIC=0\n"
            f"ip route get {remote} from {local}; rping -c -a {remote} -C 1   # rping -s there",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "the fabric joins adapters of the same number only (rails), and NCCL connects different ones",
                "no route, or no ARP answer, leads from one network to the other",
                "NCCL_IB_GID_INDEX names another kind of address than the RoCE v2 one",
            ),
            "show_gids; ibv_devinfo | grep -E 'hca_id|state'   # on both hosts; NCCL_CROSS_NIC=0 torchrun ...: runs, "
            "it was the rails",
        ),
    )


@log_pattern(
    r"Got completion (?:from peer (\S+) )?with (?:error |status=)(?:\w+\()?(?!0\b|5\b|12\b)(\d+)\b",
)
def by_a_refused_transfer(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Another status than 5, "flushed", which follows another: an adapter refuses the memory or the request."""
    peer = match[1].partition("<")[0] if match[1] else "a peer"
    yield Finding(
        f"a transfer over InfiniBand with {peer} failed: status {match[2]}, {STATUS.get(match[2], 'no success')}",
        (record.proof(match, "status 0"),),
        FIX,
        record.place,
        ambiguity=Ambiguity(
            ("the adapter cannot reach the GPU's memory (nvidia-peermem or DMA-BUF, PCIe ACS)", BROKEN),
            "NCCL_NET_GDR_LEVEL=LOC torchrun ...   # runs: it is the way between adapter and GPU",
        ),
    )


@log_pattern(
    r"Got completion (?:from peer (\S+) )?with (?:error |status=)(?:\w+\()?12\b",
)
def by_a_transfer(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Status 12 is "transport retry counter exceeded": no answer."""
    peer = match[1].partition("<")[0] if match[1] else ""
    yield Finding(
        f"{peer or 'a peer'} did not answer over InfiniBand (status 12, retries exceeded)",
        (record.proof(match, "the peer answers"),),
        replace(FIX, command=f"{GID}\n{FIX.command}"),
        record.place,
        ambiguity=Ambiguity(
            (BROKEN, f"the rank at {peer or 'that peer'} has died"),
            f"ddpdoctor explain LOG_OF_{peer}; ibping {peer}"
            if peer
            else "ddpdoctor explain LOGS_OF_ALL_HOSTS; show_gids",
        ),
    )


@log_pattern(r"Transport retry count exceeded on (?P<device>\w{1,20}):(?P<port>\d+)/(?P<kind>IB|RoCE)\b")
def by_ucx(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """UCX, which MPI and NVSHMEM use, ends the process where a peer does not answer."""
    over = "InfiniBand" if match["kind"] == "IB" else "RoCE"
    yield Finding(
        f"a peer did not answer over {over} on {match['device']}, says UCX",
        (record.proof(match, "the peer answers"),),
        Fix(
            "see who ended first, and whether the link is up on all hosts",
            command=f"ibstat {match['device']} | grep -E 'State|Rate'\n"
            "sudo dmesg -T | grep -iE 'mlx5|killed process' | tail\n"
            "UCX_TLS=tcp,self,sm,cuda mpirun ...   # runs: it is the fabric",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "the rank there has died, as when its host had no memory left",
                "a link, a switch or an adapter lost packets",
                *(("RoCE: the GID is the wrong one, or the switches have no flow control",) * (over == "RoCE")),
            ),
            "ddpdoctor explain LOGS_OF_ALL_HOSTS",
        ),
    )


@log_pattern(r"ncclSystemError: System call|unhandled system error", context=(r"NET/IB : Using", WARN))
def by_what_was_chosen(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """A bare system error right after NCCL chose RDMA; a WARN line would say more, and then decides."""
    used = log.first(r"NET/IB : Using")
    if used and not log.first(WARN):
        yield Finding(
            "NCCL chose InfiniBand and stopped at a system error",
            (record.proof(match, "no error"), used[0].proof(used[1])),
            FIX,
            record.place,
            ambiguity=Ambiguity(
                (BROKEN, UNLOCKED), "NCCL_IB_DISABLE=1 torchrun ...   # then ulimit -l in the same shell"
            ),
        )
