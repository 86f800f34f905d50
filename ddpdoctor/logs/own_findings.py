"""What ddpdoctor itself has said in a log: findings of ``run``, ``check`` and ``stuck``, as they print them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpdoctor.facets import Pattern
from ddpdoctor.findings import LEVELS, Severity
from ddpdoctor.logs.answer import Own

if TYPE_CHECKING:
    from ddpdoctor.logs.record_buffer import MatchedLog

FINDING = Pattern(r"^(?:ddpdoctor: )?(error|warning|note) (DDP\d{3,4}) ([a-z0-9]+(?:-[a-z0-9]+)+): ")
BEGUN = Pattern(r"\bWatched \d+ ranks?, [1-9]\d* steps?\b")
"""What ``run`` says at the end of a training that got going: notes of a slow start are none of its end."""
OWN = {FINDING: frozenset({" DDP"}), BEGUN: frozenset({"Watched "})}
"""The patterns, and the rarest literal text of each."""


def own_findings(kept: MatchedLog) -> tuple[Own, ...]:
    """Return what ddpdoctor has found, each once for each log, the gravest first.

    Where the ranks trained afterwards, nobody waits for them any more.
    """
    begun = {record.source for record, _ in kept.log.find(BEGUN.pattern)}
    found: dict[tuple[str, str, str], Own] = {}
    for record, match in kept.log.find(FINDING.pattern):
        level, code, slug = match.groups()
        late = record.source in begun and (level == "note" or code == JOINING)
        elsewhere = len(kept.lengths) > 1 and ABSENT in record.text  # the hosts' lines are compared by that check
        if not (late or elsewhere):
            own = Own(LEVELS[level], code, slug, record)
            found.setdefault((record.source, code, record.text), own)
    return tuple(sorted(found.values(), key=lambda each: -each.severity))


ABSENT = "did not come to init_process_group"
JOINING = "DDP363"
"""Who has not come to init_process_group within so many seconds: they can come later."""


def is_fault(own: Own) -> bool:
    """Whether it is more than a note."""
    return own.severity > Severity.NOTE


def is_hang(own: Own) -> bool:
    """Whether the watch tells why ranks wait, or are lost: what they print when the job is ended follows from it."""
    return own.severity is Severity.ERROR and own.code.startswith("DDP7")
