"""A worker process of Ray has vanished.

## What happens

Ray's driver raises ActorDiedError (RayActorError before Ray 2.10): "The actor died unexpectedly before finishing this
task", "Worker exit type: SYSTEM_ERROR", and lists what it can be: killed by SIGKILL (the kernel's or Ray's own memory
monitor), `ray stop --force`, a crash such as SIGSEGV. The driver does not know which; the worker's own log and the
kernel do. NCCL's errors on the other workers are consequences.

## How to be sure

The worker's stderr in /tmp/ray/session_latest/logs (worker-*-PID.err), `ray logs actor --id ID`, and
`dmesg -T` on its node. A full disk under /tmp/ray kills workers too.

## How to mend it

What those show; memory most often (fewer workers, smaller object store, RAY_memory_usage_threshold).

## Versions and sources

Holds for Ray 2 with torch 2.2 to 2.13. Source: Ray documentation, "Debugging failures", and Ray's
direct_actor_task_submitter and worker exit messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Log, Place, Record, Severity, log_pattern

AILMENT = Ailment("DDP456", Severity.ERROR)
TIMED_OUT = r"Watchdog caught collective operation timeout"
"""What ends the process of a worker by itself, with no word to Ray."""


@log_pattern(
    r"The actor died unexpectedly before finishing this task|Worker exit type: SYSTEM_ERROR"
    r"|The worker died unexpectedly while executing this task|A worker died or was killed while executing a task"
    r"|OwnerDiedError: Failed to retrieve object|The object's owner has exited",
    context=(TIMED_OUT,),
)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Ray knows that the worker is gone, and not why; NCCL's watchdog says it before."""
    if log.before(record, TIMED_OUT):
        return
    pid = re.search(r"\bpid: (\d+)", record.text)
    address = re.search(r"(?:\bip:|\bat IP address) ([\d.]+\d)", record.text)
    yield Finding(
        f"a worker of Ray vanished{f' (pid {pid[1]})' if pid else ''}; Ray does not know why",
        (record.proof(match, "the worker lives until its task is done"),),
        Fix(
            "read the worker's own log, and the kernel's, on its node",
            command="tail -n 50 /tmp/ray/session_latest/logs/worker-*"
            + (f"{pid[1]}.err" if pid else ".err")
            + '\ndmesg -T | grep -iE "killed process|out of memory|segfault"; df -h /tmp',
        ),
        Place(host=address[1]) if address else record.place,
        ambiguity=Ambiguity(
            (
                "the kernel, or Ray's memory monitor, killed it for memory",
                "it crashed in native code (SIGSEGV, SIGABRT)",
                "the disk is full, or somebody ran ray stop",
            ),
            'dmesg -T | grep -iE "killed process|segfault"   # on the worker\'s node',
        ),
    )
