"""What a reader found in public repositories, against what ``ddpdoctor lint`` finds in them.

``python tests/lint_labels.py FOLDER`` lints each ``FOLDER/OWNER+NAME`` that has labels in ``lint_labels.csv``, and
prints precision and recall by rule. A label is a certain mistake that was written down before the file was linted:
repository, path, line, and the code of the rule, or words where there is none. The rules were worked on after the first
part was measured, and again after each other; each part was unseen until then.
"""

from __future__ import annotations

import csv
import os
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from ddpdoctor.facets import Instrument
from ddpdoctor.findings import Severity
from ddpdoctor.lint.files import find
from ddpdoctor.lint.run import Wanted, lint
from ddpdoctor.registry import load_checks

NEAR = 18  # lines: a reader marks the line that prints a sum, a rule the loop that adds it up


@dataclass(frozen=True, slots=True)
class Label:
    """A mistake, where it stands, and the rule that is to find it."""

    part: str
    repository: str
    path: str
    line: int
    rule: str
    confidence: str


def labels() -> list[Label]:
    """Return all labels."""
    with Path(__file__).with_suffix(".csv").open(encoding="utf-8") as file:
        rows = csv.DictReader(file)
        return [
            Label(each["part"], each["repository"], each["path"], int(each["line"]), each["rule"], each["confidence"])
            for each in rows
        ]


def found(repository: Path) -> list[tuple[str, int, str]]:
    """Return the certain findings in a repository, but for notes: the file, the line and the code."""
    checks = tuple(each for each in load_checks() if each.of(Instrument.LINT))
    here = Path.cwd()
    os.chdir(repository)
    try:
        told = lint(find((".",), (), Path()), Wanted(checks)).found
    finally:
        os.chdir(here)
    return [
        (os.path.normpath(each.finding.place.file or ""), each.finding.place.line or 0, each.check.code)
        for each in told
        if each.finding.severity is not Severity.NOTE
    ]


def compare(
    wanted: list[Label], told: list[tuple[str, int, str]]
) -> tuple[list[Label], list[Label], list[tuple[str, int, str]]]:
    """Return the labels that were found, those that were missed, and the findings that no label is about."""
    rest = list(told)
    right, missed = [], []
    for label in wanted:
        near = [
            each
            for each in rest
            if each[0] == label.path and each[2] == label.rule and abs(each[1] - label.line) <= NEAR
        ]
        if near:
            rest.remove(min(near, key=lambda each: abs(each[1] - label.line)))
            right.append(label)
        else:
            missed.append(label)
    return right, missed, rest


def say(text: str) -> None:
    """Write a line."""
    sys.stdout.write(f"{text}\n")


def main(folder: Path) -> None:
    """Print what was found and missed, by part and rule."""
    known = [each for each in labels() if each.confidence == "certain"]
    for part in dict.fromkeys(each.part for each in known):
        right: Counter[str] = Counter()
        missed: Counter[str] = Counter()
        other: Counter[str] = Counter()
        for repository in dict.fromkeys(each.repository for each in known if each.part == part):
            place = folder / repository.replace("/", "+", 1)
            if not place.is_dir():
                continue
            own = [each for each in known if each.repository == repository]
            hits, misses, rest = compare(own, found(place))
            right.update(each.rule for each in hits)
            missed.update(each.rule for each in misses)
            other.update(code for _, _, code in rest)
        total = right.total() + missed.total()
        say(f"{part}: {right.total()} of {total} labels found, {other.total()} findings without a label")
        for rule in sorted({*right, *missed, *other}):
            say(f"  {rule:24} found {right[rule]:3}  missed {missed[rule]:3}  without a label {other[rule]:3}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
