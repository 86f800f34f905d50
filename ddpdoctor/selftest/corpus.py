"""The corpus: logs of others and in other words, each with what must be said of it.

A case begins with a line ``> LABEL | LABEL, FLAG``. Lines that begin with ``>`` below it tell where the log comes from
(the report, the setting, what the cause turned out to be); then follows the log, as it was printed.

A label is the slug of the check that must come first; ``nothing`` where no check says anything and no error stands;
``unknown ERROR`` for an error that no check knows; ``undecidable`` where any answer that lists several causes is right.
Of several labels any is right. The flag ``alone`` demands that nothing else is named, ``undecidable`` that the answer
lists several causes; ``missed`` marks a label that is right and an answer that is not.
"""

from __future__ import annotations

import importlib.resources
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.logs.answer import Confidence

if TYPE_CHECKING:
    from ddpdoctor.logs.answer import Answer

NOTHING, UNDECIDABLE, ALONE, MISSED = "nothing", "undecidable", "alone", "missed"


@dataclass(frozen=True, slots=True)
class Case:
    """A log and what must be said of it; ``name`` is its file and line, ``about`` where it comes from."""

    name: str
    labels: frozenset[str]
    flags: frozenset[str]
    about: tuple[str, ...]
    log: str

    def is_right(self, answer: Answer) -> bool:
        """Whether this is one of the answers that the labels and flags allow."""
        undecidable = answer.confidence is Confidence.UNDECIDABLE
        said = {first_word(answer), UNDECIDABLE} if undecidable else {first_word(answer)}
        if UNDECIDABLE in self.flags and not undecidable:
            return False
        if ALONE in self.flags and len(answer.named) + (answer.unknown is not None) != 1:
            return False
        return bool(self.labels & said)


def first_word(answer: Answer) -> str:
    """Return what the answer begins with, as a label."""
    if answer.first:
        return answer.first.check.slug
    if answer.unknown:
        return f"unknown {answer.unknown.record.error}"
    return answer.named[0].check.slug if answer.named else NOTHING


def corpus() -> tuple[Case, ...]:
    """Return all cases that lie in the folder ``corpus`` of the fixtures."""
    folder = Path(str(importlib.resources.files("ddpdoctor.fixtures"))) / "corpus"
    return tuple(case for path in sorted(folder.glob("*.txt")) for case in cases(path))


def cases(path: Path) -> Iterator[Case]:
    """Read the cases of a file."""
    line = 1
    for text in re.split(r"\n\n(?=> )", path.read_text(encoding="utf-8")):
        lines = text.split("\n")
        header = [each[2:] for each in itertools.takewhile(lambda each: each.startswith("> "), lines)]
        labels, *flags = header[0].split(", ")
        log = "\n".join(lines[len(header) :]).rstrip("\n") + "\n"
        yield Case(f"{path.stem}:{line}", frozenset(labels.split(" | ")), frozenset(flags), tuple(header[1:]), log)
        line += len(lines) + 1
