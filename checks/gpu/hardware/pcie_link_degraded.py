"""A GPU's PCIe link runs with fewer lanes than it has.

## What happens

Half of the lanes is half of the bandwidth to the host and, without NVLink, to the other GPUs. all_reduce waits for the
slowest link, so one such GPU slows all ranks. Usual causes: a card that is not fully seated, a dirty slot, a riser, a
slot that is wired for 8 or 4 lanes.

## How to be sure

ddpdoctor compares the current width of each link with the largest that NVML gives for it. It is a warning where
another GPU of the machine has more lanes, else a note. The number of lanes does not change when a GPU idles; the link's
generation does, and is not judged.

To verify it by hand, look for "Link Width" in the output of the first command, or run `lspci -vv` as root:

    nvidia-smi -q -d PCI

## How to mend it

Reseat the card and clean the slot; or move the card to a slot with all lanes; or replace the riser. A board that gives
x8 to each of two cards does so by design: then nothing is to be repaired.

## Versions and sources

Holds for all versions of torch. Source: NVML, nvmlDeviceGetCurrPcieLinkWidth and nvmlDeviceGetMaxPcieLinkWidth.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Place, Severity, probe

from .._text import named

if TYPE_CHECKING:
    from ddpdoctor.check import Gpus

AILMENT = Ailment("DDP210", Severity.NOTE)


@probe
def width(gpus: Gpus) -> Iterator[Finding]:
    """Compare current and possible width; a GPU that is worse than its neighbours is worth a warning."""
    best = max((gpu.pcie_width or 0 for gpu in gpus.devices), default=0)
    for gpu in gpus.devices:
        if gpu.pcie_width and gpu.pcie_width_max and gpu.pcie_width < gpu.pcie_width_max:
            yield Finding(
                f"the PCIe link of {named(gpu)} runs with {gpu.pcie_width} of {gpu.pcie_width_max} lanes",
                (Evidence(f"x{gpu.pcie_width}", f"x{gpu.pcie_width_max}", "NVML"),),
                Fix(
                    "reseat the card, or move it to a slot with all lanes",
                    command=f"nvidia-smi -q -d PCI -i {gpu.index}",
                ),
                Place(gpu=gpu.index),
                severity=Severity.WARNING if gpu.pcie_width < best else None,
            )
