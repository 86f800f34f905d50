"""A rank was killed because the host, or its container, has no memory left.

## What happens

The kernel's out-of-memory killer ends a process with SIGKILL: no traceback, and torchrun prints "failed (exitcode:
-9)", "Signal 9 (SIGKILL) received by PID". The ranks together took more memory than the host, the cgroup of the
container or the Slurm job has: each rank loads the whole checkpoint or data set, offloads the optimizer to the CPU,
or has many workers.

## How to be sure

`dmesg -T | grep -i 'killed process'`; the log of Slurm says "oom_kill event" or "exceeded memory limit", LSF's says
TERM_MEMLIMIT, PBS's "job killed: mem", Kubernetes says OOMKilled, Ray's monitor "Workers (tasks / actors) killed due
to memory pressure (OOM)". Without such a line, exit code -9 tells only that
somebody sent SIGKILL: a scheduler or a person can, too.

## How to mend it

Load once and broadcast, or with `mmap=True`; fewer workers; more memory for the job.

## Versions and sources

Source: Linux, Documentation/admin-guide/cgroup-v2.rst; torch.distributed.elastic.multiprocessing. Holds for torch 2.2
to 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Log, Place, Record, Severity, log_pattern

from ._exits import died_by, process

AILMENT = Ailment("DDP157", Severity.ERROR)
KERNEL = (
    r"(?:Out of memory|Memory cgroup out of memory|oom-kill): ?[^\n]*?(?:Killed process|Kill process|task=)[^\n]*"
    r"|Detected \d+ oom[-_]kill event|\bOOMKilled\b|srun: error: [^\n]*: Out Of Memory"
    r"|Killed process \d+ \([^)\n]*\),? (?:UID \d+,? )?total-vm:|\binvoked oom-killer: "
    r"|was killed due to the node running low on memory|oom_kill_process"
    r"|slurmstepd: error: (?:Job|Step) \S+ exceeded memory limit \(\d+ > \d+\), being killed"
    r"|slurmstepd: error: Exceeded (?:job|step) memory limit\s*(?:$|\n)"
    r"|TERM_MEMLIMIT: job killed|=>> PBS: job killed: (?:v?mem|pmem|pvmem|cput?mem) "
)
OF_THE_COMMAND = r"ddpdoctor: The command was ended by SIGKILL\b"
"""What ``ddpdoctor run`` says at the end, of a rank that was started without a launcher, or of the launcher itself."""
KILLED = (
    died_by(9, "SIGKILL")
    + rf"|{OF_THE_COMMAND}"
    + r"|^Killed$|: line \d+: +\d+ Killed\b|\bzsh: killed\b|DataLoader worker \(pid \d+\) is killed by signal: Killed"
)
ENDED = (
    r"Received (?:Signals\.)?(?:SIG\w+|\d+) death signal|closing signal SIGHUP|CANCELLED AT"
    r"|terminated with code (?!-9\b)-?\d+\. Forcefully terminating all"  # Lightning, which then kills itself as well
)
RAYS = r"\b[1-9]\d{0,5} Workers? \(tasks / actors\) killed due to memory pressure \(OOM\)[^\n]{0,120}"
LOST = (
    r"ActorDiedError|WorkerCrashedError|RayActorError|ray\.exceptions\.OutOfMemoryError|Worker exit type: SYSTEM_ERROR"
)
OF_RAY = Fix(
    "let the workers of a node take less memory together, or have Ray start fewer of them there",
    command="ray memory --stats-only; ray logs raylet.out -ip IP_OF_THE_NODE   # which workers were the largest",
    diff="-resources_per_worker={'GPU': 1}\n+resources_per_worker={'GPU': 1, 'CPU': 16}",
)
FIX = Fix(
    "let the ranks of a host take less memory together, or give the job more",
    command="#SBATCH --mem=0   # all of the node's; docker run --memory=..., Kubernetes: resources.limits.memory",
    diff='-state = torch.load(path, map_location="cpu")\n'
    '+state = torch.load(path, map_location="cpu", mmap=True)   # pages are shared by the ranks',
)


@log_pattern(KERNEL, supersedes=("killed-by-scheduler",))
def by_the_kernel(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Quote the kernel or the scheduler, which leave no doubt."""
    yield Finding(
        "the out-of-memory killer ended a process of the training: the host or its container has no memory left",
        (record.proof(match, "memory for all ranks and their workers"),),
        FIX,
        record.place,
    )


@log_pattern(RAYS, context=(LOST,))
def by_ray(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Ray ends tasks to spare memory and tries them again: it is a cause where a worker is missed afterwards."""
    lost = log.first(LOST)
    if lost is None:
        return
    yield Finding(
        "Ray's memory monitor ended a worker: the node has hardly any memory left",
        (record.proof(match, "memory for all workers of the node"), lost[0].proof(lost[1])),
        OF_RAY,
        Place(host=record.node),
    )


@log_pattern(KILLED, context=(KERNEL, ENDED))
def by_somebody(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Yield the name of the process that SIGKILL ended, where neither kernel nor scheduler says why."""
    if log.first(KERNEL) or log.before(record, ENDED):
        return
    yield Finding(
        f"{_who(record)} was ended by SIGKILL, as the out-of-memory killer does",
        (record.proof(match, "an exit by itself"),),
        FIX,
        record.place,
        ambiguity=Ambiguity(
            (
                "the kernel's out-of-memory killer: the host or the container's limit",
                "the scheduler or the platform, at its own memory limit or at the end of a grace period",
                "a person's kill -9",
            ),
            "sudo dmesg -T | grep -iE 'killed process|oom-kill'   # Slurm: sacct -j JOB --format=State,MaxRSS,ReqMem",
        ),
    )


def _who(record: Record) -> str:
    return "the command of `ddpdoctor run`" if re.search(OF_THE_COMMAND, record.text) else process(record.text)
