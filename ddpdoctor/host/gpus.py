"""The NVIDIA GPUs of this host, over NVML and the PCI bus; and which of them a process sees."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

LIBRARY = "libnvidia-ml.so.1"
PATIENCE = 15.0  # seconds for NVML to answer about all GPUs
NO_DRIVER = f"no NVIDIA driver: {LIBRARY} is not there"
NVIDIA, DISPLAY = "0x10de", "0x03"  # PCI vendor, and the class of display controllers
PROCESS_MEMORY_UNKNOWN = (1 << 64) - 1  # NVML_VALUE_NOT_AVAILABLE, in containers


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as NVML describes it; None for what it does not tell. Sizes are in bytes, ``p2p`` is by NVML index.

    ``lost`` is NVML's error text where the GPU does not answer at all; then nothing else is known.
    ``remapped`` counts rows remapped for correctable and uncorrectable errors, then tells whether a remapping is
    pending and whether one failed. ``throttle`` is NVML's bit mask of reasons. ``busy`` is the percentage of the last
    second in which a kernel ran.
    """

    index: int
    lost: str | None = None
    uuid: str | None = None
    name: str | None = None
    bus_id: str | None = None
    memory_total: int = 0
    memory_used: int = 0
    processes: tuple[tuple[int, int | None], ...] = ()
    ecc_uncorrected: int | None = None
    remapped: tuple[int, ...] | None = None
    throttle: int | None = None
    temperature: int | None = None
    compute_mode: int | None = None
    mig: bool | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    capability: tuple[int, int] | None = None
    busy: int | None = None
    p2p: tuple[int | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Gpus:
    """``error`` says why NVML is of no use; ``cuda`` is the newest CUDA that the driver supports, as 12040.

    ``on_bus`` counts the NVIDIA display controllers that PCI shows, whatever the driver says.
    """

    error: str
    driver: str | None
    cuda: int | None
    devices: tuple[Gpu, ...]
    on_bus: int


def gather_gpus(environ: Mapping[str, str], root: Path = Path("/")) -> Gpus:
    """Ask NVML in a process of its own; ``root`` is where /sys is looked for."""
    on_bus = _on_bus(root)
    if not _library_is_there(environ):
        return Gpus(NO_DRIVER, None, None, (), on_bus)
    program = f"import sys; sys.path[:] = {sys.path!r}; from ddpdoctor.host.nvml import main; main()"
    try:
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=dict(environ),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
        )
        answer: dict[str, Any] = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return Gpus(f"NVML did not answer within {PATIENCE:.0f} s", None, None, (), on_bus)
    except (subprocess.CalledProcessError, ValueError) as exc:
        return Gpus(f"asking NVML failed: {exc}", None, None, (), on_bus)
    devices = tuple(_gpu(device) for device in answer.get("devices", ()))
    return Gpus(answer.get("error", ""), answer.get("driver"), answer.get("cuda"), devices, on_bus)


def _gpu(answer: Mapping[str, Any]) -> Gpu:
    """Make a GPU of NVML's answers: JSON's lists become tuples again."""
    known = {name: answer[name] for name in (field.name for field in fields(Gpu)) if answer.get(name) is not None}
    for name, value in known.items():
        if isinstance(value, list):
            known[name] = tuple(tuple(item) if isinstance(item, list) else item for item in value)
    processes = tuple(
        (pid, None if used == PROCESS_MEMORY_UNKNOWN else used) for pid, used in known.get("processes", ())
    )
    return Gpu(**{**known, "processes": processes})


def _library_is_there(environ: Mapping[str, str]) -> bool:
    """Whether there is anything to ask; this costs nothing."""
    folders = environ.get("LD_LIBRARY_PATH", "").split(":")
    if any(folder and (Path(folder) / LIBRARY).exists() for folder in folders):
        return True
    import ctypes

    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        return False
    return True


def _on_bus(root: Path) -> int:
    count = 0
    for device in (root / "sys/bus/pci/devices").glob("*"):
        with suppress(OSError):
            vendor = (device / "vendor").read_text().strip()
            count += vendor == NVIDIA and (device / "class").read_text().startswith(DISPLAY)
    return count


def visible_gpus(setting: str | None, gpus: Gpus) -> tuple[int, ...]:
    """Return the NVML indices of the GPUs that CUDA_VISIBLE_DEVICES lets a process see, in their order.

    Indices and prefixes of UUIDs; from the first entry that names no GPU on, nothing is seen, and an entry twice
    hides all (CUDA C++ Programming Guide, "CUDA Environment Variables"). Indices are taken in NVML's order, which
    is CUDA's with CUDA_DEVICE_ORDER=PCI_BUS_ID, and in any case where all GPUs are alike.
    """
    there = tuple(gpu.index for gpu in gpus.devices)
    if setting is None:
        return there
    seen: list[int] = []
    for entry in (entry.strip() for entry in setting.split(",")):
        match = [
            gpu.index
            for gpu in gpus.devices
            if (entry.isascii() and entry.isdigit() and gpu.index == int(entry))
            or (entry.startswith("GPU-") and (gpu.uuid or "").startswith(entry))
        ]
        if len(match) != 1:
            break
        if match[0] in seen:
            return ()
        seen += match
    return tuple(seen)
