"""The process group is never destroyed.

## What happens

The program ends with the process group alive. Since torch 2.4 NCCL warns that "destroy_process_group() was not called
before program exit, which can leak resources"; ranks that end at different moments can hang or print errors of peers
that are gone. The training's result is the same, so this is a note.

With gloo in torch 2.13 a rank now and then ends by SIGABRT instead ("terminate called without an active exception",
exit code -6): a thread of the process group still runs when the program takes it apart, and torchrun calls the job
failed although the training had come to its end. That is an error.

## How to be sure

In a source (`ddpdoctor lint`): a program with a main block makes the process group, and neither it nor a file in its
reach destroys one. A log shows the abort, and no error before it; other libraries with threads of their own end so,
too.

## How to mend it

    try:
        train()
    finally:
        torch.distributed.destroy_process_group()

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch.distributed documentation, "Shutdown". The abort was seen with torch 2.13 and
gloo in 8 of 24 short programs that made one collective and ended, on a loaded machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import INIT, Ailment, Ambiguity, Finding, Fix, Record, Role, Severity, lint, log_pattern

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script

AILMENT = Ailment("DDP469", Severity.NOTE)


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a program that makes a process group, in a project that destroys none."""
    inits = script.calls(INIT)
    if not inits or script.frameworks or "__main__" not in script.text or project.does("destroy_process_group"):
        return
    if not project.unknown():
        yield Finding(
            "the process group is never destroyed",
            (script.seen(inits[0], "torch.distributed.destroy_process_group() when the training ends"),),
            Fix("destroy it when the training ends, also by an error", diff=MEND),
            script.place(inits[0]),
        )


MEND = "+try:\n+    main()\n+finally:\n+    torch.distributed.destroy_process_group()"


@log_pattern(r"terminate called without an active exception", role=Role.GENERIC)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Where nothing else failed, a rank was aborted while it ended."""
    yield Finding(
        "a rank was aborted by a thread that still ran when its program ended, as a process group does that nobody "
        "has destroyed",
        (record.proof(match, "torch.distributed.destroy_process_group() before the program ends"),),
        Fix("destroy it when the training ends, also by an error", diff=MEND),
        record.place,
        severity=Severity.ERROR,
        ambiguity=Ambiguity(
            ("the process group is not destroyed", "a thread of another C++ library still runs at the end"),
            "grep -n destroy_process_group *.py",
        ),
    )
