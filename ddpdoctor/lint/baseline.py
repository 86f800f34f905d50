"""What a project knows of already: findings that are not told again until their line changes."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ddpdoctor.facets import BadTarget

if TYPE_CHECKING:
    from pathlib import Path

    from ddpdoctor.lint.examine import Found

FORM = "ddpdoctor-baseline/1"


def as_baseline(found: Iterable[Found], base: Path) -> str:
    """Return the text of a baseline file of these findings; paths are seen from its folder."""
    known = Counter(_entry(each, base) for each in found)
    entries = [
        {"check": check, "file": file, "line": line, "count": count}
        for (check, file, line), count in sorted(known.items())
    ]
    return json.dumps({"form": FORM, "findings": entries}, indent=1, ensure_ascii=False) + "\n"


def without_known(found: Iterable[Found], baseline: Path) -> tuple[tuple[Found, ...], int]:
    """Return the findings that the file does not have, and how many of its own are gone.

    Raises:
        BadTarget: the file cannot be read, or is no baseline.
    """
    left = _read(baseline)
    fresh = []
    for each in found:
        entry = _entry(each, baseline.parent)
        if left[entry] > 0:
            left[entry] -= 1
        else:
            fresh.append(each)
    return tuple(fresh), left.total()


def _entry(found: Found, base: Path) -> tuple[str, str, str]:
    """Return what a finding is known by: not by the number of its line, which changes with lines above it."""
    file = os.path.relpath(found.finding.place.file or "", base).replace(os.sep, "/")
    return found.check.code, file, found.finding.evidence[0].seen


def _read(path: Path) -> Counter[tuple[str, str, str]]:
    try:
        match json.loads(path.read_text(encoding="utf-8")):
            case {"form": str(form), "findings": [*known]} if form == FORM:
                return Counter({(each["check"], each["file"], each["line"]): int(each["count"]) for each in known})
    except OSError as exc:
        raise BadTarget(f"{path}: cannot be read: {exc.strerror}") from None
    except (ValueError, KeyError, TypeError):
        pass  # told below
    raise BadTarget(f"{path} is no baseline: ddpdoctor lint --write-baseline {path} writes one")
