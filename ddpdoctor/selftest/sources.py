"""Each check's ``broken.sources`` and ``healthy.sources``, linted: found in each of the one, nothing in the other.

Both hold several small programs, each after a line ``=== what it shows``. A program is a file ``train.py``; a line
``--- NAME`` begins another file beside it, or the only one where it comes first. In a broken one, the finding stands
on the line that ends in ``# here``. A README.md lies beside them. In a healthy one no check finds anything but a note
of another check.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.facets import Instrument
from ddpdoctor.findings import Result, Severity, Status
from ddpdoctor.lint import LIKELY
from ddpdoctor.lint.run import Wanted, lint
from ddpdoctor.selftest.result import SelfTestResult, fixture
from ddpdoctor.source.text.folders import UP

if TYPE_CHECKING:
    from ddpdoctor.facets import Check
    from ddpdoctor.lint.examine import Found

HERE = "# here"
DEEP = ("down",) * (UP + 1)
"""Folders below that for temporary files: what others left there is not of the program's project."""


@dataclass(frozen=True, slots=True)
class Program:
    """A few files; ``shows`` says what is wrong in them, or what only looks wrong."""

    shows: str
    files: tuple[tuple[str, str], ...]


Linter = Callable[[Program], "tuple[list[Found], str]"]


def programs(path: Path) -> Iterator[Program]:
    """Read the programs of a file."""
    parts = re.split(r"^=== (.+)\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for shows, text in zip(parts[1::2], parts[2::2], strict=True):
        files = re.split(r"^--- (.+)\n", f"--- train.py\n{text}", flags=re.MULTILINE)
        named = zip(files[1::2], files[2::2], strict=True)
        yield Program(shows, tuple(each for each in named if each[1].strip()))


@contextmanager
def linter(checks: tuple[Check, ...]) -> Iterator[Linter]:
    """Yield a function that returns what all checks find in a program, and what kept them from looking."""
    wanted = Wanted(tuple(each for each in checks if each.of(Instrument.LINT)), confidence=LIKELY)
    with tempfile.TemporaryDirectory(prefix="ddpdoctor-") as top:
        deep = Path(top, *DEEP)
        deep.mkdir(parents=True)

        def linted(program: Program) -> tuple[list[Found], str]:
            with tempfile.TemporaryDirectory(dir=deep) as folder:
                paths = [Path(folder, name) for name, _ in program.files]
                for path, (_, text) in zip(paths, program.files, strict=True):
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(text, encoding="utf-8")
                done = lint([path for path in paths if path.suffix != ".md"], wanted)
            return [*done.found], "; ".join((*done.faults, *done.crashes))

        yield linted


def try_sources(check: Check, linted: Linter) -> SelfTestResult:
    """Lint all programs of a check."""
    return SelfTestResult(check, _broken(check, linted), _healthy(check, linted), "lint")


def _broken(check: Check, linted: Linter) -> Result:
    path = fixture(check, "broken.sources")
    if not path.is_file():
        return _result(check, Status.CRASHED, reason=f"there is no fixture {path}")
    findings = []
    for program in programs(path):
        found, fault = linted(program)
        own = [each.finding for each in found if each.check is check]
        lines = [number for _, text in program.files for number, line in enumerate(text.split("\n"), 1) if HERE in line]
        places = [finding.place.line for finding in own]
        if fault or sorted(set(lines)) != sorted({*filter(None, places)}) or not own:
            return _result(
                check, Status.PASSED, reason=fault or f"{program.shows!r}: found in {places}, not in {lines}"
            )
        findings += own
    return _result(check, Status.FAILED, tuple(findings))


def _healthy(check: Check, linted: Linter) -> Result:
    path = fixture(check, "healthy.sources")
    if not path.is_file():
        return _result(check, Status.CRASHED, reason=f"there is no fixture {path}")
    for program in programs(path):
        found, fault = linted(program)
        found = [each for each in found if each.check is check or each.finding.severity is not Severity.NOTE]
        if fault:
            return _result(check, Status.CRASHED, reason=f"{program.shows!r}: {fault}")
        if found:
            said = f"{program.shows!r}: {found[0].check.slug} in line {found[0].finding.place.line}"
            return _result(check, Status.FAILED, (found[0].finding,), said)
    return _result(check, Status.PASSED)


def _result(check: Check, status: Status, findings: tuple = (), reason: str = "") -> Result:  # type: ignore[type-arg]
    return Result(check.code, check.slug, check.area, check.title, status, findings, reason)
