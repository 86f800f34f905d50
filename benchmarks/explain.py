"""Measures ``ddpdoctor explain``: how often the first answer on labelled logs is right; ``--misses`` lists the rest."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ddpdoctor.check import Check
from ddpdoctor.explain.answer import Answer, Confidence
from ddpdoctor.explain.engine import explain
from ddpdoctor.explain.sources import Origin
from ddpdoctor.registry import find, load_checks

CASES = Path(__file__).parents[1] / "fixtures" / "logs.jsonl"


@dataclass(frozen=True)
class Case:
    """A log whose cause is known: the label, and for an ambiguous one the others that it can be."""

    name: str
    log: str
    label: str
    others: tuple[str, ...]

    def is_right(self, answer: Answer) -> bool:
        """Say whether the answer names the label, or one of the others; undecidable where the label says so."""
        if answer.confidence is Confidence.UNDECIDABLE and self.label.endswith("-unspecified"):
            return True
        return answer.first is not None and bool(names(answer.first.check) & {self.label, *self.others})


def names(check: Check) -> set[str]:
    """Give all names of a check."""
    return {check.slug, *check.known_as}


def cases(path: Path) -> Iterator[Case]:
    """Read the labelled logs."""
    for line in path.read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        others = case.get("alt_labels", ()) if case["ambiguous"] else ()
        yield Case(case["id"], case["symptom_log"], case["cause_label"], tuple(others))


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=Path, default=CASES, help="labelled logs, a JSON object a line")
    parser.add_argument("--misses", action="store_true", help="list each wrong answer")
    options = parser.parse_args()
    checks = load_checks()
    every = list(cases(options.cases))
    right = 0
    for case in every:
        answer = explain([(Origin(case.name), [case.log.encode()])], checks)
        right += case.is_right(answer)
        if options.misses and not case.is_right(answer):
            known = "" if find(checks, case.label) else "  (no check has this name)"
            said = answer.first.check.slug if answer.first else "unknown" if answer.unknown else "nothing"
            print(f"{case.name:32} {case.label:40} answered {said}{known}")
    print(f"first answer right: {right} of {len(every)}, {100 * right / len(every):.1f} %")


if __name__ == "__main__":
    main()
