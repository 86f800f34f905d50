"""A check tried on its patient and on its control; the fixtures that both lie in."""

from __future__ import annotations

import importlib.resources
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.model import Result, Status

if TYPE_CHECKING:
    from ddpdoctor.check import Check


@dataclass(frozen=True, slots=True)
class Trial:
    """What one instrument, by a check, said of its patient and of its control."""

    check: Check
    patient: Result
    control: Result
    instrument: str = "probe"

    @property
    def verdict(self) -> str:
        """Say ``ok``, ``not run`` or ``wrong``."""
        if Status.CRASHED in (self.patient.status, self.control.status):
            return "wrong"
        if Status.NOT_RUN in (self.patient.status, self.control.status):
            return "not run"
        ok = self.patient.status is Status.FAILED and self.control.status is Status.PASSED
        return "ok" if ok else "wrong"


def fixture(check: Check, name: str) -> Path:
    """Give the path of a file in the check's fixture folder."""
    folder = check.slug.replace("-", "_")
    return Path(str(importlib.resources.files("ddpdoctor.fixtures"))) / folder / name
