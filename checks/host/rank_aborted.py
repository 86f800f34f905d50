"""Native code gave up, and ended a rank (SIGABRT).

## What happens

A library of C or C++ that cannot go on calls abort(): torchrun prints "failed (exitcode: -6)" and "Signal 6 (SIGABRT)
received by PID". As a rule it has said why on standard error before: "terminate called after throwing", "Assertion ...
failed", or the lines of torch's watchdog. glibc ends a process so that has damaged the lists of its memory, with
"free(): invalid pointer", "double free or corruption", "malloc(): corrupted top size" or "corrupted size vs.
prev_size": the damage was done earlier, by other code than the one that noticed it.

## How to be sure

Search the rank's own standard error for the last words before the signal: torchrun's --redirects and --tee keep it.
Faulthandler (PYTHONFAULTHANDLER=1) prints the Python line at which the process was ended.

## How to mend it

Memory that was damaged: rebuild extensions against the installed torch, leave out an allocator that LD_PRELOAD
brings, and look for two copies of one native library. `MALLOC_CHECK_=3` or valgrind stop nearer to the damage. Where
the words say more, they are the error.

## Versions and sources

Sources: glibc's malloc/malloc.c; torch.distributed.elastic.multiprocessing. Holds for torch 2.2 to 2.13 and glibc 2.27
to 2.41.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Log, Record, Role, Severity, log_pattern

from ._exits import died_by, process

AILMENT = Ailment("DDP189", Severity.ERROR)
HEAP = (
    r"(?m)^(?:\*\*\* Error in `[^'\n]{1,200}': )?(?P<said>free\(\): [a-z][^\n]{3,60}"
    r"|double free or corruption[^\n]{0,20}|(?:malloc|realloc|malloc_consolidate)\(\): [a-z][^\n]{3,60}"
    r"|corrupted (?:size vs\. prev_size|double-linked list)[^\n]{0,40}"
    r"|munmap_chunk\(\): invalid pointer|\*\*\* (?:stack smashing|buffer overflow) detected \*\*\*)"
)
ABORTED = died_by(6, "SIGABRT") + r"|Aborted \(core dumped\)"
TOLD = (
    r"terminate called|Fatal Python error|ProcessGroup(?:NCCL|Gloo|HCCL|XCCL)|c10::\w*Error|Assertion `|Check failed"
    r"|CUDA error|HIP error|INTERNAL ASSERT|NCCL WARN|NCCL error|HSA_STATUS"
    r"|RCCL|HCCL|gloo/|UCX  ERROR|MPI_ABORT|MPI_Abort"
)
"""What speaks beside an abort: those words are the error, and other checks read them."""
LAUNCHERS = ("ChildFailedError", "ProcessExitedException", "CalledProcessError")


@log_pattern(HEAP)
def by_the_heap(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read glibc: it has found its memory overwritten; the damage was done earlier."""
    yield Finding(
        f"glibc ended a process, since native code had damaged its memory: {match['said'].strip()}",
        (record.proof(match, "memory that only its owner writes to and frees"),),
        Fix(
            "stop nearer to the damage, with one rank; what was added or upgraded last comes first",
            command="PYTHONFAULTHANDLER=1 MALLOC_CHECK_=3 torchrun --standalone --nproc_per_node=1 train.py",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "an extension that was compiled for another torch, CUDA or C++ library",
                "two copies of one native library (OpenMP, protobuf, an allocator of LD_PRELOAD) in the process",
                "the script was at its end, and libraries were taken down in the wrong order",
            ),
            "PYTHONFAULTHANDLER=1 gdb -batch -ex run -ex bt --args python train.py",
        ),
    )


@log_pattern(ABORTED, role=Role.GENERIC, context=(TOLD, HEAP))
def by_exit_status(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """See that nobody in this log says why; where some words do, or an exception, these are told."""
    raised = (each.error for each in log.records if each.error)
    if log.first(TOLD) or log.first(HEAP) or any(not name.endswith(LAUNCHERS) for name in raised):
        return
    yield Finding(
        f"{process(record.text)} was ended by a library that gave up (SIGABRT), and its words are not in this log",
        (record.proof(match, "an exit by itself"),),
        Fix(
            "keep the output of each rank: such a library says why on standard error before it ends the process",
            command="torchrun --log-dir=logs --redirects=3 --tee=3 --nproc_per_node=2 train.py",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "torch's watchdog ended it, since a collective did not come to its end in time",
                "gloo ended it, since another rank sent more than it had room for: collectives that differ",
                "an assertion or an exception in the native code of a library",
            ),
            "PYTHONFAULTHANDLER=1 torchrun --log-dir=logs --redirects=3 --nproc_per_node=2 train.py; "
            "grep -rnE 'ProcessGroup|terminate called|what\\(\\):|Assertion' logs/",
        ),
    )
