"""Asks NVML about the GPUs and prints the answers as JSON: ``python -m ddpdoctor.host.nvml``.

A program of its own, because NVML can hang or crash with a GPU that has fallen off the bus. Each question is
asked by itself: what a GPU or a driver does not answer is null.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pynvml

READ = 0  # NVML_P2P_CAPS_INDEX_READ, which nvidia-ml-py 12 and 13 define as a tuple by a stray comma


def main() -> None:
    """Print what NVML knows, or why it knows nothing."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as exc:
        print(json.dumps({"error": f"NVML: {exc}"}))  # noqa: T201 - the answer to the parent
        return
    count = pynvml.nvmlDeviceGetCount()
    answer = {
        "driver": _ask(pynvml.nvmlSystemGetDriverVersion),
        "cuda": _ask(pynvml.nvmlSystemGetCudaDriverVersion),
        "devices": [_device(index, count) for index in range(count)],
    }
    print(json.dumps(answer))  # noqa: T201 - as above


def _ask(question: Callable[..., Any], *args: Any) -> Any:
    try:
        return question(*args)
    except pynvml.NVMLError:
        return None


def _device(index: int, count: int) -> dict[str, Any]:
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    except pynvml.NVMLError as exc:
        return {"index": index, "lost": str(exc)}
    pci = _ask(pynvml.nvmlDeviceGetPciInfo, handle)
    rates = _ask(pynvml.nvmlDeviceGetUtilizationRates, handle)
    mig = _ask(pynvml.nvmlDeviceGetMigMode, handle)
    return {
        "index": index,
        "uuid": _ask(pynvml.nvmlDeviceGetUUID, handle),
        "name": _ask(pynvml.nvmlDeviceGetName, handle),
        "bus_id": None if pci is None else _text(pci.busId),
        "memory_total": memory.total,
        "memory_used": memory.used,
        "busy": None if rates is None else rates.gpu,
        "processes": [
            (process.pid, process.usedGpuMemory)
            for process in _ask(pynvml.nvmlDeviceGetComputeRunningProcesses, handle) or ()
        ],
        "ecc_uncorrected": _ask(
            pynvml.nvmlDeviceGetTotalEccErrors,
            handle,
            pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
            pynvml.NVML_VOLATILE_ECC,
        ),
        "remapped": _ask(pynvml.nvmlDeviceGetRemappedRows, handle),
        "throttle": _ask(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle),
        "temperature": _ask(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
        "compute_mode": _ask(pynvml.nvmlDeviceGetComputeMode, handle),
        "mig": None if mig is None else bool(mig[0]),
        "pcie_width": _ask(pynvml.nvmlDeviceGetCurrPcieLinkWidth, handle),
        "pcie_width_max": _ask(pynvml.nvmlDeviceGetMaxPcieLinkWidth, handle),
        "capability": _ask(pynvml.nvmlDeviceGetCudaComputeCapability, handle),
        "p2p": [_p2p(handle, other, index) for other in range(count)],
    }


def _p2p(handle: Any, other: int, index: int) -> int | None:
    """Ask whether this GPU can read the other's memory; None for itself, and where NVML does not say."""
    if other == index:
        return None
    peer = _ask(pynvml.nvmlDeviceGetHandleByIndex, other)
    return None if peer is None else _ask(pynvml.nvmlDeviceGetP2PStatus, handle, peer, READ)


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


if __name__ == "__main__":
    main()
    sys.stdout.flush()
