"""An operator has no kernel for the device that its tensors are on.

## What happens

Each operator is built for some devices. "Could not run 'torchvision::nms' with arguments from the 'CUDA' backend" is a
torchvision for CPUs beside a torch for CUDA; "The operator 'fsdp::all_gather_copy_in' is not currently implemented for
the XPU device" a torch that has this part for other makers' devices alone. Every rank raises it at the first such
call.

## How to be sure

The message names the operator and the device: what stands before the two colons is the package (`aten`, `fsdp` and
`c10d` are torch's own). `python -c "import torch, torchvision; print(torch.__version__, torchvision.__version__)"`
shows whether both end in the same `+cu...`.

## How to mend it

Install the package in the build that fits torch's, from the same index, or compile it on the host that trains. An
operator of torch's own comes with a newer torch; until then move the tensors of that call to the CPU.

## Versions and sources

Holds for all versions of torch. Sources: the dispatcher's message (aten/src/ATen/core/dispatch/OperatorEntry.cpp), that
of MPS and XPU; intel/torch-xpu-ops#1328; torchvision's README, "Installation".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP142", Severity.ERROR)
OF_TORCH = frozenset({"aten", "prims", "fsdp", "c10d", "_c10d_functional", "quantized"})
INDEX = "pip install --force-reinstall torch {package} --index-url https://download.pytorch.org/whl/cu128"
DEVICES = {"cuda": "torch.cuda.get_device_name()", "xpu": "torch.xpu.get_device_name()"}


@log_pattern(
    r"NotImplementedError: (?:Could not run '(?P<operator>(?!c10d::)\w+::[\w.]+)' with arguments from the "
    r"'(?P<backend>\w+)' backend|The operator '"
    r"(?P<of>(?!c10d::\w+' is not currently implemented for the (?:MPS|XPU|HPU))\w+::[\w.]+)'"
    r" is not currently (?:implemented|supported) (?:for|on) the (?P<device>\w+) (?:device|backend))"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name the operator, its package and the device."""
    operator, device = match["operator"] or match["of"], (match["backend"] or match["device"]).upper()
    package = operator.partition("::")[0]
    if "META" in device or "SPARSE" in device:
        return
    yield Finding(
        f"{operator} has no kernel for {device} in what is installed here",
        (record.proof(match, f"a build of {'torch' if package in OF_TORCH else package} with it"),),
        Fix(
            f"install the torch that has it for {device}, or move the tensors of that call to the CPU",
            command="pip install --upgrade torch; python -m torch.utils.collect_env",
            diff="-y = op(x)\n+y = op(x.cpu()).to(x.device)",
        )
        if package in OF_TORCH
        else Fix(
            f"install {package} in the build that fits this torch (here for CUDA 12.8), or compile it on this host",
            command=INDEX.format(package=package)
            if package in {"torchvision", "torchaudio"}
            else f"pip uninstall -y {package}; pip install --no-binary {package} {package}",
        ),
        record.place,
    )
