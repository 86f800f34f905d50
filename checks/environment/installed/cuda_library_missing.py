"""A library of CUDA that a package was built for is not on this machine.

## What happens

torch brings its own CUDA libraries; other packages, and torch builds of older CUDA versions, look for theirs by name
and number: "libcudart.so.11.0: cannot open shared object file", "libnccl.so.2: cannot open shared object file",
"libcublas.so.12". The number tells which CUDA the package was built for. It fails when it is imported, on each rank or
on the one host where the environment differs.

## How to be sure

`python -c "import torch; print(torch.version.cuda)"` next to the number in the message; the traceback names the
package. `pip list | grep -i nvidia` shows what torch brought.

## How to mend it

Install the package for the CUDA version of your torch (often an index or a suffix such as cu124 chooses it), or build
it against this torch. A library that is there and is not found: put its folder into LD_LIBRARY_PATH, in the launch
script of every host.

## Versions and sources

Holds for Linux, torch 2.2 to 2.13. Source: ld.so(8); the wheels' nvidia-* dependencies.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP121", Severity.ERROR)


@log_pattern(r"Failed to load NCCL library from (?P<path>[^\s]{1,300}?)\.? It is expected if you are not running on")
def of_vllm(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name the library that vLLM was told to load, and cannot."""
    path = match["path"]
    yield Finding(
        f"vLLM cannot load the NCCL that it was told to take: {path}",
        (record.proof(match, "an NCCL that this system can load"),),
        Fix(
            "let it take the NCCL of the installed torch, or name a file that is there and is built for this system",
            command=f"unset VLLM_NCCL_SO_PATH; ls -l {path}; ldd {path}",
        ),
        record.place,
    )


@log_pattern(r"Failed to open (?P<library>libnvidia-ml\.so[.\d]{0,8})")
def of_nccl(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """NCCL asks the driver's own library about the GPUs; a container has it from the host, where it is asked for."""
    library = match["library"]
    yield Finding(
        f"NCCL does not find {library}, the driver's library that tells about the GPUs",
        (record.proof(match, "the library of the running driver"),),
        Fix(
            "give the container the driver's tools; on a host, install the driver whole, and restart after an upgrade",
            command="ldconfig -p | grep libnvidia-ml; nvidia-smi -L\n"
            "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ...",
        ),
        record.place,
    )


@log_pattern(
    r"(?:ImportError|OSError): "
    r"(?P<library>lib(?:cu(?:dart|blas|blasLt|dnn|fft|rand|solver|sparse|pti)|nccl|nvrtc|nvToolsExt)[\w-]*"
    r"\.so[.\d]*): cannot open shared object file"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name the library."""
    library = match["library"]
    yield Finding(
        f"{library} is not found by the package that is imported",
        (record.proof(match, f"{library} in a folder that the loader searches"),),
        Fix(
            "install the package for the CUDA version of this torch",
            command='python -c "import torch; print(torch.__version__, torch.version.cuda)"; pip list | grep -i nvidia',
        ),
        record.place,
    )
