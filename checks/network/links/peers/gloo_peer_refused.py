"""A gloo peer does not listen where it said it would.

## What happens

Each rank tells the others its address and port through the store, and listens there until all are connected. "connect
[10.0.0.7]:3210: Connection refused" (torch before 2.5) or "SO_ERROR: Connection refused, remote=[10.0.0.7]:3210" at a
real address means that the host answered and nobody listens any more: the rank has died since, or has gone on because
the ranks make their groups in different order.

## How to be sure

Read the log of the rank at that address, from its beginning.

## How to mend it

Mend that rank's own error. Call new_group on all ranks, in the same order, also on those that are not
members. If the address is a loopback one, the check hostname-loopback speaks instead.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: gloo, transport/tcp/pair.cc and listener.cc; torch.distributed documentation,
"new_group".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Log, Record, Severity, log_pattern

from ._peers import BOOTSTRAP, GLOO_REFUSED, loopback, name

AILMENT = Ailment("DDP342", Severity.ERROR)


@log_pattern(GLOO_REFUSED, context=(BOOTSTRAP,), supersedes=("interface-unreachable",))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """A real address that refuses is a host without its rank."""
    address = match["old"] or match["new"]
    if loopback(address):
        return
    peer = name(log, address)
    yield Finding(
        f"{peer} refuses gloo's connection: the rank there does not listen any more",
        (record.proof(match, f"the rank at {address} listens until all are connected"),),
        Fix(f"read the first error of the rank at {address}", command=f"ddpdoctor explain LOG_OF_{address}"),
        record.place,
        ambiguity=Ambiguity(
            (f"the rank at {address} has died", "the ranks call new_group in different order"),
            f"ssh {address} pgrep -af python   # is the rank alive?",
        ),
    )
