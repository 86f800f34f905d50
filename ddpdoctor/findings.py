"""What a checkup says: findings, results and the report.

Plain frozen data; this module knows no check, no instrument and no reporter.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, fields

TIME = "time"
"""What a check wants for which the time of the run did not suffice (``Result.wants``), and what it says."""
OUT_OF_TIME = "the time of the whole run is used up (--timeout)"


class Severity(enum.IntEnum):
    """How much a finding matters: a note never changes the exit status by itself."""

    NOTE = 1
    WARNING = 2
    ERROR = 3

    def __str__(self) -> str:
        """Return the word that users type and read: ``note``, ``warning`` or ``error``."""
        return self.name.lower()


LEVELS = {str(severity): severity for severity in Severity}
"""By the words that users type and read."""


class Status(enum.Enum):
    """How the examination for one check ended."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not run"
    CRASHED = "crashed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a fault sits; only the fields that apply are set.

    ``rank`` is the global rank, ``gpu`` the index that NVML gives the device, ``line`` and ``column``
    (of characters) count from 1.
    """

    file: str | None = None
    line: int | None = None
    column: int | None = None
    rank: int | None = None
    host: str | None = None
    gpu: int | None = None
    variable: str | None = None
    key: str | None = None

    def __str__(self) -> str:
        """Render as people write it: ``train.py:31, rank 1``; empty when nothing is known."""
        numbers = [str(each) for each in (self.line, self.column) if each is not None]
        where = [] if self.file is None else [":".join([self.file, *numbers])]
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
class Edit:
    """A text in the place of another, in the file that a finding is about.

    Lines count from 1, columns are bytes of UTF-8 and count from 0, as the parser of Python has them.
    """

    line: int
    column: int
    end_line: int
    end_column: int
    text: str


@dataclass(frozen=True, slots=True)
class Fix:
    """What to do, and the text to paste: shell ``command`` lines, or a unified-style ``diff``.

    ``edits`` do it in the file itself; together they mend the finding and change nothing else.
    """

    summary: str
    command: str = ""
    diff: str = ""
    edits: tuple[Edit, ...] = ()


@dataclass(frozen=True, slots=True)
class Ambiguity:
    """The causes that the evidence leaves open, likeliest first, and the command that tells them apart."""

    causes: tuple[str, ...]
    command: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong here.

    ``severity`` is None until the engine fills in that of the check; a facet sets it to say that this
    occurrence matters more, or less, than the check's usual one. ``ambiguity`` is None when the evidence is
    conclusive.
    """

    message: str
    evidence: tuple[Evidence, ...]
    fix: Fix
    place: Place = Place()
    severity: Severity | None = None
    table: Table | None = None
    ambiguity: Ambiguity | None = None

    def __post_init__(self) -> None:
        """Refuse a finding without proof or without a fix.

        Raises:
            ValueError: no evidence, or a fix that says nothing.
        """
        if not self.evidence or not self.fix.summary:
            raise ValueError(f"a finding needs evidence and a fix: {self.message!r}")


@dataclass(frozen=True, slots=True)
class Result:
    """How one check ended. ``reason`` says why it was not run, or how it crashed; ``seconds`` is wall time.

    ``wants`` names what the user can give to have a check run that was not: ``model``, ``batch``, ``loader``,
    ``checkpoint``, ``gpus`` or ``time``. It is empty where there is nothing here to look at.
    """

    code: str
    slug: str
    area: str
    title: str
    status: Status
    findings: tuple[Finding, ...] = ()
    reason: str = ""
    seconds: float = 0.0
    wants: str = ""


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """How far the user's own command came in its rehearsal: passes over training data, steps of one rank.

    ``note`` says what was done otherwise than the command asks for.
    """

    command: str
    ranks: int
    epochs: int
    steps: int
    seconds: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class Hosts:
    """The hosts that took part, of how many, whether they ``met``, and who reaches whom: a row for each.

    ``tried`` says what each link was tried with. ``links_tried`` are those of which the matrix knows, each way for
    itself; of very many hosts not all of ``links``.
    """

    names: tuple[str, ...]
    expected: int
    met: bool
    matrix: Table
    links_tried: int = 0
    links: int = 0
    tried: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """A whole run: what was found, and what the user's own targets did wrong (``faults``).

    ``rehearsed`` is None where no rank of the user's command was seen, ``hosts`` on one host.
    """

    results: tuple[Result, ...]
    faults: tuple[str, ...] = ()
    seconds: float = 0.0
    rehearsed: Rehearsed | None = None
    hosts: Hosts | None = None

    def of(self, *statuses: Status) -> list[Result]:
        """List the results of these statuses."""
        return [result for result in self.results if result.status in statuses]

    @property
    def late(self) -> list[Result]:
        """The results of checks that the time did not suffice for."""
        return [result for result in self.results if result.wants == TIME]

    @property
    def saw_nothing(self) -> bool:
        """Whether no check had anything to look at."""
        return bool(self.results) and self.rehearsed is None and len(self.of(Status.NOT_RUN)) == len(self.results)

    def findings(self, level: Severity = Severity.NOTE) -> list[Finding]:
        """List the findings of at least this severity, in the order in which they were made."""
        return [
            finding
            for result in self.results
            for finding in result.findings
            if finding.severity is not None and finding.severity >= level
        ]

    def exit_status(self, fail_on: Severity) -> int:
        """Return the exit status of the run.

        Returns:
            0 nothing at or above ``fail_on``; 1 findings; 2 nothing was looked at, or not all that the user asked
            for: a target could not be used, or the time ran out; 3 a check crashed.
        """
        if self.of(Status.CRASHED):
            return 3
        if self.faults or self.late or self.saw_nothing:
            return 2
        return 1 if self.findings(fail_on) else 0
