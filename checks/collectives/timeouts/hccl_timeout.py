"""A collective of HCCL, the communication library of Ascend NPUs, did not end in time.

## What happens

A rank that has entered a collective waits on its NPU for the others, up to HCCL_EXEC_TIMEOUT (1836 s): "EI0002: ... The
wait execution of the Notify register times out", "hccl fftsplus task timeout occurred during task execution", "EE1002:
Stream synchronize timeout", "error code is 507046". Whoever prints it waited. Another rank died, is elsewhere in the
program, or works longer: in `main_process_first` all others wait while one rank prepares the data.

## How to be sure

Compare the ranks: one that does not print it has the cause in its log. `py-spy dump` of each rank, while they wait.

## How to mend it

As for any collective that not all ranks enter; where one rank only works longer, HCCL_EXEC_TIMEOUT on all hosts, and
`timeout=` of init_process_group. Data is better prepared by a run of one process before the training.

## Versions and sources

Holds for CANN 7 and 8 with torch_npu for torch 2.1 to 2.7. Source: Huawei, HCCL error codes, EI0002 and EE1002;
Ascend/pytorch#62.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Record, Role, Severity, log_pattern

AILMENT = Ailment("DDP730", Severity.ERROR)
FIRST = re.compile(r"(?:local_)?main_process_first\b|rank_zero_first\b|wait_for_main_process\b")


@log_pattern(
    r"EI0002: [^\n]{0,200}?(?:Notify|notify)[^\n]{0,80}(?:times? out|timeout)|hccl fftsplus task timeout occurred"
    r"|NPU (?:function )?error[^\n]{0,80}, error code is (?:507048|507046|107020)\b"
    r"|EE1002: [^\n]{0,80}?Stream synchronize timeout"
    r"|(?P<task>wait for compute device to finish failed, runtime result = (?:107020|507048|507046)\b"
    r"|rt\w{0,20}Synchronize\w{0,20} execute failed, reason=\[[^\]\n]{0,40}timeout[^\]\n]{0,20}\])",
    role=Role.GENERIC,
    waits=True,
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Whoever prints it has waited."""
    if (held := FIRST.search(record.text)) is not None:
        yield _of_the_first(record, match, held)
        return
    yield Finding(
        "a task of the NPU did not end in time: a collective that another rank did not come to, or an operator"
        if match["task"]
        else "a collective of HCCL did not end in time: a rank did not come to it",
        (record.proof(match, "all ranks enter it within HCCL_EXEC_TIMEOUT"),),
        Fix(
            "find the rank that does not print it, and read its log",
            command="grep -LE 'EI0002|task timeout|EE1002|107020' LOGS_OF_ALL_RANKS",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "another rank died, or hangs outside of the collective",
                "the ranks are in different places of the program",
                "another rank works longer than the time-out",
                "the network of the NPUs has stalled",
                *(
                    ("an operator of this rank itself hangs: npu-smi info shows AI cores at work",)
                    if match["task"]
                    else ()
                ),
            ),
            "py-spy dump --pid PID   # of every rank, while they wait: the one that is not in the collective",
        ),
    )


def _of_the_first(record: Record, match: re.Match[str], held: re.Match[str]) -> Finding:
    return Finding(
        f"a rank waited in {held[0]} for the one that prepares the data, longer than HCCL lets it",
        (record.proof(match, "a preparation that ends within HCCL_EXEC_TIMEOUT"), record.proof(held)),
        Fix(
            "prepare the data in a run of one process, and train from what it cached; or let the others wait longer",
            command="export HCCL_EXEC_TIMEOUT=7200   # seconds, on all ranks; and timeout= of init_process_group",
        ),
        record.place,
        ambiguity=Ambiguity(
            ("the first rank is still at work on the data", "the first rank died, or hangs, in what it prepares"),
            "py-spy dump --pid PID   # of local rank 0, while the others wait",
        ),
    )
