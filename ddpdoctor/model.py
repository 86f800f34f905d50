"""What a checkup says: findings, results and the report.

Plain frozen data; this module knows no check, no instrument and no reporter.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, fields


class Severity(enum.IntEnum):
    """How much a finding matters: a note never changes the exit status by itself."""

    NOTE = 1
    WARNING = 2
    ERROR = 3

    def __str__(self) -> str:
        """Give the word that users type and read: ``note``, ``warning`` or ``error``."""
        return self.name.lower()


class Status(enum.Enum):
    """How the examination for one check ended."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not run"
    CRASHED = "crashed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a fault sits; only the fields that apply are set.

    ``rank`` is the global rank, ``gpu`` the index that NVML gives the device, ``line`` counts from 1.
    """

    file: str | None = None
    line: int | None = None
    rank: int | None = None
    host: str | None = None
    gpu: int | None = None
    variable: str | None = None
    key: str | None = None

    def __str__(self) -> str:
        """Render as people write it: ``train.py:31, rank 1``; empty when nothing is known."""
        where = [] if self.file is None else [self.file if self.line is None else f"{self.file}:{self.line}"]
        where += [] if self.variable is None else [f"${self.variable}"]
        where += [
            f"{field.name} {getattr(self, field.name)}"
            for field in fields(self)
            if field.name in {"rank", "host", "gpu", "key"} and getattr(self, field.name) is not None
        ]
        return ", ".join(where)


@dataclass(frozen=True, slots=True)
class Evidence:
    """One observed fact, next to what a healthy system shows.

    ``source`` says where it was seen: ``rank 1``, ``/proc/self/limits``, ``train.py:31``.
    """

    seen: str
    expected: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Numbers that compare, a row for each rank, GPU or key."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str | int | float, ...], ...]


@dataclass(frozen=True, slots=True)
class Fix:
    """What to do, and the text to paste: shell ``command`` lines, or a unified-style ``diff``."""

    summary: str
    command: str = ""
    diff: str = ""


@dataclass(frozen=True, slots=True)
class Doubt:
    """The causes that the evidence leaves open, likeliest first, and the command that tells them apart."""

    causes: tuple[str, ...]
    command: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong here.

    ``severity`` is None until the engine fills in that of the check; a facet sets it to say that this
    occurrence matters more, or less, than the check's usual one. ``doubt`` is None when the evidence is
    conclusive.
    """

    message: str
    evidence: tuple[Evidence, ...]
    fix: Fix
    place: Place = Place()
    severity: Severity | None = None
    table: Table | None = None
    doubt: Doubt | None = None

    def __post_init__(self) -> None:
        """Refuse a finding without proof or without a fix.

        Raises:
            ValueError: no evidence, or a fix that says nothing.
        """
        if not self.evidence or not self.fix.summary:
            raise ValueError(f"a finding needs evidence and a fix: {self.message!r}")


@dataclass(frozen=True, slots=True)
class Result:
    """How one check ended. ``reason`` says why it was not run, or how it crashed; ``seconds`` is wall time."""

    code: str
    slug: str
    area: str
    title: str
    status: Status
    findings: tuple[Finding, ...] = ()
    reason: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Report:
    """A whole run: what was found, and what the user's own targets did wrong (``faults``)."""

    results: tuple[Result, ...]
    faults: tuple[str, ...] = ()
    seconds: float = 0.0

    def findings(self, level: Severity = Severity.NOTE) -> list[Finding]:
        """List the findings of at least this severity, in the order in which they were made."""
        return [
            finding
            for result in self.results
            for finding in result.findings
            if finding.severity is not None and finding.severity >= level
        ]

    def exit_status(self, fail_on: Severity) -> int:
        """Give the exit status of the run.

        Returns:
            0 nothing at or above ``fail_on``; 1 findings; 2 a target of the user's could not be used;
            3 a check crashed.
        """
        if any(result.status is Status.CRASHED for result in self.results):
            return 3
        if self.faults:
            return 2
        return 1 if self.findings(fail_on) else 0
