"""Whether a log was written on Windows."""

from __future__ import annotations

import re

from ddpdoctor.explain.records import Log, Record

WINDOWS = r"\b[A-Za-z]:\\+\w|\\site-packages\\"


def windows(record: Record, log: Log) -> re.Match[str] | None:
    """Find a path with a drive letter, in the record or anywhere in the log."""
    found = log.first(WINDOWS)
    return re.search(WINDOWS, record.text) or (found[1] if found else None)
