"""torch.compile wants Triton, and there is none that works here.

## What happens

For GPUs, inductor (the compiler behind torch.compile) makes Triton kernels. Where Triton is not installed, is of
another torch, or has no compiler for this platform (Windows, old GPUs), the first compiled call ends every rank:
"Cannot find a working triton installation", "GPU driver version ... too old to support the Triton GPU compiler", "Found
Tesla P100 ... which is too old to be supported by the triton GPU compiler".

## How to be sure

`python -c "import triton, torch; print(triton.__version__, torch.__version__)"` in the Python that runs the ranks.

## How to mend it

Install the Triton that torch names as its requirement (`pip install torch` does so on Linux; `pip show torch`). On GPUs
below compute capability 7.0 leave torch.compile out, or take `backend="aot_eager"`.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch/_inductor/exc.py, `TritonMissing`, `GPUTooOldForTriton`;
torch/_inductor/scheduler.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP125", Severity.ERROR)


@log_pattern(
    r"Cannot find a working triton installation|Found (?P<gpu>[^\n]{1,60}) which is too old to be supported by "
    r"the triton"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Tell a GPU that is too old from a Triton that is not there."""
    if not record.error:
        return
    gpu = match["gpu"]
    yield Finding(
        f"torch.compile makes no kernels for {gpu}: it is too old for Triton"
        if gpu
        else "torch.compile finds no Triton that works in the Python of the ranks",
        (
            record.proof(
                match, "a GPU of compute capability 7.0 or above" if gpu else "the triton that this torch asks for"
            ),
        ),
        Fix("leave torch.compile out on this GPU", diff="-model = torch.compile(model)")
        if gpu
        else Fix(
            "install the one that this torch names as its requirement, or leave torch.compile out",
            command="pip show torch | grep -i requires; python -c 'import triton; print(triton.__version__)'\n"
            "pip install --force-reinstall --no-cache-dir torch   # brings it along, on Linux",
        ),
        record.place,
    )
