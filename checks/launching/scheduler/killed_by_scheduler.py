"""The scheduler, the platform or a person ended the training.

## What happens

Slurm, Kubernetes and cloud platforms send SIGTERM (15) at the time limit, on preemption, or when another part of the
job failed: "Received 15 death signal, shutting down workers". Slurm itself says "CANCELLED AT ... DUE TO TIME LIMIT",
LSF "TERM_RUNLIMIT: job killed", PBS "job killed: walltime 3610 exceeded limit 3600".
torchrun prints SIGTERM lines also when it cleans up after a rank that failed; those follow "failed (exitcode", and say
nothing about a scheduler.

## How to be sure

The scheduler's own record of the job, and the order: the signal comes first, no rank failed before.

## How to mend it

A longer limit, and checkpoints that the next job resumes from; `#SBATCH --signal=B:USR1@300` warns
the batch script five minutes before.

## Versions and sources

Source: torch.distributed.elastic.agent.server.api; Slurm documentation, "sbatch". Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Log, Record, Severity, log_pattern

AILMENT = Ailment("DDP411", Severity.ERROR)
CANCELLED = r"slurmstepd: error: \*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED AT [\d:T-]+(?: DUE TO ([A-Z ]+))?"
OTHERS = (
    r"\bTERM_(?P<lsf>RUNLIMIT|OWNER|PREEMPT|ADMIN|DEADLINE): job killed"
    r"|=>> PBS: job killed: (?P<pbs>walltime) \d+ exceeded limit \d+"
)
REASONS = {
    "RUNLIMIT": "its run time limit",
    "walltime": "its wall time limit",
    "DEADLINE": "the queue's run window has closed",
    "OWNER": "bkill, by its user",
    "ADMIN": "bkill, by an administrator",
    "PREEMPT": "a job of a higher priority took its place",
}
TERMINATED = (
    r"Received (?:Signals\.)?(?:SIGTERM|15) death signal|Process \d+ got signal: (?:Signals\.)?(?:SIGTERM|15)\b"
    r"|^Received SIGTERM: 15\b|utilities\.exceptions\.SIGTERMException"  # Lightning, of a rank
)
FAILED = (
    r"failed \(exitcode: -?\d+\)|ChildFailedError|Traceback \(most recent call last\)"
    r"|srun: error: [^\n]{0,199}(?:Exited with exit code|Killed|Out Of Memory"
    r"|Aborted|Segmentation fault|Bus error|Illegal instruction|Floating point exception)"
)
ALONE = r"Signal 15 \(SIGTERM\) received by PID"
STATUS = r"failed \(exitcode: (-?\d+)\)|exitcode\s*: (-?\d+) \(pid"


@log_pattern(CANCELLED, context=(FAILED,))
def by_slurm(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Quote Slurm and its reason; where it gives none and a task failed, srun only ended the others."""
    reason = (match[1] or "").strip()
    if reason == "NODE FAILURE" or (not reason and log.first(FAILED)):
        return
    yield Finding(
        f"Slurm cancelled the job: {reason.lower() or 'scancel, by its user or an administrator'}",
        (record.proof(match, "the job ends by itself"),),
        Fix(
            "ask for more time, and save checkpoints to resume from"
            if "TIME" in reason
            else "see who ended it and why, and resume from the last checkpoint",
            command="sbatch --time=24:00:00 --signal=B:USR1@300 job.sh"
            if "TIME" in reason
            else 'sacct -j "$SLURM_JOB_ID" --format=JobID,State,ExitCode,Elapsed,Timelimit,Reason%40',
        ),
        record.place,
    )


@log_pattern(OTHERS)
def by_lsf_or_pbs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Quote the scheduler and its reason."""
    reason = match["lsf"] or match["pbs"]
    is_time = reason in {"RUNLIMIT", "walltime", "DEADLINE"}
    yield Finding(
        f"{'LSF' if match['lsf'] else 'PBS'} ended the job: {REASONS[reason]}",
        (record.proof(match, "the job ends by itself"),),
        Fix(
            "ask for more time, and save checkpoints to resume from"
            if is_time
            else "see who ended it and why, and resume from the last checkpoint",
            command="bsub -W 24:00 ..."
            if match["lsf"] and is_time
            else "qsub -l walltime=24:00:00 ..."
            if is_time
            else 'bhist -l "$LSB_JOBID"',
        ),
        record.place,
    )


@log_pattern(ALONE, context=(STATUS, CANCELLED))
def of_a_rank(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """See that SIGTERM alone has ended ranks: the launcher sends it to the others once one has failed."""
    statuses = {next(filter(None, found.groups())) for _, found in log.find(STATUS)}
    if log.first(CANCELLED) or statuses - {"-15"}:
        return
    rank = re.search(r"local_rank: (\d+)", record.text)  # as `run` has it of the launcher
    yield Finding(
        f"{f'local rank {rank[1]}' if rank else 'a rank'} was ended by SIGTERM: somebody asked it to end, and no "
        "other rank of this log has failed",
        (record.proof(match, "no signal while the ranks train"),),
        Fix(
            "find out who sends signals on that host: a watch over memory or time, the platform, or the script",
            command="journalctl -u systemd-oomd -u earlyoom --since today; grep -rn 'os.kill' --include=*.py .",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "a watch over memory or time on that host (systemd-oomd, earlyoom, a limit of the platform)",
                "the scheduler or the platform, or a launcher whose rank on another host has failed",
                "a person's kill, or the script's own",
            ),
            "journalctl --since today | grep -iE 'oom|killed|sigterm'",
        ),
    )


LOST = re.compile(
    r"Connection (?:reset|closed) by (?:remote )?peer|Broken pipe|failed \(exitcode: 1\)|ChildFailedError"
)
"""What the ranks of other hosts fail of when those of one are gone, and what their launcher says of it."""


@log_pattern(TERMINATED, context=(FAILED, CANCELLED))
def by_signal(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """See that nothing failed before the signal came."""
    if log.first(CANCELLED) or any(_is_failure_before(other, record, log) for other, _ in log.find(FAILED)):
        return
    yield Finding(
        f"{'a rank' if 'SIGTERM: 15' in match[0] or 'Exception' in match[0] else 'torchrun'} received SIGTERM: "
        "it was ended from outside, no rank had failed before",
        (record.proof(match, "no signal while the ranks train"),),
        Fix(
            "read the events of the scheduler for this job",
            command='sacct -j "$SLURM_JOB_ID" --format=JobID,State,ExitCode,Reason%40'
            "   # Kubernetes: kubectl describe pod POD",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "the scheduler or platform ended the job: time limit, preemption, eviction",
                "a rank on another node failed first, and the launcher ended the others",
                "a person ended it, or what started it: timeout, a service, a terminal that was closed",
            ),
            'sacct -j "$SLURM_JOB_ID" --format=JobID,NodeList,State,ExitCode,Elapsed,Timelimit',
        ),
    )


def _is_failure_before(other: Record, record: Record, log: Log) -> bool:
    """Whether a failure came before the signal; what another host has lost with this one came after it."""
    is_loss = other.source != record.source and LOST.search(other.text) is not None
    return other is not record and not is_loss and log.is_earlier(other, record)
