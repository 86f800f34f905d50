"""Who is where, in a table that people read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.report.style import PLAIN, Style, table_text
from ddpdoctor.report.text import printable
from ddpdoctor.watch.events import Doing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ddpdoctor.watch.events import Position

HEADERS = ("rank", "pid", "does", "where", "for")
MOST = 64  # ranks that are listed one by one


def ranks_text(positions: Iterable[Position], style: Style = PLAIN) -> str:
    """Return a line a rank."""
    rows = [
        (each.rank, each.pid or "-", _doing(each), _where(each), f"{each.seconds:.0f} s")
        for each in list(positions)[:MOST]
    ]
    return printable(table_text(HEADERS, rows, style.width))


def _doing(position: Position) -> str:
    return f"waits in {position.operation}" if position.doing is Doing.WAITING else position.doing.value


def _where(position: Position) -> str:
    inside = f" in {position.function}" if position.function and position.doing is not Doing.WAITING else ""
    return f"{Path(position.site.file).name}:{position.site.line}{inside}" if position.site else inside.strip() or "-"
