"""When a line was written, in the forms in which programs and launchers say it."""

from __future__ import annotations

import re
import time
from calendar import monthrange, timegm
from dataclasses import dataclass

MONTHS = {name: number for number, name in enumerate("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(), 1)}
HOUR = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?"
ZONE = r"(?:[ ]?(?P<zone>Z|UTC|[+-]\d\d:?\d\d)(?![\d:]))?"
NAMED = r"(?P<month_name>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[ ]+(?P<day>\d{1,2})[ ]"
PREFIXES = tuple(
    re.compile(pattern)
    for pattern in (
        rf"[\[(]?(?P<year>\d{{4}})[-/](?P<month>\d\d)[-/](?P<day>\d\d)[ T_]{HOUR}{ZONE}[\])]?(?:[ ]*[|:-](?=[ ]))?[ ]?",
        rf"\[?(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[ ])?{NAMED}{HOUR}(?:[ ](?P<year>\d{{4}}))?\]?(?::(?=[ ]))?[ ]?",
    )
)
# glog's, which torch prints: level, month and day, no year; the rest of the line is the program's.
GLOG = re.compile(rf"\[?[IWEF](?P<month>\d\d)(?P<day>\d\d)[ ]{HOUR}")
YEAR = 2000  # of those who name none, until another line of the log does; it has all days
LEAP = 8  # years at most from a February 29 to the nearest other one


@dataclass(frozen=True, slots=True)
class Moment:
    """Seconds since the epoch, in UTC where the line names no zone; ``year`` is None where it names no year."""

    seconds: float
    year: int | None = None
    zoned: bool = False
    """The line names a zone."""


def find_moment(text: str) -> tuple[Moment, int] | None:
    """Return the time that a line begins with, and where what it says begins: 0 where the time is a part of that."""
    if text[:1] not in "[(0123456789IWEFMTSJADNO":
        return None
    for prefix in PREFIXES:
        if (match := prefix.match(text)) and (moment := _moment(match)):
            return moment, match.end()
    if (match := GLOG.match(text)) and (moment := _moment(match)):
        return moment, 0
    return None


def is_dated(seconds: float) -> bool:
    """Whether the line that a time is from named a year."""
    return time.gmtime(seconds).tm_year != YEAR


def nearest(seconds: float, near: float) -> float:
    """Return a time of no year in that year in which it comes nearest to another time."""
    _, month, day, *rest = time.gmtime(seconds)[:6]
    around = time.gmtime(near).tm_year
    years = (year for year in range(max(1, around - LEAP), around + LEAP + 1) if day <= monthrange(year, month)[1])
    return min((timegm((year, month, day, *rest)) + seconds % 1 for year in years), key=lambda each: abs(each - near))


def _moment(match: re.Match[str]) -> Moment | None:
    """Turn the named parts into seconds; None for what is no date."""
    parts = match.groupdict()
    month = MONTHS[parts["month_name"]] if parts.get("month_name") else int(parts["month"])
    year = int(parts["year"]) if parts.get("year") else None
    day, hour, minute, second = (int(parts[name]) for name in ("day", "hour", "minute", "second"))
    if not (1 <= month <= 12 and hour < 24 and minute < 60 and second <= 60):  # noqa: PLR2004
        return None
    if year == 0 or not 1 <= day <= monthrange(year or YEAR, month)[1]:
        return None
    seconds = timegm((year or YEAR, month, day, hour, minute, second)) + float(f"0.{parts['fraction'] or 0}")
    zone = parts.get("zone")
    return Moment(seconds - _offset(zone), year, zone is not None)


def _offset(zone: str | None) -> int:
    if zone is None or zone[0] not in "+-":
        return 0
    digits = zone[1:].replace(":", "")
    seconds = int(digits[:2]) * 3600 + int(digits[2:]) * 60
    return -seconds if zone[0] == "-" else seconds
