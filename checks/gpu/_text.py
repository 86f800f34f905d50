"""How the checks of this area name a GPU."""

from __future__ import annotations

from ddpdoctor.probe.gpus import Gpu


def named(gpu: Gpu) -> str:
    """Give index, name and bus id."""
    return f"GPU {gpu.index} ({gpu.name}, {gpu.bus_id})"
