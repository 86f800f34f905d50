"""What ``ddpdoctor explain`` prints of checks: the pages of those that are named, or which speak of some words."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ddpdoctor.areas import AREAS
from ddpdoctor.declaration import CODE
from ddpdoctor.registry import find
from ddpdoctor.report.checks import INDENT, page_text
from ddpdoctor.suggest import did_you_mean, why_no_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddpdoctor.facets import Check
    from ddpdoctor.report.style import Style

SHOWN = 12  # checks that a search lists, unless all are asked for


BEGINS = b'{\n  "schema": "ddpdoctor-report/'
LARGEST = 1 << 28  # bytes: some 100,000 ranks


def is_sighting(path: str) -> bool:
    """Whether a file is a report with what was seen of a training."""
    try:
        with Path(path).open("rb") as file:
            return file.read(len(BEGINS)) == BEGINS and b'"kind": "ddpdoctor-stuck/' in file.read(LARGEST)
    except OSError:
        return False


def is_log(name: str) -> bool:
    """Whether a name is that of a file or folder, or ``-``."""
    return name == "-" or (bool(name) and Path(name).exists())


def said_of(checks: tuple[Check, ...], names: Sequence[str], style: Style, *, everything: bool) -> str:
    """Return the pages of the checks that are named; else which checks speak of these words.

    Raises:
        click.UsageError: nothing is known of one of them.
    """
    named = {name: find(checks, name) for name in names}
    pages = [page_text(check, style) for check in dict.fromkeys(named.values()) if check]
    unknown = [name for name, check in named.items() if check is None]
    if not unknown:
        return "\n\n".join(pages)
    if (
        not pages
        and not any(_is_path(name) or _is_code(name) or not name for name in names)
        and (found := matching(checks, names))
    ):
        return _listed(found, " ".join(names), style, everything=everything)
    raise click.UsageError(_why_unknown(unknown[0], checks))


def matching(checks: tuple[Check, ...], words: Sequence[str]) -> tuple[Check, ...]:
    """Return the checks that speak of all these words, or of longer ones that begin so; the closest first."""
    found = [(distance, check) for check in checks if (distance := _distance(check, words)) is not None]
    return tuple(check for _, check in sorted(found, key=lambda each: each[0]))


def _distance(check: Check, words: Sequence[str]) -> tuple[int, int] | None:
    """Return how far a check is from words: in which of its texts they stand, then how seldom."""
    area = next((area.title for area in AREAS if area.name == check.area), "")
    for place, text in enumerate((check.slug, check.title, f"{check.area} {area}", " ".join(check.page.split()))):
        counts = [len(re.findall(rf"(?<![a-z]){re.escape(word)}", text, re.IGNORECASE)) for word in words]
        if all(counts):
            return place, -sum(counts)
    return None


def _listed(found: tuple[Check, ...], words: str, style: Style, *, everything: bool) -> str:
    shown = found if everything else found[:SHOWN]
    lines = [*style.wrap(f"no log is called {words!r}; checks that speak of it:"), ""]
    for check in shown:
        lines += [f"{check.code}  {check.slug}", *style.wrap(check.title, INDENT)]
    if rest := len(found) - len(shown):
        lines.append(f"... {rest} more: ddpdoctor explain --all {words}")
    return "\n".join([*lines, "", f"the page of one: ddpdoctor explain {found[0].slug}"])


def _is_path(name: str) -> bool:
    return (os.sep in name or "." in name) and " " not in name


def _is_code(name: str) -> bool:
    return CODE.fullmatch(name.upper()) is not None


def _why_unknown(name: str, checks: tuple[Check, ...]) -> str:
    if _is_path(name):
        return why_no_file(name)
    if _is_code(name):
        return f"there is no check {name}; `ddpdoctor list` shows all"
    hint = did_you_mean(name, (check.slug for check in checks))
    return f"there is no log and no check {name}{hint or ', and no page has this word'}"
