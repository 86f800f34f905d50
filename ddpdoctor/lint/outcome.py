"""What was found in one file, and its form in the cache and between processes: plain values, as JSON has them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddpdoctor.findings import Ambiguity, Edit, Evidence, Finding, Fix, Place, Severity, Table
from ddpdoctor.lint.examine import Found

if TYPE_CHECKING:
    from ddpdoctor.facets import Check


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was found in a file, before the user's choice of findings.

    ``useless`` are the comments that ignore nothing: their line, what is said of them, and the checks that they name.
    ``asked`` is what was asked of files that this one does not reach, with a digest of each answer: see ``Around``.
    """

    is_parsed: bool = False
    found: tuple[Found, ...] = ()
    faults: tuple[str, ...] = ()
    useless: tuple[tuple[int, str, frozenset[str]], ...] = ()
    crashes: tuple[str, ...] = ()
    asked: tuple[tuple[str, str, str], ...] = ()


def as_plain(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as lists, dicts, text and numbers."""
    return {
        "is_parsed": outcome.is_parsed,
        "found": [[each.check.code, dataclasses.asdict(each.finding)] for each in outcome.found],
        "faults": list(outcome.faults),
        "useless": [[line, text, sorted(names)] for line, text, names in outcome.useless],
        "crashes": list(outcome.crashes),
        "asked": [list(each) for each in outcome.asked],
    }


def from_plain(plain: Mapping[str, Any], checks: Mapping[str, Check]) -> Outcome:
    """Return the outcome that was made plain; ``checks`` are by their codes.

    Raises:
        KeyError, TypeError, ValueError: it is none.
    """
    return Outcome(
        bool(plain["is_parsed"]),
        tuple(Found(checks[code], _finding(each)) for code, each in plain["found"]),
        tuple(plain["faults"]),
        tuple((line, text, frozenset(names)) for line, text, names in plain["useless"]),
        tuple(plain["crashes"]),
        tuple((question, about, answer) for question, about, answer in plain["asked"]),
    )


def _finding(plain: Mapping[str, Any]) -> Finding:
    fix, table, ambiguity = plain["fix"], plain["table"], plain["ambiguity"]
    return Finding(
        plain["message"],
        tuple(Evidence(**each) for each in plain["evidence"]),
        Fix(fix["summary"], fix["command"], fix["diff"], tuple(Edit(**each) for each in fix["edits"])),
        Place(**plain["place"]),
        None if plain["severity"] is None else Severity(plain["severity"]),
        None if table is None else Table(tuple(table["headers"]), tuple(map(tuple, table["rows"]))),
        None if ambiguity is None else Ambiguity(tuple(ambiguity["causes"]), ambiguity["command"]),
    )
