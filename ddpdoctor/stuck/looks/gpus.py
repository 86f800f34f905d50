"""What the GPU of each rank does, as NVML counts it: with NCCL, those that wait are busy in its kernel, and one idles.

Source: nvml.h, nvmlDeviceGetUtilizationRates: the part of the last second in which a kernel ran.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ddpdoctor.host.gpus import gather_gpus

if TYPE_CHECKING:
    from collections.abc import Iterable

IDLE, BUSY = 5, 90  # percent
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Use:
    """The GPU that a process computes on: its number in NVML's order, percent of time in use, bytes in use of all."""

    gpu: int
    busy: int
    used: int = 0
    total: int = 0

    def __str__(self) -> str:
        """Name it with what it does."""
        memory = f", {self.used / GIB:.0f} of {self.total / GIB:.0f} GiB" if self.total else ""
        return f"GPU {self.gpu}: {self.busy} %{memory}"


def uses(pids: Iterable[int]) -> dict[int, Use]:
    """Return by process the GPU that it has to itself; none where NVML does not tell, or processes share one.

    Within a container NVML names processes by the host's numbers: none is found then.
    """
    wanted, found = set(pids), dict[int, list[Use]]()
    for gpu in gather_gpus(os.environ).devices:
        on_it = {pid for pid, _ in gpu.processes} & wanted
        if gpu.busy is not None and len(on_it) == 1 and not gpu.mig:
            use = Use(gpu.index, gpu.busy, gpu.memory_used, gpu.memory_total)
            found.setdefault(on_it.pop(), []).append(use)
    return {pid: each[0] for pid, each in found.items() if len(each) == 1}


def as_use(data: Any) -> Use | None:
    """Read what a report says of it."""
    return None if data is None else Use(*(int(data[name]) for name in asdict(Use(0, 0))))


def waited_for(uses: Iterable[Use | None]) -> int | None:
    """Return which of the ranks alone leaves its GPU idle while those of all others are busy; None where none does."""
    known = list(uses)
    idle = [number for number, each in enumerate(known) if each is not None and each.busy <= IDLE]
    busy = [number for number, each in enumerate(known) if each is not None and each.busy >= BUSY]
    return idle[0] if len(idle) == 1 and busy and len(busy) == len(known) - 1 else None
