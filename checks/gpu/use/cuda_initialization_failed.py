"""The driver is there, and CUDA cannot be initialised.

## What happens

The first call of CUDA in a rank fails although the driver answers: "CUDA unknown error - this may be due to an
incorrectly set up environment", "CUDA driver initialization failed, you might not have a CUDA gpu". The usual reasons:
the module `nvidia_uvm` is not loaded or lost its state (after a suspend; in a container without /dev/nvidia-uvm),
CUDA_VISIBLE_DEVICES was changed after torch had looked, on HGX machines the fabric manager does not run, or a GPU has
fallen off the bus. "Failed to initialize NVML: Driver/library version mismatch" is another: the driver's libraries
were upgraded, often by the system's automatic updates, and its old kernel module is still loaded. "CUDA driver is a
stub library" (34): the libcuda.so that is found first is the empty one that programs are linked with.

## How to be sure

`nvidia-smi` works while `python -c "import torch; torch.cuda.init()"` fails. `ls /dev/nvidia-uvm`, `lsmod | grep
nvidia_uvm`, `systemctl status nvidia-fabricmanager`, `sudo dmesg | grep -i xid` tell the reasons apart.

## How to mend it

`sudo modprobe -r nvidia_uvm && sudo modprobe nvidia_uvm`; in a container `docker run --gpus all`; fabric manager:
start it. Set CUDA_VISIBLE_DEVICES before Python starts. After an upgrade of the driver restart the host.

## Versions and sources

Holds for torch 2.2 to 2.13. Sources: torch's c10/cuda/CUDAFunctions.cpp; NVIDIA's Fabric Manager User Guide.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Log, Record, Severity, log_pattern

AILMENT = Ailment("DDP224", Severity.ERROR)
MISMATCH = r"Failed to initialize NVML: Driver/library version mismatch"


MIG = (r"\bMIG \d+g\.\d+gb\b", r"\bMIG-[0-9a-f]{8}-[0-9a-f]{4}-")


@log_pattern(r"device >= 0 && device < num_gpus INTERNAL ASSERT FAILED", context=MIG)
def of_the_count(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """CUDA shows fewer devices than torch has counted before; of instances of MIG it shows one."""
    if part := next(filter(None, map(log.first, MIG)), None):
        yield Finding(
            "the GPU is divided by MIG, and CUDA shows a process one instance, whatever torch has counted",
            (record.proof(match, "the number of the one instance, 0"), part[0].proof(part[1])),
            Fix(
                "give each rank an instance of its own, as device 0, and gloo for their group; or train on whole GPUs",
                command="nvidia-smi -L   # MIG-... of each instance\nCUDA_VISIBLE_DEVICES=MIG-... python train.py",
            ),
            record.place,
        )
        return
    yield Finding(
        "torch has counted more GPUs than CUDA shows this process when it is initialised",
        (record.proof(match, "the same number of GPUs before and after"),),
        Fix(
            "set CUDA_VISIBLE_DEVICES outside of the script, before Python starts",
            diff='-os.environ["CUDA_VISIBLE_DEVICES"] = gpus   # after torch has looked',
            command="CUDA_VISIBLE_DEVICES=0,1 torchrun --standalone --nproc_per_node=2 train.py",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "the script sets CUDA_VISIBLE_DEVICES after `import torch` has looked for GPUs",
                "a GPU has failed, or has fallen off the bus, or is hidden by MIG",
            ),
            "grep -rn CUDA_VISIBLE_DEVICES --include=*.py .; nvidia-smi -L",
        ),
    )


@log_pattern(
    r"RuntimeError: (?:CUDA unknown error - this may be due to an incorrectly set up environment"
    r"|CUDA driver initialization failed, you might not have a CUDA gpu"
    r"|Unexpected error from cudaGetDeviceCount\(\)\. Did you run some cuda functions before calling)",
    context=(MISMATCH,),
)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """The message is the same for several reasons: they are named, with the command for each."""
    if mismatch := log.first(MISMATCH):
        yield Finding(
            "the NVIDIA driver was upgraded, and its old kernel module is still loaded: no process can use the GPUs",
            (mismatch[0].proof(mismatch[1], "one version of module and libraries"), record.proof(match)),
            Fix(
                "load the new module: restart the host, or do it by hand where nothing uses the GPUs",
                command="cat /proc/driver/nvidia/version; modinfo nvidia | grep ^version\nsudo reboot",
            ),
            record.place,
        )
        return
    yield Finding(
        "CUDA cannot be initialised in this rank",
        (record.proof(match, "torch.cuda.init() returns"),),
        Fix(
            "see whether the unified memory device is there, then load its module anew",
            command="ls /dev/nvidia-uvm; sudo modprobe -r nvidia_uvm && sudo modprobe nvidia_uvm",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "the module nvidia_uvm is not loaded or lost its state, or the container has no /dev/nvidia-uvm",
                "on a machine with NVSwitch the fabric manager does not run",
                "CUDA_VISIBLE_DEVICES was changed after torch had looked for GPUs",
                "a GPU has fallen off the bus",
            ),
            "ls /dev/nvidia-uvm; systemctl is-active nvidia-fabricmanager; sudo dmesg | grep -i xid",
        ),
    )


@log_pattern(r"CUDA driver is a stub library")
def of_a_stub(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """The folder of stubs is for the linker, and stands in LD_LIBRARY_PATH."""
    yield Finding(
        "the libcuda.so that is found first is the stub that programs are linked with, not the driver's",
        (record.proof(match, "the driver's libcuda.so.1"),),
        Fix(
            "take the folder of stubs out of LD_LIBRARY_PATH; in a container, mount the driver (--gpus all)",
            command="export LD_LIBRARY_PATH=$(echo $LD_LIBRARY_PATH | tr : '\\n' | grep -v stubs | paste -sd:)\n"
            "ldconfig -p | grep libcuda.so",
        ),
        record.place,
    )
