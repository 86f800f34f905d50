"""What the output of a command that failed says of it, where its ranks told the watch nothing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ddpdoctor.logs.examination import quick_examination
from ddpdoctor.logs.read.sources import Origin

if TYPE_CHECKING:
    from ddpdoctor.logs.answer import Answer

WORD = re.compile(r"\w")


def answer_of(lines: list[str]) -> Answer:
    """Return what all checks say of an output."""
    examined = quick_examination()
    examined.read(Origin("its output"), ["\n".join(lines).encode()])
    return examined.answer()


def said_by(lines: list[str]) -> str:
    """Return what a check says of an output, else the error that none knows, else its last words."""
    answer = answer_of(lines)
    if (cause := answer.cause) is not None:
        return f"{cause.finding.message} ({cause.check.code} {cause.check.slug})"
    last = next((line.strip() for line in reversed(lines) if WORD.search(line)), "it printed nothing")
    return answer.unknown.record.proof().seen if answer.unknown else last
