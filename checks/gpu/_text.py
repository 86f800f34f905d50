"""How the checks of this area name a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddpdoctor.check import Gpu


def named(gpu: Gpu) -> str:
    """Return index, name and bus id."""
    return f"GPU {gpu.index} ({gpu.name}, {gpu.bus_id})"
