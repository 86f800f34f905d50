"""A training that had stopped was interrupted, and the log shows only where each rank stood.

Ctrl-C ends all ranks of a hang, and each prints the line that it stood at: "KeyboardInterrupt" below a traceback. The
first to end takes its connections along, so that others add "Connection closed by peer": that is a consequence of the
interruption, and no fault of the network. Where one rank stands in a collective and another one elsewhere, the other
one is the rank to look at; but a training that went well is in different places, too, when it is interrupted.

How to be sure: start again with the watch, which says during the hang which rank is missing, and what it does.

How to mend it: as the watch says.

Holds for torch 2.2 to 2.13. Source: CPython's traceback; torch.distributed.distributed_c10d; torch's autograd/graph.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ddpdoctor import Card, Doubt, Evidence, Finding, Fix, Severity
from ddpdoctor.check import Role, sign
from ddpdoctor.explain.records import Log, Record

CARD = Card("DDP726", Severity.WARNING)
INTERRUPT = r"(?m)^(?:[\w.]+\.)?KeyboardInterrupt"
WAITS = re.compile(
    r"torch[/\\]distributed[/\\](?:distributed_c10d|c10d_logger|rendezvous)\.py|_engine_run_backward|"
    r"torch[/\\]nn[/\\]parallel[/\\]distributed\.py"
)
SHOWN = 6  # ranks
CAUSES = (
    "a rank is missing from the collective that another one stands in (a branch, a loop, a lock, its data)",
    "all ranks stood in one collective, and nothing arrived",
    "nothing hung: the training was on its way",
)


@sign(INTERRUPT, role=Role.SYMPTOM, explains=("remote-rank-died-or-network", "rank0-exited-store-gone"))
def in_logs(record: Record, log: Log) -> Iterator[Finding]:
    """Tell where the ranks stood, where one of them at least stood in communication, and none had failed before."""
    interrupted = [each for each, _ in log.find(INTERRUPT) if each.frames and each.error.endswith("KeyboardInterrupt")]
    if not interrupted or interrupted[0] is not record or not any(WAITS.search(each.text) for each in interrupted):
        return
    before = log.records[: log.records.index(record)]
    if any(each.error and not each.error.endswith("KeyboardInterrupt") for each in before):
        return
    yield Finding(
        "the training was interrupted: " + "; ".join(_where(each) for each in interrupted[:SHOWN]),
        tuple(Evidence(_where(each), source=each.proof().source) for each in interrupted[:SHOWN]),
        Fix("let the watch tell, while it hangs, who waits for whom", command="ddpdoctor run -- torchrun ..."),
        record.place,
        doubt=Doubt(CAUSES, "ddpdoctor run --hang-after 30 -- torchrun ..."),
    )


def _where(record: Record) -> str:
    """Say where a rank stood."""
    who = "a rank" if record.rank is None else f"rank {record.rank}"
    frame = record.users or record.frames[-1]
    doing = "in communication" if WAITS.search(record.text) else "elsewhere"
    return f"{who} stood {doing}, at {Path(frame.file).name}:{frame.line}"
