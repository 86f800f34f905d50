"""Finds, proves and mends what is wrong with a PyTorch data-parallel training."""

from typing import TYPE_CHECKING

# The facets' decorators stay in ddpdoctor.check: ddpdoctor.probe is the package of that instrument.
from ddpdoctor import checkpoint
from ddpdoctor.check import BadTarget, Card, Check, NotRun
from ddpdoctor.loading import load_state_dict
from ddpdoctor.model import Doubt, Evidence, Finding, Fix, Place, Report, Result, Severity, Status, Table

if TYPE_CHECKING:
    from ddpdoctor.watch.install import install, uninstall

__all__ = [
    "BadTarget",
    "Card",
    "Check",
    "Doubt",
    "Evidence",
    "Finding",
    "Fix",
    "NotRun",
    "Place",
    "Report",
    "Result",
    "Severity",
    "Status",
    "Table",
    "checkpoint",
    "install",
    "load_state_dict",
    "uninstall",
]


def __getattr__(name: str) -> object:
    """Import the watch when it is asked for: no other command pays for it."""
    if name in {"install", "uninstall"}:
        from ddpdoctor.watch import install

        return getattr(install, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
