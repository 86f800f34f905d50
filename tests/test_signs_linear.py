"""No line makes a sign's pattern take time that grows faster than the line."""

from __future__ import annotations

import time

import pytest

from ddpdoctor.check import Instrument, Pattern, Sign
from ddpdoctor.explain.needles import needles
from ddpdoctor.registry import load_checks

LENGTH = 100_000  # characters, five times what is read of a line; 3 s and more where the time grows with its square
LIMIT = 1.0  # seconds of this process; the slowest pattern takes 0.07
PIECES = ("1", " ", "a", "/", "[", "a.b ", "\n ")
SIGNS = [
    (check.slug, facet.subject)
    for check in load_checks()
    for facet in check.of(Instrument.SIGN)
    if isinstance(facet.subject, Sign)
]
PATTERNS = {pattern: slug for slug, sign in SIGNS for pattern in (sign.pattern, *sign.beside)}


@pytest.mark.parametrize("pattern", PATTERNS, ids=PATTERNS.values())
def test_a_pattern_takes_linear_time(pattern: Pattern) -> None:
    """Neither what the pattern begins with, said over and over, nor any other monotony makes it look back."""
    for piece in (*needles(pattern), *PIECES):
        line = (piece * (LENGTH // len(piece) + 1))[:LENGTH]
        started = time.process_time()
        pattern.search(line)
        assert time.process_time() - started < LIMIT, piece
