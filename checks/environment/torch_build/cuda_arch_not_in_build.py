"""torch is not built for the architecture of a GPU.

## What happens

CUDA raises "no kernel image is available for execution on the device", or torch warns that sm_XX "is not compatible
with the current PyTorch installation". A build holds code for a list of architectures. Code for sm_80 also runs on
sm_86 and sm_89, which have the same major version and a higher minor one. PTX of compute_90 is compiled at start for
any newer GPU. A GPU that neither covers cannot run torch's kernels.

## How to be sure

ddpdoctor compares the architectures of the build with the compute capability of each GPU. To verify it by hand:

    python -c "import torch; print(torch.cuda.get_arch_list())"
    nvidia-smi --query-gpu=compute_cap --format=csv

Where the list covers the GPU and the error comes all the same, an extension (flash-attention, apex, custom ops) was
built without this architecture. In a log without torch's warning the error alone does not tell which of the two it is.

## How to mend it

Install a build that has the architecture: for a newer GPU a newer torch, for an older GPU an older torch. Then
rebuild the extensions against it, for this GPU.

    pip install --upgrade torch --index-url https://download.pytorch.org/whl/cu128

## Versions and sources

Holds for all versions of torch. Source: CUDA C++ Programming Guide, "Binary Compatibility" and "PTX Compatibility".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Ambiguity,
    Evidence,
    Finding,
    Fix,
    Log,
    NotRun,
    Place,
    Record,
    Returned,
    Severity,
    log_pattern,
    probe,
)

if TYPE_CHECKING:
    from ddpdoctor.check import Gpus, Jobs

AILMENT = Ailment("DDP111", Severity.ERROR)
UNSUPPORTED = (
    r"with CUDA capability sm_(\d+) is not compatible with the current PyTorch installation"
    r"|Your installed torch==\S+ does not include kernels for this GPU"
)
NO_IMAGE = (
    r"no kernel image is available for execution on the device|cudaErrorNoKernelImageForDevice"
    r"|(?P<hip>HIP error: invalid device function|hipErrorNoBinaryForGpu: Unable to find code object)"
)
ON_ROCM = Fix(
    "install the ROCm build that has it; a consumer GPU can run the code of its family's supported one",
    command="rocminfo | grep -m1 gfx\npip install --upgrade torch --index-url https://download.pytorch.org/whl/rocm6.3\n"
    "export HSA_OVERRIDE_GFX_VERSION=11.0.0   # RDNA 3; RDNA 2: 10.3.0",
)
UPGRADE = Fix(
    "install a build that has it (newer GPU: newer torch; older GPU: older torch), and rebuild extensions against it",
    command="pip install --upgrade torch --index-url https://download.pytorch.org/whl/cu128",
)
ARCHITECTURE = re.compile(r"(sm|compute)_(\d+)(\d)[a-z]?")


@probe
def architectures(gpus: Gpus, jobs: Jobs) -> Iterator[Finding]:
    """Compare the build's architectures with the GPUs'."""
    (outcome,) = jobs.run(arch_list, ranks=1, backend=None)
    built = outcome.value if isinstance(outcome, Returned) else ""
    if not built:
        raise NotRun("torch is built without CUDA")
    for gpu in gpus.devices:
        if gpu.capability is not None and not runs_on(built, gpu.capability):
            major, minor = gpu.capability
            yield Finding(
                f"torch has no code for GPU {gpu.index} ({gpu.name}, sm_{major}{minor})",
                (Evidence(f"built for {built}", f"sm_{major}{minor} or compatible", "torch.cuda.get_arch_list()"),),
                Fix(
                    "install a build that has it (newer GPU: newer torch; older GPU: older torch)",
                    command="pip install --upgrade torch",
                ),
                Place(gpu=gpu.index),
            )


def runs_on(built: str, capability: tuple[int, int]) -> bool:
    """Whether a build for these architectures runs on a GPU of this compute capability."""
    for kind, major, minor in ARCHITECTURE.findall(built):
        same = int(major) == capability[0] and int(minor) <= capability[1]
        if same or (kind == "compute" and (int(major), int(minor)) <= capability):
            return True
    return False


def arch_list() -> str:
    """Return the build's architectures, in a rank, without touching CUDA."""
    import torch

    flags = getattr(torch._C, "_cuda_getArchFlags", lambda: "")  # noqa: SLF001 - get_arch_list() would start CUDA first
    return str(flags() or "")


@log_pattern(r"ptxas fatal {1,8}: Value '(?P<arch>sm_\w+)' is not defined for option 'gpu-name'")
def of_the_assembler(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read what the assembler says that Triton, and so torch.compile, brings or finds."""
    yield Finding(
        f"the assembler that Triton calls (ptxas) is older than this GPU, and does not know {match['arch']}",
        (record.proof(match, f"a ptxas that knows {match['arch']}"),),
        Fix(
            "let Triton call the ptxas of a newer CUDA, or take a newer torch with the Triton that belongs to it",
            command="/usr/local/cuda/bin/ptxas --version; export TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas",
        ),
        record.place,
    )


@log_pattern(UNSUPPORTED)
def in_the_warning(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read torch's own warning, which names GPU and architecture."""
    yield Finding(
        f"torch has no code for this GPU{f' (sm_{match[1]})' if match[1] else ''}",
        (record.proof(match, "an architecture that the build has"),),
        UPGRADE,
        record.place,
    )


@log_pattern(NO_IMAGE, context=(UNSUPPORTED,))
def in_the_error(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Read CUDA's error, which leaves open whose code it is, unless torch warned of the GPU."""
    warned = log.first(UNSUPPORTED)
    yield Finding(
        "a kernel was not compiled for this GPU",
        (
            record.proof(match, "code for the GPU's architecture"),
            *((warned[0].proof(warned[1], "an architecture that the build has"),) if warned else ()),
        ),
        ON_ROCM if match["hip"] else UPGRADE,
        record.place,
        ambiguity=None
        if warned
        else Ambiguity(
            ("torch is not built for this GPU", "an extension (flash-attention, apex, custom ops) is not"),
            'python -c "import torch; print(torch.cuda.get_arch_list(), torch.cuda.get_device_capability())"'
            "   # capability in the list: the extension",
        ),
    )
