"""Finds, proves and mends what is wrong with a PyTorch data-parallel training."""

# The facets' decorators stay in ddpdoctor.check: ddpdoctor.probe is the package of that instrument.

from ddpdoctor.check import BadTarget, Card, Check, NotRun
from ddpdoctor.loading import load_state_dict
from ddpdoctor.model import Doubt, Evidence, Finding, Fix, Place, Report, Result, Severity, Status, Table

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
    "load_state_dict",
]
