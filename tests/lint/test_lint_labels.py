"""The labels of public repositories are whole, and are compared with findings as they say."""

from __future__ import annotations

from itertools import groupby

from helpers import CHECKS
from lint_labels import Label, compare, labels

from ddpdoctor.facets import Instrument


def test_labels_name_rules_of_lint_and_no_place_twice() -> None:
    """A code is that of a check with a lint facet; other words say what has no rule; certain or likely."""
    codes = {check.code for check in CHECKS if check.of(Instrument.LINT)}
    known = labels()

    assert len(known) == len({(each.repository, each.path, each.line, each.rule) for each in known})
    assert {each.rule for each in known if each.rule.startswith("DDP")} <= codes
    assert {each.confidence for each in known} == {"certain", "likely"}
    parts = [part for part, _ in groupby(each.part for each in known)]
    assert len(parts) == len(set(parts)), "a part stands in two places: is its name misspelt?"
    assert all(each.line > 0 and "/" in each.repository for each in known)


def test_a_finding_counts_for_the_nearest_label_of_its_rule_once() -> None:
    """A finding of another rule, another file or far away is none for the label."""
    first = Label("first", "a/b", "train.py", 10, "DDP604", "certain")
    second = Label("first", "a/b", "train.py", 12, "DDP604", "certain")
    told = [("train.py", 12, "DDP604"), ("train.py", 10, "DDP650"), ("other.py", 10, "DDP604")]

    right, missed, rest = compare([second, first], told)

    assert (right, missed) == ([second], [first])
    assert rest == told[1:]
