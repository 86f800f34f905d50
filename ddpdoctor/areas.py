"""The areas of the built-in checks, each with its range of codes: a folder of ``checks/`` is an area."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Area:
    """A folder of ``checks/``: what it is about, and its codes, from ``first`` to ``last``.

    A range that is used up goes on a thousand higher: DDP1501 is of the area of DDP501.

    ``shows_network``: a rank that fails with one of its ailments tells what it sees of its network.
    """

    name: str
    title: str
    first: int
    last: int
    shows_network: bool = False

    def holds(self, code: str) -> bool:
        """Whether a code such as ``DDP501`` is in the area's range."""
        return code.startswith("DDP") and self.first <= int(code[3:]) % 1000 <= self.last


AREAS = (
    Area("environment", "environment variables, versions and what is installed", 101, 149),
    Area("host", "memory, files, limits and crashes of the host", 150, 199),
    Area("gpu", "GPUs, their drivers, and which rank sees which", 200, 299),
    Area("network", "host names, interfaces, and what NCCL and gloo make of them", 300, 349, shows_network=True),
    Area("rendezvous", "how the ranks find each other", 350, 399, shows_network=True),
    Area("launching", "launchers, schedulers, and how processes start and end", 400, 499),
    Area("model", "models, wrappers and gradients", 500, 599),
    Area("data", "samplers and data loaders", 600, 699),
    Area("collectives", "collectives, and trainings that hang", 700, 799),
    Area("checkpoint", "checkpoints, and other files that ranks write", 800, 899),
    Area("performance", "trainings that are slow", 900, 999),
)


def by_area(code: str) -> tuple[str, int, int]:
    """Return the key that sorts codes area by area: DDP501, DDP1501, DDP601."""
    prefix = code.rstrip("0123456789")
    number = int(code[len(prefix) :])
    return prefix, next((area.first for area in AREAS if area.holds(code)), 0), number


def shows_network(name: str) -> bool:
    """Whether the area of this name shows a rank's network; one of a third party does not."""
    return any(area.shows_network for area in AREAS if area.name == name)
