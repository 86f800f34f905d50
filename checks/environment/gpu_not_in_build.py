"""torch is not built for the architecture of a GPU.

"no kernel image is available for execution on the device", or a warning that sm_XX is not compatible with the current
PyTorch installation. A build holds code for a list of architectures; code for sm_80 runs on sm_86 and sm_89 too (same
major version), and PTX of compute_90 is compiled for any newer GPU at start.

To be sure: `python -c "import torch; print(torch.cuda.get_arch_list())"` beside `nvidia-smi --query-gpu=compute_cap
--format=csv`.

Source: CUDA C++ Programming Guide, "Binary Compatibility" and "PTX Compatibility". Holds for all versions of torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor import Card, Doubt, Evidence, Finding, Fix, NotRun, Place, Severity
from ddpdoctor.check import probe, sign
from ddpdoctor.explain.records import Log, Record
from ddpdoctor.probe.outcome import Returned

if TYPE_CHECKING:
    from ddpdoctor.probe.gpus import Gpus
    from ddpdoctor.probe.jobs import Jobs

CARD = Card("DDP111", Severity.ERROR, known_as=("cuda-arch-not-in-build",))
UNSUPPORTED = (
    r"with CUDA capability sm_(\d+) is not compatible with the current PyTorch installation"
    r"|Your installed torch==\S+ does not include kernels for this GPU"
)
NO_IMAGE = r"no kernel image is available for execution on the device|cudaErrorNoKernelImageForDevice"
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
    """Tell whether a build for these architectures runs on a GPU of this compute capability."""
    for kind, major, minor in ARCHITECTURE.findall(built):
        same = int(major) == capability[0] and int(minor) <= capability[1]
        if same or (kind == "compute" and (int(major), int(minor)) <= capability):
            return True
    return False


def arch_list() -> str:
    """Give the build's architectures, in a rank, without touching CUDA."""
    import torch

    flags = getattr(torch._C, "_cuda_getArchFlags", lambda: "")  # noqa: SLF001 - get_arch_list() would start CUDA first
    return str(flags() or "")


@sign(UNSUPPORTED, explains=("nccl-unhandled-cuda-unspecified",))
def in_the_warning(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read torch's own warning, which names GPU and architecture."""
    yield Finding(
        f"torch has no code for this GPU{f' (sm_{match[1]})' if match[1] else ''}",
        (record.proof(match, "an architecture that the build has"),),
        UPGRADE,
        record.place,
    )


@sign(NO_IMAGE, beside=(UNSUPPORTED,), explains=("nccl-unhandled-cuda-unspecified",))
def in_the_error(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Read CUDA's error, which leaves open whose code it is, unless torch warned of the GPU."""
    warned = log.first(UNSUPPORTED)
    yield Finding(
        "a kernel was not compiled for this GPU",
        (
            record.proof(match, "code for the GPU's architecture"),
            *((warned[0].proof(warned[1], "an architecture that the build has"),) if warned else ()),
        ),
        UPGRADE,
        record.place,
        doubt=None
        if warned
        else Doubt(
            ("torch is not built for this GPU", "an extension (flash-attention, apex, custom ops) is not"),
            'python -c "import torch; print(torch.cuda.get_arch_list(), torch.cuda.get_device_capability())"'
            "   # capability in the list: the extension",
        ),
    )
