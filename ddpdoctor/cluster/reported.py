"""Findings of other hosts: read from what they sent, and put beside those of this one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Set as AbstractSet
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ddpdoctor.cluster.host import LONGEST, ProtocolError
from ddpdoctor.findings import LEVELS, Ambiguity, Evidence, Finding, Fix, Place, Result, Status

if TYPE_CHECKING:
    from ddpdoctor.facets import Check

MOST = 200  # findings of one host
MOST_LINES = 10_000_000  # of a file
MOST_CAUSES = 16  # that remain, of a finding
HERE = re.compile(r"\bthis host\b")
"""What a host calls itself; in the report of another one it is that one."""


def as_data(results: Iterable[Result]) -> list[dict[str, Any]]:
    """Return the findings of a host as JSON holds them."""
    return [_data(result.code, finding) for result in results for finding in result.findings][:MOST]


def _data(code: str, finding: Finding) -> dict[str, Any]:
    place = finding.place
    return {
        "code": code,
        "message": finding.message[:LONGEST],
        "severity": str(finding.severity),
        "variable": (place.variable or "")[:LONGEST],
        "file": (place.file or "")[:LONGEST],
        "line": place.line or 0,
        "evidence": [[text[:LONGEST] for text in (e.seen, e.expected, e.source)] for e in finding.evidence[:8]],
        "fix": [finding.fix.summary[:LONGEST], finding.fix.command[:LONGEST], finding.fix.diff[:LONGEST]],
        "remains": _remaining(finding.ambiguity),
    }


def _remaining(ambiguity: Ambiguity | None) -> list[str]:
    """Return the command that tells the causes apart which remain, then these; nothing where one is certain."""
    if ambiguity is None:
        return []
    return [text[:LONGEST] for text in (ambiguity.command, *ambiguity.causes)][:MOST_CAUSES]


def with_reported(results: tuple[Result, ...], reported: Mapping[str, object], here: str) -> tuple[Result, ...]:
    """Add the findings of other hosts, by their names; ``here`` is the name of this one.

    What is known of a host already is not said twice, and what is the same on several is said once, of all of them.
    """
    every = list(results)
    for host, data in reported.items():
        for code, finding in _findings(host, data):
            every = [_with(result, finding, here) if result.code == code else result for result in every]
    return tuple(every)


def _with(result: Result, finding: Finding, here: str) -> Result:
    every = list(result.findings)
    if any(each.place.host and finding.place.host in _hosts(each, here) for each in every):
        return result
    alike = next((at for at, each in enumerate(every) if _said(each) == _said(finding)), None)
    if alike is None:
        every.append(_there(finding))
    else:
        both = ", ".join([*_hosts(every[alike], here), *_hosts(finding, here)])
        every[alike] = _there(replace(finding, place=replace(finding.place, host=both), table=every[alike].table))
    return replace(result, status=Status.FAILED, findings=tuple(every), reason="", wants="")


def without_effects(known: Mapping[Check, Result], here: str) -> dict[Check, Result]:
    """Leave out the findings about a host that are mere effects of another one about it."""
    blamed: dict[str, set[str]] = {}
    for check, result in known.items():
        about = {host for finding in result.findings for host in _hosts(finding, here)}
        for slug in check.supersedes:
            blamed.setdefault(slug, set()).update(about)
    return {check: _left(result, blamed.get(check.slug, set()), here) for check, result in known.items()}


def _left(result: Result, blamed: AbstractSet[str], here: str) -> Result:
    kept = tuple(each for each in result.findings if not {*_hosts(each, here)} <= blamed)
    if kept == result.findings:
        return result
    return replace(result, findings=kept, status=Status.FAILED if kept else Status.PASSED)


def _hosts(finding: Finding, here: str) -> list[str]:
    return (finding.place.host or here).split(", ")


def _said(finding: Finding) -> tuple[object, ...]:
    """Return what is the same where two hosts have the same fault."""
    host = finding.place.host
    alike = _said_with(finding, re.compile(rf"\b{re.escape(host)}\b"), "this host") if host else finding
    return alike.message, alike.evidence, alike.severity, replace(alike.place, host=None)


def _there(finding: Finding) -> Finding:
    """Return a finding that names its host where it said "this host", and on which hosts its commands mend it.

    The commands say that as far as they do not say it yet; of several hosts the first line says who they are.
    """
    finding = _named(finding)
    lines = finding.fix.command.splitlines()
    if any("#" in line or line.endswith("\\") or "<<" in line for line in lines):
        return finding
    command = "\n".join(f"{line}   # on {finding.place.host}" for line in lines)
    return replace(finding, fix=replace(finding.fix, command=command))


def _named(finding: Finding) -> Finding:
    host = finding.place.host or ""
    return _said_with(finding, HERE, host) if host and ", " not in host else finding


def _said_with(finding: Finding, name: re.Pattern[str], other: str) -> Finding:
    """Return a finding with another name in the place of one."""

    def said(text: str) -> str:
        return name.sub(lambda _: other, text)

    remains = finding.ambiguity
    return replace(
        finding,
        message=said(finding.message),
        evidence=tuple(replace(e, seen=said(e.seen), expected=said(e.expected)) for e in finding.evidence),
        fix=replace(finding.fix, summary=said(finding.fix.summary)),
        ambiguity=remains and replace(remains, causes=tuple(map(said, remains.causes))),
    )


def _findings(host: str, data: object) -> Iterable[tuple[str, Finding]]:
    if not isinstance(data, list):
        raise ProtocolError("findings are a list")
    for each in data[:MOST]:
        try:
            evidence = tuple(Evidence(*map(_text, seen)) for seen in each["evidence"])
            summary, command, diff = map(_text, each["fix"])
            file, line = _text(each.get("file", "")) or None, _line(each.get("line", 0))
            place = Place(file=file, line=line, variable=_text(each["variable"]) or None, host=host)
            said, severity = _text(each["message"]), LEVELS[each["severity"]]
            remains = [*map(_text, each.get("remains", [])[:MOST_CAUSES])]
            ambiguity = Ambiguity(tuple(remains[1:]), remains[0]) if remains else None
            fix = Fix(summary, command, diff)
            yield _text(each["code"]), Finding(said, evidence, fix, place, severity, ambiguity=ambiguity)
        except (AttributeError, KeyError, TypeError, ValueError) as exc:
            raise ProtocolError(f"no finding: {exc!r}") from None


def _line(value: object) -> int | None:
    if not isinstance(value, int) or not 0 <= value < MOST_LINES:
        raise ProtocolError("a line of a finding is no number")
    return value or None


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value) > LONGEST:
        raise ProtocolError("a part of a finding is no text")
    return value
