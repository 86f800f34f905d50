"""What holds for every pattern that a check declares for logs: it is found by fixed text, and costs linear time."""

from __future__ import annotations

import re
import time

import pytest
from helpers import LOGGED

from ddpdoctor.facets import Instrument, LogPattern, Pattern
from ddpdoctor.literals import literals

LENGTH = 100_000  # characters, five times what is read of a line; 3 s and more where the time grows with its square
LIMIT = 1.0  # seconds of this process; the slowest pattern takes 0.07
PIECES = (
    "1", " ", "a", "/", "[", "x.", "a.b ", "\n ", "rank 1 ", "RANK=1 ", "(errno: 9", "torchrun train.py --rank ",
    "socket has failed to listen ",
)  # fmt: skip
SUBJECTS = [
    (check.slug, facet.subject)
    for check in LOGGED
    for facet in check.of(Instrument.LOG)
    if isinstance(facet.subject, LogPattern)
]
PATTERNS = {pattern: slug for slug, subject in SUBJECTS for pattern in (subject.pattern, *subject.context)}


@pytest.mark.parametrize("pattern", PATTERNS, ids=PATTERNS.values())
def test_a_pattern_takes_linear_time(pattern: Pattern) -> None:
    """Neither what the pattern begins with, said over and over, nor any other monotony makes it look back."""
    begin = re.split(r"[\\()\[|{?*+]", pattern.pattern.lstrip("(?:\\b'"), maxsplit=1)[0] or "x"
    for piece in {*literals(pattern.pattern), *PIECES, begin}:
        line = (piece * (LENGTH // len(piece) + 1))[:LENGTH]
        started = time.process_time()
        pattern.search(line)
        assert time.process_time() - started < LIMIT, piece


@pytest.mark.parametrize("pattern", PATTERNS, ids=PATTERNS.values())
def test_a_pattern_is_announced_by_fixed_text(pattern: Pattern) -> None:
    """A gigabyte of log is searched for fixed text first, so each pattern has some that not every line holds."""
    is_own = any(pattern == subject.pattern for _, subject in SUBJECTS)
    shortest = 5 if is_own else 4  # what only a check's own lines are looked through for is less of a burden

    assert min(map(len, literals(pattern.pattern)), default=0) >= shortest
