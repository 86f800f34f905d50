"""torch knows no communication backend for the accelerator of this machine.

## What happens

Without a `backend`, init_process_group chooses one by the accelerator that it finds. For Apple's GPUs (mps), and for
devices of other packages that were not imported, it knows none: "We detected accelerator mps on your machine. But we
don't know which communication backend to use for this accelerator."

## How to be sure

The message names the device. torch 2.7 and later choose gloo for mps, which then communicates on the CPU.

## How to mend it

Name the backend: gloo for CPU tensors on a Mac; that of the package (hccl, xccl, ...) once it is imported. Tensors on
mps cannot be communicated: move them to the CPU.

A tensor of a device for which the group has no backend ends in "No backend type associated with device type xpu", one
of a Mac's GPU in "The operator 'c10d::allreduce_' is not currently implemented for the MPS device": the group was made
for other devices. Name a backend for each, `"cpu:gloo,xpu:xccl"`.

Gloo itself takes tensors of the CPU and of CUDA. Where it meets others, DDP's comparison of the parameters' sizes
before the first step often: "ProcessGroupGloo::allgather: invalid tensor type at index 0 (expected
TensorOptions(dtype=long long, device=cpu, ...), got TensorOptions(dtype=long long, device=mps:0, ...)", or
"ProcessGroupGloo::allreduce: unsupported device type mps". The dtypes are equal and the devices differ.

Lightning says it before torch does: "strategies from the DDP family are not supported on the MPS accelerator", of a
`strategy` that is DDP, FSDP or DeepSpeed while `accelerator` is mps, gpu or auto on a Mac.

MPI that was built without CUDA takes tensors of the CPU alone: "CUDA tensor detected and the MPI used doesn't have
CUDA-aware MPI support". For GPUs take nccl.

## Versions and sources

Holds for torch 2.6 to 2.13. Source: torch.distributed.distributed_c10d, `BackendConfig`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Log, Record, Severity, log_pattern

AILMENT = Ailment("DDP432", Severity.ERROR)
# As torch.distributed.Backend.default_device_backend_map and the packages of the makers name them.
BACKENDS = {"cuda": "nccl", "xpu": "xccl", "npu": "hccl", "hpu": "hccl", "mlu": "cncl", "musa": "mccl", "xla": "xla"}

NOT_LOADED = r"Cannot load xpu CCL\. CCL doesn't work for XPU device due to (?P<why>(?!\{e\})[^\n]{1,300})"


@log_pattern(
    r"We detected accelerator (?P<device>\w+) on your machine\. But we don't know which communication backend to use"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name the device."""
    yield Finding(
        f"torch knows no communication backend for {match['device']}",
        (record.proof(match, "a backend that is named"),),
        Fix(
            "name the backend, and communicate tensors on the CPU",
            diff='-torch.distributed.init_process_group()\n+torch.distributed.init_process_group("gloo")',
        ),
        record.place,
    )


@log_pattern(
    rf"(?:No backend type associated with device type |isn't implemented on backend \[)"
    rf"(?P<device>{'|'.join(BACKENDS)}|mps)\b"
    r"|Could not run 'c10d::\w+' with arguments from the '(?P<key>MPS|XPU|HPU)' backend"
    r"|operator 'c10d::\w+' is not currently implemented for the (?P<lacks>MPS|XPU|HPU) device",
    context=(NOT_LOADED,),
)
def of_a_tensor(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Name the device of the tensor, and the backend that is made for it."""
    device = match["device"] or (match["key"] or match["lacks"]).lower()
    if device == "xpu" and (bindings := log.first(NOT_LOADED)):
        yield _of_bindings(record, match, bindings[0].proof(bindings[1]), bindings[1]["why"])
        return
    yield Finding(
        f"the process group has no backend for tensors on {device}",
        (record.proof(match, f"a group with a backend for {device}"),),
        _fix(device, record),
        record.place,
    )


@log_pattern(
    r"ProcessGroupGloo::\w+: (?:unsupported device type |"
    r"invalid tensor type at index \d+ \(expected TensorOptions\(dtype=(?P<dtype>[a-z0-9_ ]{1,40}?)(?: \(default\))?, "
    r"device=\w+[^\n]{0,300}?got TensorOptions\(dtype=(?P=dtype)(?: \(default\))?, device=)"
    rf"(?P<device>(?!cuda)(?:{'|'.join(BACKENDS)}|mps))\b"
)
def of_a_tensor_given_to_gloo(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """The dtypes are equal: it is the device that gloo does not take."""
    device = match["device"]
    yield Finding(
        f"gloo is given tensors on {device}, and takes those of the CPU and of CUDA alone",
        (record.proof(match, f"a backend for {device}" if device != "mps" else "tensors on the CPU"),),
        _fix(device, record),
        record.place,
    )


def _of_bindings(record: Record, match: re.Match[str], seen: Evidence, why: str) -> Finding:
    """OneCCL's bindings were imported and passed over what they could not load, so the group has nothing for xpu."""
    return Finding(
        f"the process group has no backend for xpu: oneCCL's bindings could not be loaded for it: {why.strip()}",
        (record.proof(match, "a group with a backend for xpu"), seen),
        Fix(
            "install bindings, intel-extension-for-pytorch and torch of one version; or torch 2.8 or later, "
            "which has a backend of its own for xpu",
            command="pip list | grep -iE '^(torch|intel.extension|oneccl)'   # one major and minor version",
            diff="-import oneccl_bindings_for_pytorch\n-torch.distributed.init_process_group('ccl')\n"
            "+torch.distributed.init_process_group('xccl')   # torch 2.8 and later",
        ),
        record.place,
    )


def _fix(device: str, record: Record) -> Fix:
    if device == "mps" and re.search(r"DistributedDataParallel|_verify_param_shape_across_processes", record.text):
        return Fix(
            "no backend communicates on this device: train on one GPU of the Mac without DDP, or on the CPU",
            diff="-model = DistributedDataParallel(model.to('mps'))\n+model = model.to('mps')   # one process\nor\n"
            "+model = DistributedDataParallel(model.to('cpu'))",
        )
    if device == "mps":
        return Fix(
            "move the tensors to the CPU: none communicates on this device",
            diff="-dist.all_reduce(x)\n+dist.all_reduce(x.cpu())",
        )
    return Fix(
        "name a backend for each device that is communicated",
        diff=f'-torch.distributed.init_process_group("gloo")\n'
        f'+torch.distributed.init_process_group("cpu:gloo,{device}:{BACKENDS[device]}")',
    )


@log_pattern(r"strategies from the DDP family are not supported on the MPS accelerator")
def of_lightning(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Lightning refuses DDP on a Mac's GPU, also for one device."""
    yield Finding(
        "Lightning is asked for a strategy of several processes on the GPU of a Mac, on which none communicates",
        (record.proof(match, "one device without DDP, or the CPU"),),
        Fix(
            "leave the strategy to Lightning, or train on the CPU",
            diff="-Trainer(strategy=DDPStrategy(...), devices=1)\n+Trainer(accelerator='mps', devices=1)\nor\n"
            "+Trainer(accelerator='cpu', strategy='ddp', devices=2)",
        ),
        record.place,
    )


@log_pattern(r"CUDA tensor detected and the MPI used doesn't have CUDA-aware MPI support")
def of_mpi(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """The backend is mpi, and its library knows no GPU."""
    yield Finding(
        "the backend is mpi, its library cannot read the memory of GPUs, and a tensor on a GPU is communicated",
        (record.proof(match, "nccl for tensors on GPUs"),),
        Fix(
            "communicate over nccl; mpirun can still start the ranks",
            diff='-dist.init_process_group("mpi")\n'
            '+dist.init_process_group("nccl", rank=int(os.environ["OMPI_COMM_WORLD_RANK"]),\n'
            '+                        world_size=int(os.environ["OMPI_COMM_WORLD_SIZE"]))',
            command="ompi_info --parsable --all | grep mpi_built_with_cuda_support:value",
        ),
        record.place,
    )
