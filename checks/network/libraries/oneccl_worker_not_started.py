"""oneCCL cannot start its worker threads.

## What happens

Each rank of oneCCL (backends `ccl` and `xccl`) starts worker threads and binds them to cores, as a rule the last ones
that the host has. In a container, a Slurm step or under taskset the process is not allowed to use these cores, so that
the thread is refused: "error while creating worker thread #0 pthread_create returns 22", then "oneCCL: exec.cpp:134
start_workers: EXCEPTION: failed to start worker # 0". 22 is EINVAL: cores that the process does not have. 11 is EAGAIN:
no more threads are allowed.

## How to be sure

`taskset -cp $$` in the shell of the ranks prints the cores that they have; `CCL_LOG_LEVEL=info` prints those that
oneCCL chooses.

## How to mend it

Name cores that the ranks have: `CCL_WORKER_AFFINITY=0,1` with one core for each local rank (times `CCL_WORKER_COUNT`),
or start the ranks without the binding.

## Versions and sources

oneCCL, src/common/thread and src/exec; its documentation of CCL_WORKER_AFFINITY and CCL_WORKER_COUNT. Seen in
intel/torch-ccl#54 and vllm-project/vllm#10109.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Log, Record, Severity, log_pattern

AILMENT = Ailment("DDP329", Severity.ERROR)
REFUSED = r"error while creating worker thread #\d+ pthread_create returns (?P<code>\d+)"
NO_MORE = "11"  # EAGAIN


@log_pattern(r"oneCCL: [\w.]+:\d+ start_workers: EXCEPTION: failed to start worker # ?\d+", context=(REFUSED,))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Let the code of pthread_create say why, where the log has it."""
    refused = log.first(REFUSED)
    is_full = refused is not None and refused[1]["code"] == NO_MORE
    yield Finding(
        "oneCCL cannot start a worker thread: "
        + ("no more threads are allowed" if is_full else "it is to run on a core that this process may not use"),
        (record.proof(match, "a core for each worker"), *((refused[0].proof(refused[1]),) if refused else ())),
        Fix(
            "raise the limit of threads" if is_full else "name cores that the ranks of this host have, one for each",
            command="ulimit -u; cat /sys/fs/cgroup/pids.max"
            if is_full
            else "taskset -cp $$; export CCL_WORKER_COUNT=1 CCL_WORKER_AFFINITY=0,1   # as many as local ranks",
        ),
        record.place,
    )
