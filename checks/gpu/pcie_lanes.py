"""A GPU's PCIe link runs with fewer lanes than it has.

Half of the lanes is half of the bandwidth to the host and, without NVLink, to the other GPUs: all_reduce waits for the
slowest link. Typical: a card that is not fully seated, a dirty slot, a riser, a slot that is wired for 8 or 4 lanes.

The number of lanes does not change when a GPU idles (the link's generation does, and is not judged here).

To be sure: `nvidia-smi -q -d PCI` ("Link Width"), or `lspci -vv` as root.

Source: NVML, nvmlDeviceGetCurrPcieLinkWidth and nvmlDeviceGetMaxPcieLinkWidth. A board that gives x8 to each of two
cards does so by design: then the note tells a fact, not a fault. Holds for all versions of torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor import Card, Evidence, Finding, Fix, Place, Severity
from ddpdoctor.check import probe

from ._text import named

if TYPE_CHECKING:
    from ddpdoctor.probe.gpus import Gpus

CARD = Card("DDP210", Severity.NOTE)


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
