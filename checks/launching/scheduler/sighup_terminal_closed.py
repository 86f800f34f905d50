"""The terminal was closed, and its hang-up signal ended torchrun.

## What happens

When an ssh session or a terminal closes, the kernel sends SIGHUP (1) to what runs in it. nohup makes a program ignore
it, but torchrun installs a handler of its own for SIGHUP, which undoes that: "Received 1 death signal, shutting down
workers", "Sending process N closing signal SIGHUP", and all ranks end, typically after an hour, with no other error.

## How to be sure

Signal number 1. SIGTERM (15) is sent by a scheduler or a person instead.

## How to mend it

Start in tmux or screen, as a service, or with setsid, which leaves no terminal to hang up.

## Versions and sources

Source: torch.distributed.elastic.multiprocessing.api (handlers for SIGTERM, SIGINT, SIGHUP and SIGQUIT); the same
cause was confirmed in threads from torch 1.9 on. Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP410", Severity.ERROR)
HANGUP = (
    r"Received (?:Signals\.)?(?:SIGHUP|1) death signal|closing signal SIGHUP"
    r"|Process \d+ got signal: (?:Signals\.)?(?:SIGHUP|1)\b"
)


@log_pattern(HANGUP)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Yield the name of the signal."""
    yield Finding(
        "torchrun received SIGHUP: the terminal or ssh session that it ran in was closed",
        (record.proof(match, "no signal while the ranks train"),),
        Fix(
            "start it where no terminal can hang up; nohup alone does not help, torchrun handles SIGHUP itself",
            command="tmux new-session -d -s train 'torchrun --standalone --nproc_per_node=2 train.py'",
        ),
        record.place,
    )
