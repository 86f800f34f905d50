"""A GPU is slowed down by heat or by its power supply.

In data-parallel training every step waits for the slowest rank: one hot GPU slows all of them. NVML tells why a
GPU's clocks are reduced: a hardware slow-down (heat or the power brake) can halve them.

Idle clocks, the configured power cap and clocks that an administrator set are not faults and not reported.

To be sure, while training: `nvidia-smi -q -d PERFORMANCE,TEMPERATURE`.

Source: NVML, nvmlDeviceGetCurrentClocksThrottleReasons. Holds for all versions of torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor import Card, Evidence, Finding, Fix, Place, Severity
from ddpdoctor.check import probe

from ._text import named

if TYPE_CHECKING:
    from ddpdoctor.probe.gpus import Gpus

CARD = Card("DDP206", Severity.WARNING)
REASONS = {  # bits of nvmlClocksThrottleReasons
    0x08: "hardware slow-down",
    0x20: "software thermal slow-down",
    0x40: "hardware thermal slow-down",
    0x80: "hardware power brake",
}


@probe
def reasons(gpus: Gpus) -> Iterator[Finding]:
    """Read why each GPU's clocks are reduced."""
    for gpu in gpus.devices:
        active = [text for bit, text in REASONS.items() if (gpu.throttle or 0) & bit]
        if active:
            yield Finding(
                f"{named(gpu)} is slowed down: {', '.join(active)}, at {gpu.temperature} degrees Celsius",
                (Evidence(f"reasons {gpu.throttle:#x}: {', '.join(active)}", "none of these", "NVML"),),
                Fix(
                    "mend cooling or power, and watch it under load",
                    command=f"nvidia-smi -q -d PERFORMANCE -i {gpu.index}",
                ),
                Place(gpu=gpu.index),
            )
