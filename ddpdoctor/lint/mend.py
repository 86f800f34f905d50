"""Applies the edits of findings to their files; each is tried first: afterwards the finding must be gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.lint.edits import applied, unified
from ddpdoctor.lint.reading import CannotReadError, decoded, read
from ddpdoctor.lint.run import lint_text

if TYPE_CHECKING:
    from ddpdoctor.lint.examine import Found
    from ddpdoctor.lint.run import Wanted

MOST_EDITS = 200  # of one file


def mended(found: Iterable[Found], wanted: Wanted) -> Iterator[tuple[str, str, str]]:
    """Yield each file that has findings with edits: its name, its text, and the text without those findings."""
    for name in dict.fromkeys(each.finding.place.file for each in found if each.finding.fix.edits):
        if name is None:
            continue
        try:
            data = read(Path(name))
            before = decoded(name, data)
        except CannotReadError:
            continue  # it was told when it was looked at
        if before.encode() == data and (after := _mended(name, before, wanted)) != before:
            yield name, before, after


def patch(found: Iterable[Found], wanted: Wanted) -> str:
    """Return what would be changed."""
    return "".join(unified(name, before, after) for name, before, after in mended(found, wanted))


def _mended(name: str, text: str, wanted: Wanted) -> str:
    """Return the text after all edits that do what they promise: less of this finding, and no other."""
    refused = set()
    found = lint_text(name, text.encode(), wanted).found
    for _ in range(MOST_EDITS):
        each = next(
            (f for f in found if f.finding.fix.edits and (f.check.code, f.finding.message) not in refused), None
        )
        if each is None:
            break
        changed = applied(text, each.finding.fix.edits)
        after = lint_text(name, changed.encode(), wanted)
        before_counts, counts = _counts(found), _counts(after.found)
        if not after.faults and counts[each.check.code] < before_counts[each.check.code] and not counts - before_counts:
            text, found = changed, after.found
        else:
            refused.add((each.check.code, each.finding.message))
    return text


def _counts(found: Iterable[Found]) -> Counter[str]:
    return Counter(each.check.code for each in found)
