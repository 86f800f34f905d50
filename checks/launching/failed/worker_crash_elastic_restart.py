"""The ranks were started again after a crash, and the first crash is what matters.

## What happens

torchrun with `--max_restarts` above 0 starts all ranks anew when one fails. Where the new ranks meet the counters of
the old ones in the store, they wait in the store based barrier with a count that is a multiple of the world size (4,
then 8, then 12, then 16: one more for each attempt), and end by a time-out that has nothing to do with the fault. The
same holds for ports in use, peers that closed the connection and half-written files after a restart.

## How to be sure

`attempt_1` and above in paths of torchrun's logs, "attempts left", or the count in the message.

## How to mend it

Read the first failure, further up or in the log of attempt_0, and mend that. `--max_restarts=0` makes
it the last thing that is printed.

## Versions and sources

Source: torch.distributed.elastic.agent; _store_based_barrier. Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Log, Record, Severity, log_pattern

from ..._hosts.barrier import BARRIER, RESTART, SPAWN, SURE, barrier, spawned

AILMENT = Ailment("DDP402", Severity.ERROR)


@log_pattern(BARRIER, context=(SPAWN, RESTART))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """See whether the count is a multiple of the world size, and whether the log tells of a restart."""
    said, restart = barrier(record, match), log.first(RESTART)
    if said.starts < (2 if restart else SURE) or said.is_beyond or spawned(record, log):
        return
    proof = record.proof(match, f"a count of {said.world}")
    yield Finding(
        f"the {said.world} ranks were started {said.starts} times ({said.joined} processes in the store): the first "
        "failure is the one to fix",
        (restart[0].proof(restart[1], "no restart"), proof) if restart else (proof,),
        Fix(
            "let the first failure be the last line, and read it",
            command="torchrun --standalone --max_restarts=0 --nproc_per_node=2 train.py",
        ),
        record.place,
        ambiguity=None
        if restart
        else Ambiguity(
            (
                f"torchrun's attempt number {said.starts} after a crash",
                "a store that earlier runs left: the same port or file:// path",
            ),
            "torchrun --standalone --max_restarts=0 --nproc_per_node=2 train.py",
        ),
    )
