"""The machine has NVIDIA GPUs, and a training would see none of them.

## What happens

The PCI bus shows display controllers of NVIDIA, but NVML cannot be used, or CUDA_VISIBLE_DEVICES hides every GPU.
torch.cuda.is_available() is then False. The training runs on the CPU, a hundred times slower, or it ends: NCCL
refuses, or torch raises "No CUDA GPUs are available" or "Found no NVIDIA driver on your system".

## How to be sure

ddpdoctor compares the PCI bus, NVML and CUDA_VISIBLE_DEVICES. An empty variable, or -1, is the usual way to hide the
GPUs on purpose, and is a note. To verify it by hand:

    nvidia-smi -L; echo "$CUDA_VISIBLE_DEVICES"

If GPUs are listed, the variable hides them; if none are, it is the container or the driver. What NVML says tells the
causes apart:

- libnvidia-ml.so.1 is not there: the driver is not installed, or the container was started without `--gpus all`.
- "RM has detected an NVML/RM version mismatch": the driver was updated while its old kernel module is loaded.
- "Driver Not Loaded": there is no kernel module.
- No answer: a GPU has crashed, and `sudo dmesg | grep -i xid` shows Xid lines.

## How to mend it

- No library: install the driver; start a container with the GPUs, `docker run --gpus all ...`.
- Version mismatch: reboot, so that the kernel module has the driver's version.
- Driver not loaded: `sudo modprobe nvidia && nvidia-smi -L`.
- No answer: look for Xid lines, then reboot.
- CUDA_VISIBLE_DEVICES: name GPUs that exist, or `unset CUDA_VISIBLE_DEVICES`.

## Versions and sources

Holds for all versions of torch. Sources: NVML documentation, nvmlReturn_t; CUDA C++ Programming Guide, "CUDA
Environment Variables".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    NO_DRIVER,
    Ailment,
    Ambiguity,
    Evidence,
    Finding,
    Fix,
    NotRun,
    Place,
    Record,
    Severity,
    log_pattern,
    probe,
    visible_gpus,
)

if TYPE_CHECKING:
    from ddpdoctor.check import Facts

from ._toolkit import reason_of

AILMENT = Ailment("DDP201", Severity.ERROR)


@probe
def on_the_bus_but_not_in_sight(facts: Facts) -> Iterator[Finding]:
    """Compare the PCI bus, NVML and CUDA_VISIBLE_DEVICES."""
    gpus = facts.gpus
    if not gpus.on_bus and not gpus.devices and gpus.error in ("", NO_DRIVER):
        raise NotRun("no NVIDIA GPU on the PCI bus")
    setting = facts.environ.get("CUDA_VISIBLE_DEVICES")
    if gpus.error:
        yield Finding(
            f"the {gpus.on_bus or 'NVIDIA'} GPUs of this machine cannot be used: {gpus.error}",
            (Evidence(gpus.error, "NVML lists the GPUs", "NVML"),),
            Fix(*_fix(gpus.error)),
        )
    elif gpus.devices and setting is not None and "MIG-" not in setting and not visible_gpus(setting, gpus):
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
    if error == NO_DRIVER:
        return "install the driver; in a container, start it with the GPUs", "docker run --gpus all ..."
    if "mismatch" in error:
        return "reboot, so that the kernel module is of the driver's version", "sudo reboot"
    if "did not answer" in error:
        return "look for Xid lines of the kernel, then reboot", "sudo dmesg | grep -i xid"
    return "load the driver's kernel module", "sudo modprobe nvidia && nvidia-smi -L"


@log_pattern(
    r"RuntimeError: (?:No (?:CUDA|HIP) GPUs are available|Found no NVIDIA driver on your system)"
    r"|MisconfigurationException: No supported gpu backend found"
    r"|ValueError: fp16 mixed precision requires a GPU \(not '(?:cpu)'\)"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read CUDA's refusal; the same words as a warning are harmless where the training is meant for the CPU."""
    yield Finding(
        "a rank sees no GPU",
        (record.proof(match, "torch.cuda.device_count() is at least 1"),),
        Fix(
            "see which of driver, container and variable hides them",
            command="nvidia-smi -L || rocm-smi; env | grep VISIBLE_DEVICES",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "CUDA_VISIBLE_DEVICES (of AMD's: HIP_ or ROCR_VISIBLE_DEVICES) is empty or names no GPU of this host",
                "the container or the job was started without GPUs",
                "the driver is not loaded on this host",
            ),
            "nvidia-smi -L || rocm-smi; env | grep VISIBLE_DEVICES   # listed: the variable; none: container, driver",
        ),
    )


@log_pattern(
    r"Test (?:(?P<hip>HIP)|CUDA) failure \S{1,80}:\d+ '(?:hipErrorInvalidDevice|hipErrorNoDevice|invalid device ordinal"
    r"|no CUDA-capable device is detected)'|HIP error: no (?:ROCm|HIP)-capable device is detected"
)
def in_a_test_of_collectives(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """nccl-tests and rccl-tests take GPUs by their number; a container has those alone that it was given."""
    is_amd = match["hip"] is not None or "HIP" in match[0]
    yield Finding(
        "a program asks for a GPU that this host or container does not show it",
        (record.proof(match, "a GPU of that number"),),
        Fix(
            "start the container with the devices, or ask for as many GPUs as there are",
            command="docker run --device=/dev/kfd --device=/dev/dri --group-add video --ipc=host "
            "--security-opt seccomp=unconfined ...\nrocm-smi   # in it"
            if is_amd
            else "docker run --gpus all --ipc=host ...\nnvidia-smi -L   # in it",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "the container or the job was started without GPUs, or with fewer",
                "more GPUs are asked for (-g) than the host has",
                f"{'HIP_VISIBLE_DEVICES or ROCR_VISIBLE_DEVICES' if is_amd else 'CUDA_VISIBLE_DEVICES'} hides them",
            ),
            "ls -l /dev/kfd /dev/dri; rocm-smi; env | grep VISIBLE" if is_amd else "nvidia-smi -L; env | grep VISIBLE",
        ),
    )


@log_pattern(
    r"could not select device driver \"[^\"\n]{0,20}\" with capabilities: \[\[gpu"
    r"|unknown or invalid runtime name: nvidia"
    r"|nvidia-container-cli: (?P<kind>\w+) error: (?P<why>[^\n]{0,200})"
)
def by_docker(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read Docker's refusal of a container with GPUs, and the reason that NVIDIA's tool gives."""
    if match["why"] and (known := reason_of(match["kind"], match["why"])):
        yield Finding(
            f"NVIDIA's container tool cannot give GPUs to a container on this host: {known[0]}",
            (record.proof(match, "a container that sees the GPUs"),),
            known[1],
            record.place,
        )
        return
    yield Finding(
        "Docker cannot give GPUs to a container on this host: NVIDIA's container toolkit is not set up",
        (record.proof(match, "a container that sees the GPUs"),),
        Fix(
            "install the toolkit, tell Docker of it, and start Docker anew",
            command="sudo apt-get install -y nvidia-container-toolkit\n"
            "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker\n"
            "docker run --rm --gpus all ubuntu nvidia-smi -L",
        ),
        record.place,
    )
