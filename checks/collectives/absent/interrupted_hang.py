"""A training that had stopped was interrupted, and the log shows only where each rank stood.

## What happens

Ctrl-C ends all ranks of a hang, and each prints the line that it was at: "KeyboardInterrupt" below a traceback. The
first to end closes its connections, so that others add "Connection closed by peer": that is a consequence of the
interruption, and no fault of the network. Where one rank is in a collective and another one elsewhere, the other one
is the rank to look at. A training without any fault is in different places, too, when it is interrupted.

A rank that waits inside a native call, as gloo's collectives do, does not answer to Ctrl-C at all: after 30 seconds
torchrun ends it, "Unable to shutdown process 4711 via Signals.SIGINT, forcefully exiting via Signals.SIGKILL" (with
Python 3.11 and later: via 2). A rank that is not in such a call answers at once.

## How to be sure

The log alone does not decide it. Start again with `ddpdoctor run --hang-after 30 -- torchrun ...`, which says during
the hang which rank is missing, and what it does.

## How to mend it

Mend what `ddpdoctor run` names: a rank that is missing from the collective in which another one waits (a branch, a
loop, a lock, its data), ranks in different collectives, or all ranks in one collective where nothing arrives. If it
names nothing, the training was not in a hang, and there is nothing to mend.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: CPython's traceback; torch.distributed.distributed_c10d; torch's
autograd/graph.py; torch.distributed.elastic.multiprocessing.api.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ddpdoctor.check import Ailment, Ambiguity, Evidence, Finding, Fix, Log, Record, Severity, log_pattern

AILMENT = Ailment("DDP726", Severity.WARNING)
INTERRUPT = r"(?m)^(?:[\w.]+\.)?KeyboardInterrupt"
DEAF = r"Unable to shutdown process \d+ via (?:Signals\.)?(?:SIGINT|2)\b"
WAITS = re.compile(
    r"torch[/\\]distributed[/\\](?:distributed_c10d|c10d_logger|rendezvous)\.py|_engine_run_backward|"
    r"torch[/\\]nn[/\\]parallel[/\\]distributed\.py|"
    r"accelerate[/\\](?:accelerator|utils[/\\]operations)\.py\", line \d+, in "
    r"(?:gather|_gpu_gather|reduce|broadcast|pad_across|wait_for_everyone)|"
    r"torch[/\\]autograd[/\\]__init__\.py\", line \d+, in (?:backward|grad)\b"  # the engine, before torch 2.3
)
SHOWN = 6  # ranks
TOLD = r"^ddpdoctor: error DDP(?:343|7\d\d) "
"""What the watch has said of the hang by then: it knows more than where the ranks were interrupted."""
ASK = "ddpdoctor run --hang-after 30 -- torchrun ..."
WATCH = Fix("let the watch tell, while it hangs, who waits for whom", command="ddpdoctor run -- torchrun ...")
CAUSES = (
    "a rank is missing from the collective that another one stands in (a branch, a loop, a lock, its data)",
    "the ranks stood in different collectives (their order, their groups or their shapes differ)",
    "all ranks stood in one collective, and nothing arrived",
    "nothing hung: the training was on its way",
)


@log_pattern(INTERRUPT, context=(DEAF, TOLD))
def in_logs(record: Record, log: Log) -> Iterator[Finding]:
    """Yield where the ranks stood, where one of them at least stood in communication, and none had failed before."""
    interrupted = _interrupted(log)
    if not interrupted or interrupted[0] is not record or _failed_before(record, log) or log.first(TOLD):
        return
    deaf = sum(1 for _ in log.find(DEAF))
    if not deaf and not any(WAITS.search(each.text) for each in interrupted):
        return
    stood = [_where(each) for each in interrupted[:SHOWN]]
    yield Finding(
        "the training was interrupted: " + "; ".join([*stood, *([_deaf(deaf)] if deaf else [])]),
        tuple(Evidence(each, source=one.proof().source) for each, one in zip(stood, interrupted[:SHOWN], strict=True)),
        WATCH,
        record.place,
        ambiguity=Ambiguity(CAUSES[:3] if deaf else CAUSES, ASK),
    )


@log_pattern(DEAF, context=(INTERRUPT, TOLD))
def by_those_who_did_not_answer(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """No rank says where it stood: all were in a native call."""
    if _interrupted(log) or _failed_before(record, log) or log.first(TOLD):
        return
    yield Finding(
        "the training was interrupted: " + _deaf(sum(1 for _ in log.find(DEAF))),
        (record.proof(match, "a rank that is on its way ends at once"),),
        WATCH,
        record.place,
        ambiguity=Ambiguity(CAUSES[:3], ASK),
    )


def _interrupted(log: Log) -> list[Record]:
    """Return the ranks' tracebacks of the interruption."""
    return [each for each, _ in log.find(INTERRUPT) if each.frames and each.error.endswith("KeyboardInterrupt")]


def _failed_before(record: Record, log: Log) -> bool:
    """Whether a rank had an error of its own already."""
    before = log.records[: log.records.index(record)]
    return any(each.error and not each.error.endswith("KeyboardInterrupt") for each in before)


def _deaf(number: int) -> str:
    return f"no answer for 30 seconds from {number} rank{'s'[: number != 1]} in a native call, as a collective is"


def _where(record: Record) -> str:
    """Return where a rank stood."""
    who = "a rank" if record.rank is None else f"rank {record.rank}"
    frame = record.users or record.frames[-1]
    doing = "in communication" if WAITS.search(record.text) else "elsewhere"
    return f"{who} stood {doing}, at {Path(frame.file).name}:{frame.line}"
