"""What the signs of models, loaders, frameworks and checkpoints name, and where they abstain."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ddpdoctor.check import Check, Instrument, Role, Sign
from ddpdoctor.explain.records import Log, Record
from ddpdoctor.model import Finding
from ddpdoctor.registry import load_checks

ROOT = Path(__file__).parents[1]
MINE = ("model", "data", "checkpoint", "launching")
SIGNED = [check for check in load_checks() if check.area in MINE and check.of(Instrument.SIGN)]
HEAD = re.compile(r"\[rank(\d+)\]: ")


def findings(records: tuple[Record, ...], checks: list[Check] = SIGNED) -> list[tuple[Check, Role, Finding]]:
    """Show every record to the facets whose pattern it matches, beside what they declared."""
    found = []
    for check in checks:
        for facet in check.of(Instrument.SIGN):
            assert isinstance(facet.subject, Sign)
            patterns = (facet.subject.pattern, *facet.subject.beside)
            log = Log(tuple(record for record in records if any(p.search(record.text) for p in patterns)))
            for record in log.records:
                if match := facet.subject.pattern.search(record.text):
                    offers = {"record": record, "match": match, "log": log}
                    made = facet.examine(**{name: offers[name] for name in facet.needs})
                    found += [(check, facet.subject.role, finding) for finding in made]
    return found


def named(*texts: str, rank: int | None = None) -> set[str]:
    """Name the checks that some records bring up."""
    records = tuple(Record(text=text, source="train.log", line=n, rank=rank) for n, text in enumerate(texts, 1))
    return {check.slug for check, _, _ in findings(records)}


def read(path: Path) -> tuple[Record, ...]:
    """Cut a fixture into records: a traceback with its message, or a line."""
    records: list[Record] = []
    for number, raw in enumerate(path.read_text().splitlines(), 1):
        head = HEAD.match(raw)
        rank, line = (int(head[1]), raw[head.end() :]) if head else (None, raw)
        last = records[-1] if records else None
        goes_on = last and last.text.startswith("Traceback") and last.rank == rank and not line.startswith("Traceback")
        if last and goes_on and not re.match(r"(?:\w{1,3}\d{4} |=====|epoch |\$)", line):
            records[-1] = Record(text=f"{last.text}\n{line}", source=path.name, line=last.line, rank=rank)
        else:
            records.append(Record(text=line, source=path.name, line=number, rank=rank))
    return tuple(records)


@pytest.mark.parametrize("check", SIGNED, ids=lambda check: check.slug)
class TestFixtures:
    """Each log of a patient and its control."""

    def test_the_patient_is_named_and_no_other_of_these(self, check: Check) -> None:
        """Its own finding is made, with evidence from the log; checks of the same message keep silent."""
        found = findings(read(ROOT / "fixtures" / check.slug.replace("-", "_") / "patient.log"))

        assert {other.slug for other, role, _ in found if role is not Role.HARMLESS} <= {check.slug}
        assert check.slug in {other.slug for other, _, _ in found}
        assert all(finding.evidence[0].source.startswith("patient.log:") for _, _, finding in found)

    def test_the_control_is_not(self, check: Check) -> None:
        """The near miss is left alone."""
        assert not findings(read(ROOT / "fixtures" / check.slug.replace("-", "_") / "control.log"), [check])

    def test_what_is_left_open_is_said(self, check: Check) -> None:
        """A symptom carries its doubt, and a cause carries none."""
        for name in ("patient.log", "control.log"):
            records = read(ROOT / "fixtures" / check.slug.replace("-", "_") / name)
            assert all((role is Role.SYMPTOM) == bool(finding.doubt) for _, role, finding in findings(records))


def table() -> list[tuple[str, list[str]]]:
    """Read the messages: after ``> slug`` its records, a line each, in which ⏎ stands for a line break."""
    cases = re.split(r"^> ", (ROOT / "tests" / "signs" / "model.txt").read_text(), flags=re.MULTILINE)[1:]
    return [(slug, [line.replace("⏎", "\n") for line in lines]) for slug, *lines in map(str.splitlines, cases)]


@pytest.mark.parametrize(("slug", "texts"), table())
def test_a_message_names_its_ailment(slug: str, texts: list[str]) -> None:
    """The wordings of all versions, with as much context as a log often has; near misses name nothing."""
    assert named(*texts) == ({slug} - {"nothing"})
