"""Rank 0 has ended, and with it the store that the other ranks still ask.

## What happens

The TCPStore lives in rank 0's process, or in torchrun's agent on the first host. When it ends before the others,
their watchdogs say so at every question that they ask it: 'Failed to check the "should dump" flag on TCPStore, (maybe
TCPStore server has shut down too early)', "recvValue failed on SocketImpl(...)", "sendBytes failed ... Broken pipe".
None of these lines is the cause. At the end of a training that worked they are harmless: rank 0 was a moment faster.

## How to be sure

Rank 0's log ends before the first of these lines; its last lines tell why. Where the training's last line is before
them, they are harmless. So they are where torchrun says next "The node ... has failed to shutdown the rendezvous", and
no error stands in the log: its ranks have ended well, and the torchrun of the first host was a moment faster.

## How to mend it

Mend rank 0's own error. If there is none, end all ranks together: `dist.barrier()`, then
`dist.destroy_process_group()` on every rank.

## Versions and sources

Holds for torch 2.2 to 2.13 (the "should dump" flag since 2.3). Source: torch's ProcessGroupNCCL.cpp, TCPStore.cpp and
Utils.hpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Log, Record, Role, Severity, log_pattern

from ._heartbeat import ENDED

AILMENT = Ailment("DDP725", Severity.WARNING)
FIX = Fix(
    "read rank 0's last lines; where it ended well, let all ranks end together",
    diff="+torch.distributed.barrier()\n+torch.distributed.destroy_process_group()",
)


GONE = (
    r'Failed to check the "should dump" flag on TCPStore'
    r"|(?:recvValue\w*|recvVector|recvBytes|sendBytes|sendValue) failed on SocketImpl\("
    r"|Did the remote server shutdown or crash"
    r"|DistNetworkError: (?:Connection reset by peer|[Ff]ailed to recv, got 0 bytes|Broken pipe)"
    r"|store->get\('[^'\n]*'\) got error: (?:Connection reset by peer|[Ff]ailed to recv, got 0 bytes|Broken pipe)"
)


AGENT = (
    r"The node '[^'\n]{0,200}' has failed to shutdown the rendezvous '[^'\n]{0,200}' due to an error of type "
    r"RendezvousConnectionError"
)
FAILED = r"Traceback \(most recent call last\)|ChildFailedError|exitcode\s*: -?[1-9]"


@log_pattern(GONE, role=Role.CONSEQUENCE, context=(ENDED, AGENT, FAILED))
def in_a_training(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Report whose end the line speaks of."""
    if log.before(record, ENDED) is None and not _agents_alone(log):
        yield Finding(
            "the store is gone: rank 0 (or torchrun on its host) ended before this rank",
            (record.proof(match, "the store outlives all ranks"),),
            FIX,
            record.place,
        )


def _agents_alone(log: Log) -> bool:
    """Whether torchruns part after a training in which nothing failed: one holds the store, and goes first."""
    return log.first(AGENT) is not None and log.first(FAILED) is None


@log_pattern(GONE, role=Role.HARMLESS, context=(ENDED, AGENT, FAILED))
def at_its_end(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """After the training's last line rank 0 was only the first to leave."""
    if ended := log.before(record, ENDED) or (log.first(AGENT) if _agents_alone(log) else None):
        yield Finding(
            "the training was over, and rank 0 left a moment before this rank",
            (record.proof(match), ended[0].proof(ended[1])),
            FIX,
            record.place,
            severity=Severity.NOTE,
        )
