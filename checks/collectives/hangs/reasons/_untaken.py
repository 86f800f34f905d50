"""A message that a rank sends, and that the other side, which is past its receives, does not take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from .._messages import ALL, MESSAGES, begun, named_peer

if TYPE_CHECKING:
    from ddpdoctor.check import Position, Site


class Untaken(NamedTuple):
    """A rank that sends, the rank it names, how many were sent and taken, and where the last of these was."""

    sends: Position
    other: Position
    sent: int
    taken: int
    last: Site | None


def untaken(ranks: Sequence[Position]) -> Untaken | None:
    """Return it, where all that both ranks have called is known, by tag as well."""
    known = {each.rank: each for each in ranks if 0 < len(each.recent) < ALL}
    for sends in known.values():
        last = begun(sends) if sends.operation in MESSAGES else None
        told = named_peer(last) if last is not None and last.operation == "send" else None
        other = known.get(told[0]) if told else None
        if told is None or other is None or other.operation in MESSAGES:
            continue
        gave = [each for each in sends.recent if each.operation == "send" and named_peer(each) == told]
        took = [each for each in other.recent if each.operation == "recv" and named_peer(each) == (sends.rank, told[1])]
        anybodys = any(each.operation == "recv" and named_peer(each) is None for each in other.recent)
        if len(took) < len(gave) and not anybodys:
            return Untaken(sends, other, len(gave), len(took), took[-1].site if took else None)
    return None
