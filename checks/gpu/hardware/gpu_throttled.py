"""A GPU is slowed down by heat or by its power supply.

## What happens

In data-parallel training every step waits for the slowest rank: one hot GPU slows all of them. A hardware slow-down,
caused by heat or by the power brake, can halve the clocks of a GPU.

Idle clocks, the configured power cap and clocks that an administrator has set are no faults and are not reported.

## How to be sure

ddpdoctor reads from NVML why the clocks of each GPU are reduced. It reports four reasons: hardware slow-down, hardware
thermal slow-down, software thermal slow-down, hardware power brake. To verify it by hand, run this while training:

    nvidia-smi -q -d PERFORMANCE,TEMPERATURE

## How to mend it

Repair the cooling (air flow, dust, fans, the temperature of the room) or the power supply (cables, rating), and look at
the reasons again under load. Until then leave this GPU out by CUDA_VISIBLE_DEVICES, if the training is faster without
it.

## Versions and sources

Holds for all versions of torch. Source: NVML, nvmlDeviceGetCurrentClocksThrottleReasons.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Place, Severity, probe

from .._text import named

if TYPE_CHECKING:
    from ddpdoctor.check import Gpus

AILMENT = Ailment("DDP206", Severity.WARNING)
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
