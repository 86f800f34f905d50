"""What people read of several hosts: who reaches whom, with hosts that are alike as one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.report.style import Style, table_text
from ddpdoctor.report.text import MARGIN, printable

if TYPE_CHECKING:
    from ddpdoctor.findings import Hosts

FEW = 6  # hosts that are shown one by one
GOOD = {"-", "ok"}
FULL = 256  # hosts all of whose links are tried
Cells = list[list[str]]


def hosts_text(hosts: Hosts, style: Style) -> Iterator[str]:
    """Yield the lines: how many came, and the matrix where somebody does not reach somebody."""
    cells = [[printable(str(cell)) for cell in row[1:]] for row in hosts.matrix.rows]
    good = len(cells) > 1 and all(cell in GOOD for row in cells for cell in row)
    by = f" ({hosts.tried})" if hosts.tried else ""
    came = f"{len(hosts.names)} of {hosts.expected} hosts {'met' if hosts.met else 'seen'}"
    yield from style.wrap(f"{came}{', and each reaches each other' + by if good else ''}.", MARGIN, "")
    if hosts.links > FULL * FULL and hosts.links_tried < hosts.links:
        yield from style.wrap(
            f"{hosts.links_tried:,} of {hosts.links:,} links between them were tried: what keeps one host from all "
            "others shows; one bad link between two sound hosts need not be among these. ddpdoctor check on the hosts "
            "of its two ends alone tries it.",
            MARGIN,
            "",
        )
    if len(cells) > 1 and not good:
        shown = tuple(str(each).removeprefix("to ") for each in hosts.matrix.headers[1:])
        yield from _matrix(shown, cells, style)


def _matrix(names: tuple[str, ...], cells: Cells, style: Style) -> list[str]:
    groups = alike(cells) if len(cells) > FEW else [[number] for number in range(len(cells))]
    labels = [
        printable(names[group[0]]) + (f" and {len(group) - 1} more" if len(group) > 1 else "") for group in groups
    ]
    rows = [
        [f"from {label}", *(cells[group[0]][_other(group[0], column)] for column in groups)]
        for label, group in zip(labels, groups, strict=True)
    ]
    return table_text(("", *(f"to {label}" for label in labels)), rows, style.width).splitlines()


def _other(number: int, group: list[int]) -> int:
    """Return a member of a group, another than this one where there is another."""
    return next((each for each in group if each != number), number)


def alike(cells: Cells) -> list[list[int]]:
    """Group the hosts that reach, and are reached by, all others in the same way."""
    groups: list[list[int]] = []
    for number in range(len(cells)):
        group = next((each for each in groups if _are_alike(cells, each, number)), None)
        if group is None:
            groups.append([number])
        else:
            group.append(number)
    return groups


def _are_alike(cells: Cells, group: list[int], host: int) -> bool:
    one = group[0]
    inner = cells[one][_other(one, [*group, host])]
    if any(cells[host][each] != inner or cells[each][host] != inner for each in group):
        return False
    return all(
        cells[one][each] == cells[host][each] and cells[each][one] == cells[each][host]
        for each in range(len(cells))
        if each != host and each not in group
    )
