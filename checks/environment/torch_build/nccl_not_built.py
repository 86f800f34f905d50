"""The backend is nccl, and this torch was built without it.

## What happens

"Distributed package doesn't have NCCL built in" is raised by init_process_group("nccl") where torch is a build for
CPU only or for macOS. On a Linux machine with GPUs that is a mishap of the installation: a wheel from the CPU index,
or a package of conda-forge for CPU that another dependency pulled in.

On other accelerators NCCL is never there: Ascend's torch_npu brings hccl, Intel's GPUs have xccl (in torch since 2.8;
in earlier versions ccl, by oneccl_bindings_for_pytorch).

## How to be sure

`python -c "import torch; print(torch.__version__, torch.version.cuda)"` prints None for the CUDA
version.

## How to mend it

Install the CUDA build of torch; without GPUs use the backend gloo.

## Versions and sources

Holds for torch 2.2 to 2.13. On Windows the check nccl-not-on-windows speaks instead. Source: torch's
distributed_c10d.py; torch.distributed documentation, "Backends".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Log, Record, Severity, log_pattern

from ._platform import WINDOWS, windows

ACCELERATORS = {
    r"\btorch_npu\b|\bERR99999\b|\[ASCEND\]|\bAscend\b": ("an Ascend NPU", "torch_npu", "hccl"),
    r"\bxpu:\d|torch[/\\.]xpu\b|\bdevice_type=xpu\b": ("an Intel GPU", "torch.xpu", "xccl"),
    r"\btorch_mlu\b": ("a Cambricon MLU", "torch_mlu", "cncl"),
    r"\btorch_musa\b": ("a Moore Threads GPU", "torch_musa", "mccl"),
    r"\bhabana_frameworks\b": ("a Gaudi", "habana_frameworks.torch.distributed.hccl", "hccl"),
}
"""What shows that the machine has another accelerator: its name, the package, and the backend that this brings."""
AILMENT = Ailment("DDP116", Severity.ERROR)


@log_pattern(r"Distributed package doesn't have NCCL", context=(WINDOWS, *ACCELERATORS))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Speak where nothing shows Windows; where the log shows another accelerator, name its own backend."""
    if windows(record, log):
        return
    shown = next((each for each in ACCELERATORS if re.search(each, record.text) or log.first(each)), None)
    if shown is not None:
        other = log.first(shown)
        seen = (other[0].proof(other[1]),) if other else ()
        yield _of_another_accelerator(record, match, ACCELERATORS[shown], seen)
    else:
        yield Finding(
            "the process group asks for NCCL, and the installed torch was built without it",
            (record.proof(match, "a build of torch for CUDA"),),
            Fix(
                "install the CUDA build of torch, or use gloo where there is no NVIDIA GPU",
                command="pip install --force-reinstall torch",
                diff='-torch.distributed.init_process_group("nccl")\n+torch.distributed.init_process_group("gloo")',
            ),
            record.place,
        )


def _of_another_accelerator(
    record: Record, match: re.Match[str], accelerator: tuple[str, str, str], seen: tuple[Evidence, ...]
) -> Finding:
    device, package, backend = accelerator
    return Finding(
        f"the process group asks for NCCL, which is for NVIDIA's GPUs, and the training runs on {device}",
        (record.proof(match, f"the backend {backend}"), *seen),
        Fix(
            "take the backend of that device, whose package makes it known to torch",
            command=f"... --ddp_backend {backend}   # where the Trainer makes the group",
            diff=f'+import {package}\n-torch.distributed.init_process_group("nccl")\n'
            f'+torch.distributed.init_process_group("{backend}")',
        ),
        record.place,
    )
