"""No more threads or processes can be started.

## What happens

Each rank starts threads for OpenMP, OpenBLAS, its loaders and NCCL; the ranks of a host share the user's limit
(`ulimit -u`) and the cgroup's (`pids.max`). Where it is reached: "pthread_create failed for thread 50 of 64: Resource
temporarily unavailable", "RuntimeError: can't start new thread", "libgomp: Thread creation failed", "fork: retry:
Resource temporarily unavailable". Crashes in native code often follow.

## How to be sure

OpenBLAS prints the limit of the process ("RLIMIT_NPROC 4096 current"); `cat /sys/fs/cgroup/pids.max` in the container;
`ps -eLf | wc -l` counts the threads of the host.

## How to mend it

Fewer threads in each rank (OMP_NUM_THREADS, OPENBLAS_NUM_THREADS, fewer workers), or a higher limit: `ulimit -u`,
`docker run --pids-limit=-1`, the kubelet's podPidsLimit.

## Versions and sources

Holds for torch 2.2 to 2.13, on Linux. Source: pthread_create(3), EAGAIN; OpenBLAS, driver/others/memory.c; Linux,
cgroup-v2.rst, "PID".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Log, Record, Severity, log_pattern

AILMENT = Ailment("DDP171", Severity.ERROR)
LIMIT = r"RLIMIT_NPROC (?P<now>-?\d+) current"


@log_pattern(
    r"pthread_create failed for thread \d+ of \d+: Resource temporarily unavailable"
    r"|blas_thread_init: pthread_create: Resource temporarily unavailable"
    r"|RuntimeError: can't start new thread|libgomp: Thread creation failed: Resource temporarily unavailable"
    r"|fork: (?:retry: )?Resource temporarily unavailable"
    r"|BlockingIOError: \[Errno 11\] Resource temporarily unavailable(?=$|\n)",
    context=(LIMIT,),
)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Quote the limit, where OpenBLAS prints it."""
    limit = log.first(LIMIT)
    number = limit[1]["now"] if limit else ""
    known = f": the user's limit is {number}" if number and int(number) > 0 else ""
    yield Finding(
        f"no more threads or processes can be started{known}",
        (
            record.proof(match, "room for the threads of all ranks and their workers"),
            *((limit[0].proof(limit[1]),) if limit else ()),
        ),
        Fix(
            "start fewer threads in each rank, or raise the limit",
            command="export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1; ulimit -u; cat /sys/fs/cgroup/pids.max",
        ),
        record.place,
    )
