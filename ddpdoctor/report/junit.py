"""The report that continuous integration reads: JUnit XML, a suite for each area, a case for each check."""

from __future__ import annotations

import re
from itertools import groupby
from xml.etree import ElementTree as ET

from ddpdoctor.findings import Report, Result, Severity, Status
from ddpdoctor.report.text import result_text

ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # XML 1.0, section 2.2


def as_junit(report: Report, fail_on: Severity) -> str:
    """Return the report as XML text: findings below ``fail_on`` are output of a case that passed."""
    root = ET.Element("testsuites", name="ddpdoctor", time=f"{report.seconds:.3f}")
    for area, results in groupby(report.results, key=lambda result: result.area):
        _suite(root, area, list(results), fail_on)
    for fault in report.faults:
        suite = ET.SubElement(root, "testsuite", name="targets", tests="1", errors="1")
        case = ET.SubElement(suite, "testcase", name="target", classname="ddpdoctor.targets")
        ET.SubElement(case, "error", message=_clean(fault))
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _suite(root: ET.Element, area: str, results: list[Result], fail_on: Severity) -> None:
    cases = [_case(result, fail_on) for result in results]
    counts = {
        attribute: str(sum(case.find(tag) is not None for case in cases))
        for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped"))
    }
    suite = ET.SubElement(root, "testsuite", {"name": area, "tests": str(len(cases)), **counts})
    suite.extend(cases)


def _case(result: Result, fail_on: Severity) -> ET.Element:
    case = ET.Element(
        "testcase",
        name=f"{result.code} {result.slug}",
        classname=f"ddpdoctor.{result.area}",
        time=f"{result.seconds:.3f}",
    )
    text = _clean(result_text(result, verbose=True))
    if result.status is Status.NOT_RUN:
        ET.SubElement(case, "skipped", message=_clean(result.reason))
    elif result.status is Status.CRASHED:
        ET.SubElement(case, "error", message=_clean(result.reason))
    elif any(finding.severity is not None and finding.severity >= fail_on for finding in result.findings):
        messages = "; ".join(finding.message for finding in result.findings)
        ET.SubElement(case, "failure", message=_clean(messages)).text = text
    elif result.findings:
        ET.SubElement(case, "system-out").text = text
    return case


def _clean(text: str) -> str:
    return ILLEGAL.sub("?", text)
