"""A port of an InfiniBand or RoCE adapter went down while NCCL used it.

## What happens

The adapter tells its driver, and NCCL prints "NET/IB : mlx5_3:1 Got async event : port error" on the host whose port it
is. The transfers of its peers are sent again until the retries are used up: seconds later other hosts print "Got
completion ... status=IBV_WC_RETRY_EXC_ERR(12)" and name the address of that host, and all ranks end or wait.

## How to be sure

The event stands before the first completion with an error, in the output of one host. Its kernel's log has the change
of the link at the same second; `ibstat` and the counters (symbol_error, link_downed) tell whether it comes back.

## How to mend it

Leave the host out until cable, transceiver and switch port are looked at. A link that goes down for a second (a flap)
outlives a longer wait: NCCL_IB_TIMEOUT and NCCL_IB_RETRY_CNT set how long the adapter tries.

## Versions and sources

Sources: NCCL, src/transport/net_ib, ncclIbAsyncThreadMain; libibverbs, ibv_get_async_event(3). Holds for all versions
of torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from ddpdoctor.check import Ailment, Finding, Fix, Log, Record, Severity, log_pattern

AILMENT = Ailment("DDP346", Severity.ERROR)
BACK = r"NET/IB ?: [\w.-]+(?::\d+)? Got async event ?: port active"
SPEAKER = re.compile(r"(?P<host>[\w.-]+):\d+:\d+ \[")


@log_pattern(
    r"NET/IB ?: (?P<port>[\w.-]+(?::\d+)?) ?(?:Got async (?:error )?event ?:|async fatal event[^\n:]{0,60}:) ?"
    r"(?P<event>port error|device fatal|local catastrophic error)",
    context=(BACK,),
)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Name the port and its host: those that lost it name each other."""
    speaker = SPEAKER.match(record.text)
    host = speaker["host"] if speaker else record.node
    is_port = match["event"] == "port error"
    yield Finding(
        f"the port {match['port']} of {host or 'a host'} went down" + (", and came up again" if log.first(BACK) else "")
        if is_port
        else f"the adapter {match['port']} of {host or 'a host'} failed ({match['event']})",
        (record.proof(match, "a port that stays active"),),
        Fix(
            "see whether the port came back, and leave the host out until cable, transceiver and switch port are "
            "looked at",
            command="ibstat; rdma link; sudo dmesg -T | grep -iE 'mlx5|link (down|up)' | tail -n 20   # on that host\n"
            "export NCCL_IB_TIMEOUT=22 NCCL_IB_RETRY_CNT=7   # outlives a link that is down for seconds",
        ),
        replace(record.place, host=host) if host else record.place,
    )
