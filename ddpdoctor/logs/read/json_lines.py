"""Logs whose lines are JSON: the text inside is what the program said (Docker, GCP, CloudWatch, structlog, loguru)."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass

from ddpdoctor.logs.read.clock import Moment, find_moment

# The text, as whoever collects logs calls it, and what some add to it; each value can be several lines.
TEXTS = ("message", "msg", "event", "log", "textPayload", "MESSAGE", "@message", "body")
ERRORS = ("exception", "exc_info", "exc_text", "traceback", "stack_trace", "stacktrace", "error.stack_trace")
INNER = ("jsonPayload", "record", "error", "data", "fields")
LEVELS = ("level", "levelname", "log.level")  # not "severity": of what is on stderr, GCP says ERROR
LOGGED = {"WARN", "WARNING", "ERROR", "CRITICAL"}
TIMES = ("timestamp", "time", "@timestamp", "asctime", "ts", "@t")
NODES = ("hostname", "host", "pod_name", "pod", "node")
RANKS = ("rank", "global_rank", "RANK")
LATEST = 4e9  # seconds since the epoch; a number above it counts milliseconds
# An array that is printed with a field in each line, as `gcloud` and `aws` do.
FIELD = re.compile(r'\s+"(?P<name>[\w@.]+)": (?P<value>"(?:[^"\\]|\\.)*"),?$')
STRUCTURE = re.compile(r'\s*(?:[\[{}\]]+,?|"[\w@./-]+": .*|\{"[\w@]+": \[)$')


@dataclass(frozen=True, slots=True)
class Said:
    """What a JSON line says: its text, and by whom and when, where other fields tell."""

    texts: tuple[str, ...]
    rank: int | None = None
    node: str | None = None
    moment: Moment | None = None
    is_logged: bool = False


def said_in(text: str) -> Said | None:
    """Return what an object of one line says; None for any other text, and for numbers alone."""
    if not text.startswith('{"') or not text.endswith("}"):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    texts = tuple(line for value in _values(found) for line in value.rstrip().splitlines() or [""])
    is_logged = any(str(found[key]).upper() in LOGGED for key in LEVELS if key in found)
    return Said(texts, _rank(found), _node(found), _moment(found), is_logged) if texts else None


def said_in_field(text: str) -> Said | None:
    """Return what a line of an array says that holds a field; a line that is only a part of the array says nothing."""
    match = FIELD.match(text)
    if match and match["name"] in TEXTS:
        try:
            return Said(tuple(json.loads(match["value"]).rstrip().splitlines() or [""]))
        except ValueError:
            return None
    return None


def is_structure(text: str) -> bool:
    """Whether a line of such an array holds no text of a program."""
    return STRUCTURE.match(text) is not None


def _values(found: object) -> Iterator[str]:
    if not isinstance(found, dict):
        return
    if isinstance(found.get("record"), dict) and isinstance(found.get("text"), str):
        yield found["text"]  # loguru's; any other text can be a sample of the training's
        return
    yield from (found[key] for key in TEXTS if isinstance(found.get(key), str))
    yield from (found[key] for key in ERRORS if isinstance(found.get(key), str))
    for key in INNER:
        yield from _values(found.get(key))


def _rank(found: dict[str, object]) -> int | None:
    for key in RANKS:
        value = found.get(key)
        if isinstance(value, (int, str)) and re.fullmatch(r"[0-9]{1,6}", str(value)):
            return int(value)
    return None


def _node(found: dict[str, object]) -> str | None:
    kubernetes, resource = found.get("kubernetes"), found.get("resource")
    labels = resource.get("labels") if isinstance(resource, dict) else None
    for each in (found, kubernetes, labels):
        if isinstance(each, dict):
            for key in NODES:
                if isinstance(value := each.get(key), str):
                    return value
    return None


def _moment(found: dict[str, object]) -> Moment | None:
    for key in TIMES:
        value = found.get(key)
        if isinstance(value, str) and (told := find_moment(value)):
            return told[0]
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
            seconds = value / 1000 if value > LATEST else float(value)
            return Moment(seconds, time.gmtime(seconds).tm_year, zoned=True) if seconds < LATEST else None
    return None
