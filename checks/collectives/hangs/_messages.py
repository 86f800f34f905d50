"""Messages from rank to rank: what each names, and which ranks wait for one that does not come."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ddpdoctor.check import Communication, Position

POINT_TO_POINT = frozenset({"send", "recv"})
"""Operations that meet no one of the same number."""
BATCH = "batch_isend_irecv"
BY_HANDLE = "Work.wait of "
MESSAGES = POINT_TO_POINT | {BATCH, *(f"{BY_HANDLE}{each}" for each in (*POINT_TO_POINT, BATCH))}
"""What a rank waits in for a message, or for somebody to take one."""
PEER = re.compile(r" (?:to|from) (?P<peer>-?\d+)(?:, tag (?P<tag>\d+))?$")
FEWEST = 2  # messages in a row
ALL = 60  # communications of a rank: with fewer of them all that it made since its start are known


class Unsent(NamedTuple):
    """A rank that waits for a message, the rank that it names, and how many of them were received and sent before."""

    waits: Position
    other: Position
    received: int
    sent: int


def named_peer(call: Communication) -> tuple[int, int] | None:
    """Return the rank that a message goes to or comes from, and its tag."""
    found = PEER.search(call.shapes)
    return (int(found["peer"]), int(found["tag"] or 0)) if found else None


def begun(position: Position) -> Communication | None:
    """Return the call that a rank waits in, or for by its handle: the last one of that name, else the last one."""
    operation = position.operation.removeprefix(BY_HANDLE)
    calls = [each for each in position.recent if each.operation == operation] or [*position.recent]
    return calls[-1] if calls else None


def unsent(ranks: Sequence[Position]) -> Unsent | None:
    """Return a rank that waits for one message more than the other side, which is past its sends, has sent."""
    known = {each.rank: each for each in ranks if 0 < len(each.recent) < ALL}
    for waits in known.values():
        last = waits.recent[-1]
        told = named_peer(last) if last.operation == "recv" and waits.operation in MESSAGES else None
        other = known.get(told[0]) if told else None
        if told is None or other is None or other.operation in MESSAGES:
            continue
        took = [each for each in waits.recent if each.operation == "recv" and named_peer(each) == told]
        gave = [each for each in other.recent if each.operation == "send" and named_peer(each) == (waits.rank, told[1])]
        if len(gave) < len(took):
            return Unsent(waits, other, len(took) - 1, len(gave))
    return None


class Round(NamedTuple):
    """A rank that takes one message more in a row than another one has sent, which waits for the answer; both calls."""

    rank: int
    takes: Communication
    other: int
    gives: Communication
    sent: int


def one_more_in_a_row(ranks: Sequence[Position]) -> Round | None:
    """Return it, where a line has received several messages in a row, and another line has sent as many.

    Where both sides only began in the wrong order there are no such rows.
    """
    for one in ranks:
        for other in ranks:
            took, gave = _row(one.recent, "recv"), _row(other.recent[:-1], "send")
            if (
                one is other
                or len(took) <= FEWEST
                or len(gave) != len(took) - 1
                or other.recent[-1].operation != "recv"
            ):
                continue
            peers = named_peer(took[-1]), named_peer(gave[-1]), named_peer(other.recent[-1])
            if [each and each[0] for each in peers] == [other.rank, one.rank, one.rank]:
                return Round(one.rank, took[-1], other.rank, gave[-1], len(gave))
    return None


def _row(calls: Sequence[Communication], operation: str) -> list[Communication]:
    """Return the last calls of a rank that are of one line and one operation."""
    found: list[Communication] = []
    for each in reversed(calls):
        if each.operation != operation or each.site is None or (found and each.site != found[0].site):
            break
        found.append(each)
    return found


def unanswered(ranks: Sequence[Position]) -> Position | None:
    """Return the one rank that waits for a message, or to get rid of one, where all others wait in collectives.

    None where one of them is known to have been in a message with it: that can be under way.
    """
    found = [each for each in ranks if each.operation in MESSAGES]
    if len(found) != 1 or len(ranks) == 1:
        return None
    calls = (call for each in ranks if each is not found[0] for call in each.recent if call.operation in POINT_TO_POINT)
    return None if any((named_peer(call) or (-1,))[0] == found[0].rank for call in calls) else found[0]


def unanswered_by_handle(ranks: Sequence[Position]) -> list[Position]:
    """Return the several ranks that wait for messages which they began before, where another one is in a collective.

    One of them can wait for that rank, or they for each other.
    """
    found = [each for each in ranks if each.operation in MESSAGES]
    by_handle = all(each.operation.startswith(BY_HANDLE) for each in found)
    return found if by_handle and FEWEST <= len(found) < len(ranks) else []
