"""The process group is never destroyed.

## What happens

The program ends with the process group alive. Since torch 2.4 NCCL warns that "destroy_process_group() was not called
before program exit, which can leak resources"; ranks that end at different moments can hang or print errors of peers
that are gone. The training's result is the same, so this is a note.

## How to be sure

In a source (`ddpdoctor lint`): a program with a main block makes the process group, and neither it nor a file in its
reach destroys one.

## How to mend it

    try:
        train()
    finally:
        torch.distributed.destroy_process_group()

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch.distributed documentation, "Shutdown".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import INIT, Ailment, Finding, Fix, Severity, lint

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script

AILMENT = Ailment("DDP469", Severity.NOTE)


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a program that makes a process group, in a project that destroys none."""
    inits = script.calls(INIT)
    if not inits or script.frameworks or "__main__" not in script.text or project.says("destroy_process_group"):
        return
    if not project.unknown():
        yield Finding(
            "the process group is never destroyed",
            (script.seen(inits[0], "torch.distributed.destroy_process_group() when the training ends"),),
            Fix("destroy it when the training ends, also by an error", diff=MEND),
            script.place(inits[0]),
        )


MEND = "+try:\n+    main()\n+finally:\n+    torch.distributed.destroy_process_group()"
