"""Who is where, in a table that people read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.report.style import PLAIN, Style, table_text
from ddpdoctor.report.text import printable
from ddpdoctor.watch.events import Doing

if TYPE_CHECKING:
    from ddpdoctor.stuck.told.sighting import Sighted, Sighting
    from ddpdoctor.watch.events import Position

MOST = 32  # ranks that are listed one by one


def ranks_text(sighting: Sighting, style: Style = PLAIN) -> str:
    """Return a line a rank; of many, those first that do what few do."""
    doings = [(each.position.doing, each.position.site) for each in sighting.ranks]
    rare = sorted(sighting.ranks, key=lambda each: doings.count((each.position.doing, each.position.site)))
    shown = sorted(rare[:MOST], key=lambda each: each.position.rank)
    several = len(sighting.hosts) > 1
    headers = ("rank", *(["host"] if several else []), "pid", "does", "for", "where")
    rows = [(each.position.rank, *([each.host] if several else []), *_cells(each)) for each in shown]
    more = f"\n... {len(sighting.ranks) - MOST} more ranks" if len(sighting.ranks) > MOST else ""
    return printable(table_text(headers, rows, style.width) + more)


def _cells(each: Sighted) -> tuple[str, str, str, str]:
    position = each.position
    waits = position.doing is Doing.WAITING
    at = f"{Path(position.site.file).name}:{position.site.line}" if position.site else ""
    inside = f"inside {position.function}" if position.function and not waits else ""
    place = ", ".join(filter(None, (at, inside, by_worker(position), each.moved, str(each.use or ""))))
    disk = position.doing is Doing.WORKING and position.awaited is not None
    does = f"waits in {position.operation}" if waits else "waits for a disk" if disk else position.doing.value
    return str(position.pid or "-"), does, f"{position.seconds:.0f} s", place or "-"


def by_worker(position: Position) -> str:
    """Return at which line a worker of its loader is that a rank waits for, where that is at work; empty elsewhere."""
    first = next((each for each in position.workers if each.site is not None), None)
    if position.doing is not Doing.WORKING or first is None or first.site is None:
        return ""
    return f"its worker process {first.pid} at {Path(first.site.file).name}:{first.site.line}"


def where(position: Position, does: str = "") -> str:
    """Return in words what a rank does, unless it is given, and at which line."""
    at = f" at {Path(position.site.file).name}:{position.site.line}" if position.site else ""
    return f"{does or SAID[position.doing]}{at}"


SAID = {
    Doing.WORKING: "is at work",
    Doing.ASKING: "asks for something again and again",
}
