"""HCCL, the communication library of Ascend NPUs, waited in vain for a rank to connect.

## What happens

At the first collective of a group HCCL connects the NPUs, and gives up after HCCL_CONNECT_TIMEOUT (120 s): "EI0006:
Getting socket times out. Reason: Remote Rank did not send the data in time". The rank that prints it is one that
waited: another one failed, works longer than that, or cannot be reached. HcclAllreduce's "error code is 6" says the
same.

## How to be sure

Compare the times of this error in the logs of all ranks. One rank without it: its log has the cause. All ranks, within
the time-out: the links. All ranks, farther apart: some came later than the time-out.

## How to mend it

Mend the first error of the rank that did not come. Where it only works longer: HCCL_CONNECT_TIMEOUT=1200 on all hosts.
Where nobody reaches anybody: `hccn_tool -i 0 -ip -g`, `-link -g` and `-tls -g` on each host must agree.

## Versions and sources

Holds for CANN 7 and 8 with torch_npu for torch 2.1 to 2.7. Source: Huawei, HCCL error codes, EI0006.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Record, Role, Severity, log_pattern

AILMENT = Ailment("DDP325", Severity.ERROR)


@log_pattern(
    r"HCCL function error: [Hh]cclCommInit\w*(?:\([^\n]{0,200})?, error code is (?P<code>\d+)",
    role=Role.GENERIC,
    waits=True,
)
def of_the_communicator(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """The code says no more than that there is no communicator; the reason stands in the rank's own log of CANN."""
    yield Finding(
        f"HCCL made no communicator of the ranks (code {match['code']})",
        (record.proof(match, "all ranks come, and reach each other"),),
        Fix(
            "read the first error of each rank in the logs of CANN",
            command="grep -rhE '\\[ERROR\\] (HCCL|HCCP|TDT)' ~/ascend/log/ | head -20   # on each host",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "another rank failed before, or was not started",
                "the NPUs' network does not work between these hosts (address, link, TLS)",
                "the hosts have different versions of CANN or of the driver",
                "HCCL_IF_IP or HCCL_SOCKET_IFNAME names an address or interface that the other hosts do not reach",
            ),
            "for i in 0 1 2 3 4 5 6 7; do hccn_tool -i $i -ip -g; hccn_tool -i $i -link -g; "
            "hccn_tool -i $i -tls -g; done; env | grep HCCL_   # on each host",
        ),
    )


@log_pattern(
    r"EI0006\)?: (?:\[PID: \d+\] )?[^\n]{0,60}?Getting socket times out|\(EI0006\): Getting socket times out"
    r"|OPS function error: Hccl\w+, error code is 6\b"
    r"|wait socket establish timeout, role\[\d\] rank\[(?P<rank>\d+)\] timeout\[\d+\]",
    role=Role.GENERIC,
    waits=True,
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Whoever prints it has waited."""
    yield Finding(
        "HCCL got no connection to another rank in time (EI0006)",
        (record.proof(match, "all ranks come to their first collective within HCCL_CONNECT_TIMEOUT"),),
        Fix(
            "find the rank that does not print it; give ranks that work longer more time",
            command="grep -L EI0006 LOGS_OF_ALL_RANKS; export HCCL_CONNECT_TIMEOUT=1200",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "another rank failed, and its own log says why",
                "another rank works longer than the time-out before its first collective",
                "the NPUs' network does not work between these hosts (address, link, TLS)",
            ),
            "grep -c EI0006 LOGS_OF_ALL_RANKS; for i in 0 1 2 3 4 5 6 7; do hccn_tool -i $i -ip -g; "
            "hccn_tool -i $i -link -g; hccn_tool -i $i -tls -g; done",
        ),
    )


@log_pattern(r"\bEI0004\b(?P<said>[^\n]{0,200}?[Rr]ank ?table[^\n]{0,300})")
def of_the_rank_table(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """CANN reads the file that lists the NPUs of all servers, and refuses it."""
    reason = re.search(r"Reason: ?\[([^\]\n]{1,300})\]", match["said"])
    file = re.search(r"/[^\s\]\[]+\.json", match["said"])
    name = file[0] if file else "RANK_TABLE_FILE"
    yield Finding(
        f"HCCL refuses the rank table {name}" + (f": {reason[1]}" if reason else ""),
        (record.proof(match, "each server and each NPU once, with the addresses of their network, ranks from 0 on"),),
        Fix(
            "write the table anew from what the servers have; torchrun needs none: without RANK_TABLE_FILE the ranks "
            "find each other by MASTER_ADDR",
            command=f"python -m json.tool {name}; env | grep -E 'RANK_TABLE|RANK_ID'   # on each host\n"
            "for i in 0 1 2 3 4 5 6 7; do hccn_tool -i $i -ip -g; done",
        ),
        record.place,
    )
