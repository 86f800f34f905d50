"""A rank ended with an error that this log does not hold.

## What happens

torchrun knows a rank's exit status, not why: "exitcode : 1 (pid: 4711)", "error_file: <N/A>", "traceback : To enable
traceback see: https://pytorch.org/docs/stable/elastic/errors.html", and then its own traceback that ends in
ChildFailedError. The rank's traceback was printed by the rank: further up, into another file, or by another node. The
frames of torchrun in this log say nothing about the cause.

## How to be sure

No exception stands in the log but the launcher's own.

## How to mend it

Search for the first "Error" of that rank; keep each rank's output with `--log-dir` and `--redirects`;
decorate main with `@record`, and torchrun prints the traceback in its summary.

## Versions and sources

Source: torch.distributed.elastic.multiprocessing.errors; torchrun documentation, "Error Propagation". Holds for torch
2.2 to 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Log, Record, Role, Severity, log_pattern

AILMENT = Ailment("DDP415", Severity.ERROR)
FAILED = (
    r"failed \(exitcode: ([1-9]\d*)\)(?: local_rank: (\d+))?|exitcode\s*: ([1-9]\d*) \(pid: \d+\)"
    r"|CalledProcessError: Command [^\n]*(?:\n[^\n]{1,300}){0,40}? returned non-zero exit status ([1-9]\d*)"
    r"|exits with return code = ([1-9]\d*)"
    r"|Child process with PID \d+ terminated with code ([1-9]\d*)\b"
    r"|Global rank \d+ \(PID \d+\) exited with code ([1-9]\d*)"
    r"|(?:ProcessExitedException|Exception): process \d+ terminated with exit code ([1-9]\d*)"
)
ENDED = r"exitcode\s*: -?\d+"
ERROR = r"(?m)^ {0,2}(?:\w+\.)*(\w+(?:Error|Exception|Interrupt|Exit))\b(?!\()"
OWN_WORDS = (
    r"Failed to compile the C\+\+ dataset helper functions|Making C\+\+ dataset helpers module failed"
    r"|Set the environment variable HYDRA_FULL_ERROR=1"
    r"|^(?:error|warning) DDP\d{3,4} [a-z0-9-]+: "
)
"""Megatron's; Hydra's, which says what is wrong without a traceback; and what `ddpdoctor check` has found in the
place of a training: its status is that of its findings."""
PLATFORM = (
    r"\bPod: (?:\S+\.)?(?P<pod>[\w-]+) exited with code (?P<code>[1-9]\d*)"
    r"|Error pod (?P<container>[\w-]+) container \S+ exitCode: (?P<exit>[1-9]\d*)"
    r"|sagemaker-training-toolkit +ERROR +Encountered exit_code (?P<sagemaker>[1-9]\d*)"
    r"|srun: error: (?P<node>[\w.-]+): tasks? (?P<tasks>[\d,-]+): Exited with exit code (?P<srun>[1-9]\d*)"
)
NOT_STARTED = r"(?:srun|slurmstepd): error: execve\(\): "
LAUNCHERS = {
    "AlgorithmError",  # SageMaker's, as the next one, and the one of its client
    "ExecuteUserScriptError",
    "UnexpectedStatusException",
    "ChildFailedError",
    "CalledProcessError",
    "ProcessExitedException",
}
PEER = r"[Cc]onnection closed by (?:remote )?peer|Connection reset by peer|Broken pipe"
SUMMARY = r"rank\s+: (\d+) \(local_rank: (\d+)\)"
FIX = Fix(
    "keep the output of each rank, and let torchrun print the traceback",
    command="torchrun --log-dir=logs --redirects=3 --tee=3 --nproc_per_node=2 train.py",
    diff="+from torch.distributed.elastic.multiprocessing.errors import record\n+\n+@record\n def main():",
)
DOUBT = Ambiguity(
    (
        "an exception of the script",
        "an error in its arguments (exit status 2)",
        "a signal: no memory (SIGKILL) or a crash in native code (SIGSEGV), which no traceback tells of",
    ),
    "grep -rnE -B30 'Error|Exception' logs/ | head -60   # the first one of that rank",
)


LAUNCHES = re.compile(r"torchrun|torch\.distributed|accelerate|deepspeed|mpirun|srun|local[_-]rank|['\"]-u['\"]")


def _is_own_program(record: Record, said: str) -> bool:
    """Whether a command that failed is one that the script itself runs, as to unpack something: program-failed."""
    by_script = record.users is not None and "/bin/" not in record.users.file
    return said.startswith("CalledProcessError") and by_script and not LAUNCHES.search(said)


@log_pattern(FAILED, role=Role.GENERIC, context=(ERROR, SUMMARY, OWN_WORDS))
def in_the_summary(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """See that nothing but the launcher speaks of an error."""
    if told(log, match[2]) or _is_own_program(record, match[0]):
        return
    status = match[1] or next(filter(None, match.groups()[2:]))
    rank = f"local rank {match[2]}" if match[2] else "a rank"
    yield Finding(
        f"{rank} ended with exit status {status}, and no exception of it is in this log",
        (record.proof(match, "the traceback of the rank"),),
        FIX,
        record.place,
        ambiguity=DOUBT,
    )


@log_pattern(r"\bChildFailedError\b", role=Role.GENERIC, context=(ERROR, ENDED, SUMMARY, OWN_WORDS))
def alone(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """See that not even an exit status is told."""
    if told(log) or log.first(ENDED):
        return
    yield Finding(
        "a rank failed, and this log tells neither its error nor its exit status",
        (record.proof(match, "the traceback of the rank"),),
        FIX,
        record.place,
        ambiguity=DOUBT,
    )


@log_pattern(PLATFORM, role=Role.GENERIC, context=(FAILED, NOT_STARTED, ERROR, SUMMARY, OWN_WORDS))
def by_the_platform(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Read what a scheduler or an operator says of a process whose own output is elsewhere."""
    if told(log) or log.first(FAILED) or log.first(NOT_STARTED):
        return
    pod = match["pod"] or match["container"]
    status = match["code"] or match["exit"] or match["sagemaker"] or match["srun"]
    who = f"pod {pod}" if pod else f"task {match['tasks']} on {match['node']}" if match["node"] else "a rank"
    yield Finding(
        f"{who} ended with exit status {status}, and no exception of it is in this log",
        (record.proof(match, "the traceback of the rank"),),
        replace(FIX, command=f"kubectl logs --previous {pod}   # or without --previous") if pod else FIX,
        record.place,
        ambiguity=DOUBT,
    )


def told(log: Log, local_rank: str | None = None) -> bool:
    """Whether the log holds an exception of the failed rank, or words that stand for one.

    That a peer closed its connection, others print.
    """
    if log.first(OWN_WORDS):
        return True
    failed = {int(found[1]) for _, found in log.find(SUMMARY) if found[2] == local_rank}
    failed |= {int(local_rank)} if local_rank and not failed else set()
    raised = [(each, {each.error.rpartition(".")[2]}) for each in log.records if each.error]
    printed = [(each, set(re.findall(ERROR, each.text))) for each, _ in log.find(ERROR)]
    of_spawn = {"Exception"} if log.first(FAILED) else set()  # an old torch's, that a process ended
    return any(
        names - LAUNCHERS - (of_spawn if re.search(FAILED, each.text) else set())
        for each, names in (*raised, *printed)
        if not (failed and each.rank is not None and each.rank not in failed and re.search(PEER, each.text))
    )
