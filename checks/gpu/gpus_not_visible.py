"""The machine has NVIDIA GPUs, and a training would see none of them.

The PCI bus shows display controllers of NVIDIA, but NVML cannot be used or CUDA_VISIBLE_DEVICES hides every GPU.
torch.cuda.is_available() is then False: the training runs on the CPU, a hundred times slower, or NCCL refuses.

Causes, and what tells them apart: libnvidia-ml.so.1 is not there (the driver is not installed, or a container was
started without `--gpus all`); "RM has detected an NVML/RM version mismatch" (the driver was updated while its old
kernel module is loaded: reboot); "Driver Not Loaded" (no kernel module); no answer (a GPU has crashed: `dmesg` shows
Xid lines); or CUDA_VISIBLE_DEVICES is empty or begins with an entry that names no GPU.

To be sure: `nvidia-smi -L`.

Source: NVML documentation, nvmlReturn_t; CUDA C++ Programming Guide, "CUDA Environment Variables". Holds for all
versions of torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor import Card, Doubt, Evidence, Finding, Fix, NotRun, Place, Severity
from ddpdoctor.check import probe, sign
from ddpdoctor.explain.records import Record
from ddpdoctor.probe.gpus import ABSENT, visible

if TYPE_CHECKING:
    from ddpdoctor.probe.facts import Facts

CARD = Card("DDP201", Severity.ERROR)


@probe
def on_the_bus_but_not_in_sight(facts: Facts) -> Iterator[Finding]:
    """Compare the PCI bus, NVML and CUDA_VISIBLE_DEVICES."""
    gpus = facts.gpus
    if not gpus.on_bus and not gpus.devices and gpus.error in ("", ABSENT):
        raise NotRun("no NVIDIA GPU on the PCI bus")
    setting = facts.environ.get("CUDA_VISIBLE_DEVICES")
    if gpus.error:
        yield Finding(
            f"the {gpus.on_bus or 'NVIDIA'} GPUs of this machine cannot be used: {gpus.error}",
            (Evidence(gpus.error, "NVML lists the GPUs", "NVML"),),
            Fix(*_fix(gpus.error)),
        )
    elif gpus.devices and setting is not None and "MIG-" not in setting and not visible(setting, gpus):
        yield Finding(
            f"CUDA_VISIBLE_DEVICES={setting!r} hides all {len(gpus.devices)} GPUs",
            (
                Evidence(
                    f"CUDA_VISIBLE_DEVICES={setting!r}", f"indices from 0 to {len(gpus.devices) - 1}", "environment"
                ),
            ),
            Fix("name the GPUs, or unset the variable", command="unset CUDA_VISIBLE_DEVICES"),
            Place(variable="CUDA_VISIBLE_DEVICES"),
            severity=Severity.NOTE if setting in ("", "-1") else None,  # the usual way to hide them on purpose
        )


def _fix(error: str) -> tuple[str, str]:
    if error == ABSENT:
        return "install the driver; in a container, start it with the GPUs", "docker run --gpus all ..."
    if "mismatch" in error:
        return "reboot, so that the kernel module is of the driver's version", "sudo reboot"
    if "did not answer" in error:
        return "look for Xid lines of the kernel, then reboot", "sudo dmesg | grep -i xid"
    return "load the driver's kernel module", "sudo modprobe nvidia && nvidia-smi -L"


@sign(
    r"RuntimeError: (?:No CUDA GPUs are available|Found no NVIDIA driver on your system)",
    explains=("worker-error-hidden-by-launcher",),
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read CUDA's refusal; the same words as a warning are harmless where the training is meant for the CPU."""
    yield Finding(
        "a rank sees no GPU",
        (record.proof(match, "torch.cuda.device_count() is at least 1"),),
        Fix(
            "see which of driver, container and variable hides them",
            command='nvidia-smi -L; echo "$CUDA_VISIBLE_DEVICES"',
        ),
        record.place,
        doubt=Doubt(
            (
                "CUDA_VISIBLE_DEVICES is empty or names no GPU of this host",
                "the container or the job was started without GPUs",
                "the driver is not loaded on this host",
            ),
            'nvidia-smi -L; echo "$CUDA_VISIBLE_DEVICES"   # GPUs listed: the variable; none: container or driver',
        ),
    )
