"""A check tried on its broken case and on its healthy twin; the fixtures that both lie in."""

from __future__ import annotations

import importlib.resources
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.findings import Result, Status

if TYPE_CHECKING:
    from ddpdoctor.facets import Check


@dataclass(frozen=True, slots=True)
class SelfTestResult:
    """What one instrument, by a check, said of its broken case and of its healthy twin."""

    check: Check
    broken: Result
    healthy: Result
    instrument: str = "probe"

    @property
    def verdict(self) -> str:
        """Return ``ok``, ``not run`` or ``wrong``."""
        if Status.CRASHED in (self.broken.status, self.healthy.status):
            return "wrong"
        if Status.NOT_RUN in (self.broken.status, self.healthy.status):
            return "not run"
        ok = self.broken.status is Status.FAILED and self.healthy.status is Status.PASSED
        return "ok" if ok else "wrong"


def takes_long(check: Check) -> bool:
    """Whether the broken case, watched, says so by ``TAKES_LONG = True``."""
    path = fixture(check, "broken.py")
    return path.is_file() and "\nTAKES_LONG = True" in path.read_text(encoding="utf-8")


def left_out(check: Check) -> SelfTestResult:
    """Return what is said of a check whose cases take long, where nobody asked for them."""
    reason = f"it takes long: ddpdoctor selftest {check.slug}, or --all, runs it"
    absent = Result(check.code, check.slug, check.area, check.title, Status.NOT_RUN, reason=reason)
    return SelfTestResult(check, absent, absent, "watch")


def fixture(check: Check, name: str) -> Path:
    """Return the path of a file in the check's fixture folder.

    It lies in the package ``fixtures`` of the package that the check comes from: a plug-in brings its own.
    """
    package = check.origin.partition(".")[0]
    try:
        fixtures = Path(str(importlib.resources.files(f"{package}.fixtures")))
    except ModuleNotFoundError:
        fixtures = Path(package, "fixtures")  # what reads the file says that there is none
    return fixtures / check.slug.replace("-", "_") / name
