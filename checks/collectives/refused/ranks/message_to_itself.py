"""A rank sends a message to itself, or waits to receive one from itself.

## What happens

`send`, `isend`, `recv` and `irecv` want another rank. torch refuses one's own in `send` at once: "Invalid destination
rank: destination rank should not be the same as the rank of the current process". The others come as far as gloo: "Pair
is not connected (... <--> [none])". Only that rank raises; its partner waits for the message, and loses its connection.
It comes of a neighbour that is counted wrongly: `dst=rank`, a ring of which
the modulus is one (one process), `rank ^ 1` with an odd number of ranks, a pipeline whose last stage sends on.

## How to be sure

`print(rank, dst, dist.get_world_size())` before the call.

## How to mend it

Count the neighbours of a ring as `(rank + 1) % world_size` and `(rank - 1) % world_size`, and send nothing where there
is one rank alone.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch/distributed/distributed_c10d.py, `_check_not_self_rank`, `isend`, `irecv`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP1784", Severity.ERROR)
UNCONNECTED = r"Pair is not connected \([^)\n]*<--> \[none\]\)"


@log_pattern(r"in (?P<call>isend|irecv)\n[\s\S]{1,900}?" + UNCONNECTED)
def by_gloo(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Gloo has a connection to each rank but its own, and torch looks at the number in `send` alone."""
    said = re.search(UNCONNECTED, record.text) or match
    yield _finding(record, said, sends=match["call"] == "isend")


@log_pattern(
    r"Invalid (?P<kind>destination|source) rank: (?P=kind) rank should not be the same as the rank of the current"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Say which end it is."""
    yield _finding(record, match, sends=match["kind"] == "destination")


def _finding(record: Record, match: re.Match[str], *, sends: bool) -> Finding:
    who = f"rank {record.rank}" if record.rank is not None else "a rank"
    return Finding(
        f"{who} {'sends a message to' if sends else 'waits for a message of'} itself",
        (record.proof(match, "the number of another rank"),),
        Fix(
            "count the neighbour from the rank and the number of ranks; a rank alone has none",
            diff=f"-dist.{'send(tensor, dst' if sends else 'recv(tensor, src'}=rank)\n"
            "+if dist.get_world_size() > 1:\n"
            f"+    dist.{'send(tensor, dst' if sends else 'recv(tensor, src'}=(rank {'+' if sends else '-'} 1) "
            "% dist.get_world_size())",
        ),
        record.place,
    )
