"""A collective of HCCL, the communication library of Ascend NPUs, did not end in time.

## What happens

A rank that has entered a collective waits on its NPU for the others, up to HCCL_EXEC_TIMEOUT (1836 s): "EI0002: ... The
wait execution of the Notify register times out", "hccl fftsplus task timeout occurred during task execution", "EE1002:
Stream synchronize timeout". Whoever prints it waited. Another rank died, is elsewhere in the program, or works longer.

## How to be sure

Compare the ranks: one that does not print it has the cause in its log. `py-spy dump` of each rank, while they wait.

## How to mend it

As for any collective that not all ranks enter; where one rank only works longer, HCCL_EXEC_TIMEOUT on all hosts, and
`timeout=` of init_process_group.

## Versions and sources

Holds for CANN 7 and 8 with torch_npu for torch 2.1 to 2.7. Source: Huawei, HCCL error codes, EI0002 and EE1002.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Record, Role, Severity, log_pattern

AILMENT = Ailment("DDP730", Severity.ERROR)


@log_pattern(
    r"EI0002: [^\n]{0,200}?(?:Notify|notify)[^\n]{0,80}(?:times? out|timeout)|hccl fftsplus task timeout occurred"
    r"|NPU (?:function )?error[^\n]{0,80}, error code is (?:507048|107020)\b"
    r"|EE1002: [^\n]{0,80}?Stream synchronize timeout"
    r"|(?P<task>wait for compute device to finish failed, runtime result = (?:107020|507048|507046)\b"
    r"|rt\w{0,20}Synchronize\w{0,20} execute failed, reason=\[[^\]\n]{0,40}timeout[^\]\n]{0,20}\])",
    role=Role.GENERIC,
    waits=True,
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Whoever prints it has waited."""
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
