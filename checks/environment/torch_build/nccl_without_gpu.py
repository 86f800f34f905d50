"""The backend is nccl, and the process sees no GPU.

## What happens

"ProcessGroupNCCL is only supported with GPUs, no GPUs found!" is raised where a process group of NCCL is made and
torch counts no CUDA device. NCCL moves memory of GPUs only. Either the process has lost its GPUs (CUDA_VISIBLE_DEVICES
is empty, the container was started without them, the job did not request any, the driver fails), or the machine has
none and the script asks for nccl all the same.

## How to be sure

`python -c "import torch; print(torch.cuda.device_count())"` in the same environment prints 0;
`nvidia-smi -L` says what the machine has.

## How to mend it

Give the process its GPUs; for a machine without any let the script choose gloo.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch's ProcessGroupNCCL.cpp, the
constructor; torch.distributed documentation, "Backends".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Log, Record, Severity, log_pattern

AILMENT = Ailment("DDP117", Severity.ERROR)
REFUSED = r"CUDA initialization: [^\n]{0,300}?\bError (?P<number>\d+): (?P<said>[^\n(]{1,120})"
COMPATIBLE = Fix(
    "let the ranks load the libcuda of the host's driver, or start the host anew after an update of it",
    command="export LD_LIBRARY_PATH=$(echo $LD_LIBRARY_PATH | tr : '\\n' | grep -v compat | paste -sd:)",
)
OTHERS = Ambiguity(
    (
        "the container brings a newer libcuda (/usr/local/cuda/compat), which only data-centre GPUs may use",
        "the driver's libraries were updated, and its kernel module is the old one until the host is started anew",
    ),
    "cat /proc/driver/nvidia/version; ldconfig -p | grep libcuda.so; ls -l /usr/local/cuda/compat",
)


@log_pattern(r"ProcessGroupNCCL is only supported with GPUs, no GPUs found", context=(REFUSED,))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Read what the constructor of the process group says, and why CUDA had shown it no GPU."""
    if refused := log.first(REFUSED):
        said = refused[1]["said"].strip()
        yield Finding(
            f"CUDA does not start, so NCCL is shown no GPU: error {refused[1]['number']}, {said}",
            (refused[0].proof(refused[1], "CUDA starts"), record.proof(match)),
            COMPATIBLE
            if refused[1]["number"] == "804"
            else Fix("mend what CUDA says first", command='python -c "import torch; torch.cuda.init()"; nvidia-smi'),
            record.place,
            ambiguity=OTHERS if refused[1]["number"] == "804" else None,
        )
        return
    yield Finding(
        "the process group asks for NCCL, and this process sees no GPU",
        (record.proof(match, "one GPU or more for each rank"),),
        Fix(
            "give the process its GPUs, or use gloo on a machine that has none",
            command='nvidia-smi -L; echo "CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES"',
            diff='-dist.init_process_group("nccl")\n'
            '+dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")',
        ),
        record.place,
    )
