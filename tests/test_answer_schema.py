"""The answers of ``ddpdoctor explain --format json`` obey the schema that lies beside the reporter."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from referencing import Registry, Resource

from ddpdoctor.explain.engine import Examination, examination
from ddpdoctor.explain.kept import Keeper
from ddpdoctor.explain.sources import Origin
from ddpdoctor.registry import load_checks
from ddpdoctor.report.answer_data import as_json

FIXTURES = Path(__file__).parents[1] / "fixtures"
PREPARED = examination(load_checks())  # once: it is what takes the time


def schema(name: str) -> dict[str, Any]:
    """Read one of the schemas that users install."""
    read: dict[str, Any] = json.loads((resources.files("ddpdoctor.report") / name).read_text())
    return read


REPORT, ANSWER = schema("schema.json"), schema("answer_schema.json")
VALIDATOR = jsonschema.Draft202012Validator(
    ANSWER, registry=Registry().with_resource(REPORT["$id"], Resource.from_contents(REPORT))
)


def answered(text: str) -> dict[str, Any]:
    """Give the JSON answer to a log, as a program reads it."""
    examined = Examination(PREPARED.signs, Keeper(PREPARED.keeper.finder))
    examined.read(Origin("train.log"), [text.encode()])
    data: dict[str, Any] = json.loads(as_json(examined.answer()))
    return data


@pytest.mark.parametrize("name", ["patient.log", "control.log"])
def test_the_answers_to_all_fixtures_obey_the_schema(name: str) -> None:
    """Causes, doubts, unknown errors and healthy logs: every answer is valid, and names its version."""
    logs = sorted(FIXTURES.glob(f"*/{name}"))

    assert logs
    for path in logs:
        data = answered(path.read_text(encoding="utf-8", errors="replace"))
        VALIDATOR.validate(data)
        assert data["schema"] == ANSWER["$id"]


def test_the_answers_to_the_labelled_logs_obey_the_schema() -> None:
    """So do those to excerpts of real logs."""
    for line in (FIXTURES / "logs.jsonl").read_text(encoding="utf-8").splitlines():
        VALIDATOR.validate(answered(json.loads(line)["symptom_log"]))


def test_an_unknown_error_and_none_obey_the_schema() -> None:
    """An error that no check knows, and an empty log."""
    unknown = answered('Traceback (most recent call last):\n  File "a.py", line 3, in f\n    g()\nZeroError: no g\n')

    VALIDATOR.validate(unknown)
    assert unknown["unknown"]["frames"] == ["a.py:3, f"]
    VALIDATOR.validate(answered(""))


def test_the_schema_refuses_what_is_no_answer() -> None:
    """A field that is missing, one that nobody declared, and a finding of another shape."""
    good = answered("ValueError: sampler option is mutually exclusive with shuffle\n")
    VALIDATOR.validate(good)
    wrong = (
        {name: value for name, value in good.items() if name != "confidence"},
        {**good, "more": 1},
        {**good, "first": {**good["first"], "finding": {**good["first"]["finding"], "fix": None}}},
    )

    for data in wrong:
        with pytest.raises(jsonschema.ValidationError):
            VALIDATOR.validate(data)
