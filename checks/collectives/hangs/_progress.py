"""How far ranks had come when one of them was lost, by what the watch counted and recorded of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddpdoctor.check import PeerLost, Progress


def of_the_first_to_tell(event: PeerLost) -> Progress | None:
    """Return that of the rank that first said that it had lost another one; None where nobody did."""
    told = event.others[0].rank if event.others else None
    return next((each for each in event.progress if each.rank == told), None)


def last_number(rank: Progress, group: str) -> int:
    """Return the number of a rank's last communication in a group, as far as it is recorded; 0 where there is none."""
    return max((each.number for each in rank.recent if each.group == group), default=0)
