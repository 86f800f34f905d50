"""The master's port is one that only root can open.

## What happens

Ports below 1024 are kept for the system's services (`net.ipv4.ip_unprivileged_port_start`). A rank 0 that is not root
cannot open its store there: "RuntimeError: Permission denied", in newer versions "The server socket has failed to bind
... errno: 13". All other ranks wait for it.

## How to be sure

`echo $MASTER_PORT`, or `--master_port` in the command: a number below 1024. PORT, 22 or 80, of a platform's environment
is often taken for it by mistake.

## How to mend it

Take a port from 1024 to 65535, as 29500; `torchrun --standalone` finds a free one on one host.

## Versions and sources

Holds for torch 1.1 to 2.13. Source: ip(7), `ip_unprivileged_port_start`; torch/csrc/distributed/c10d/socket.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Log, Record, Severity, log_pattern

AILMENT = Ailment("DDP165", Severity.ERROR)
GIVEN = r"(?:--?master[_-]port[ =]|MASTER_PORT[=:] ?)(?P<port>\d{1,5})\b"
PRIVILEGED = 1024


@log_pattern(
    r"(?:server socket has failed to (?:bind|listen)|failed to listen on)[^\n]{0,200}errno: 13\b"
    r"|(?:^|\n)[ |]*RuntimeError: Permission denied",
    context=(GIVEN,),
)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Read the port where the log names it."""
    if "errno" not in match[0] and "TCPStore(" not in record.text:
        return
    named = log.first(GIVEN)
    near = re.search(r":(\d{1,5})\b", match[0])
    port = int(near[1]) if near else int(named[1]["port"]) if named else None
    is_low = port is not None and port < PRIVILEGED
    yield Finding(
        f"the master's port, {port}, is one that only root can open"
        if is_low
        else "the host does not let rank 0 open the master's port",
        (record.proof(match, "a port from 1024 to 65535"), *((named[0].proof(named[1]),) if named else ())),
        Fix(
            "take a port that every user can open",
            command="torchrun --master_port=29500 ...   # one host: --standalone",
        ),
        record.place,
        ambiguity=None
        if is_low
        else Ambiguity(
            ("the port is below 1024, which only root can open", "a sandbox or SELinux forbids the process to listen"),
            "echo $MASTER_PORT; cat /proc/sys/net/ipv4/ip_unprivileged_port_start",
        ),
    )
