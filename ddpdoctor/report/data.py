"""The report that programs read: JSON by the schema that lies beside this file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from ddpdoctor.findings import Finding, Report, Result, Severity, Status
from ddpdoctor.report.verdict import verdict

SCHEMA = "ddpdoctor-report/2"


def as_json(report: Report, fail_on: Severity, facts: Mapping[str, Any]) -> str:
    """Return the report as JSON text: ``facts`` is what was known of the host."""
    return json.dumps(as_dict(report, fail_on, facts), indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def as_dict(report: Report, fail_on: Severity, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the report as plain data, as schema.json describes it."""
    return {
        "schema": SCHEMA,
        "verdict": verdict(report),
        "exit_status": report.exit_status(fail_on),
        "fail_on": str(fail_on),
        "seconds": report.seconds,
        "counts": {
            **{str(level): sum(f.severity is level for f in report.findings()) for level in Severity},
            **{status.value: sum(r.status is status for r in report.results) for status in Status},
        },
        "faults": list(report.faults),
        "rehearsed": None if report.rehearsed is None else asdict(report.rehearsed),
        "hosts": None if report.hosts is None else plain(asdict(report.hosts)),
        "results": [_result(result) for result in report.results],
        "facts": plain(facts),
    }


def _result(result: Result) -> dict[str, Any]:
    return {
        "code": result.code,
        "slug": result.slug,
        "area": result.area,
        "title": result.title,
        "status": result.status.value,
        "reason": result.reason,
        "wants": result.wants or None,
        "seconds": result.seconds,
        "findings": [finding_data(finding) for finding in result.findings],
    }


def finding_data(finding: Finding) -> dict[str, Any]:
    """Return one finding as plain data."""
    place = {field.name: getattr(finding.place, field.name) for field in fields(finding.place)}
    return {
        "message": finding.message,
        "severity": str(finding.severity),
        "confidence": "certain" if finding.ambiguity is None else "undecided",
        "place": {name: value for name, value in place.items() if value is not None},
        "evidence": [asdict(evidence) for evidence in finding.evidence],
        "table": None if finding.table is None else plain(asdict(finding.table)),
        "fix": {"summary": finding.fix.summary, "command": finding.fix.command, "diff": finding.fix.diff},
        "ambiguity": None if finding.ambiguity is None else plain(asdict(finding.ambiguity)),
    }


def plain(value: Any) -> Any:
    """Return what JSON can hold: tuples as lists, what is no number as text."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, float) and value not in (value, float("inf"), float("-inf")):
        return str(value)
    if value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and abs(value) < float("inf")):
        return value
    return str(value)
