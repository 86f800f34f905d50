"""Whether a log was written on Windows."""

from __future__ import annotations

import re

from ddpdoctor.check import Log, Record

WINDOWS = r"\\site-packages\\|\\Scripts\\|\\Users\\|\\envs\\|\bpython\.exe\b|\btorchrun\.exe\b"
DRIVE = re.compile(r"\b[A-Za-z]:\\+\w")


def windows(record: Record, log: Log) -> re.Match[str] | None:
    """Find a path of Windows, in the record or anywhere in the log."""
    found = log.first(WINDOWS)
    return DRIVE.search(record.text) or re.search(WINDOWS, record.text) or (found[1] if found else None)
