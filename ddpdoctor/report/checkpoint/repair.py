"""What a repair did to a checkpoint, or would do, as text and as data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tabulate import tabulate

from ddpdoctor.checkpoint import Renamed, Repair, subscript
from ddpdoctor.report.style import PLAIN, Style
from ddpdoctor.report.text import printable
from ddpdoctor.shell import shell_join


def repair_text(done: Repair, style: Style = PLAIN, *, table: bool) -> str:
    """Return what a repair did, or would do."""
    return "\n".join(_repair_lines(done, style, table=table))


def _repair_lines(done: Repair, style: Style, *, table: bool) -> Iterator[str]:
    if done.recovered:
        yield printable(f"{done.path}: a repair that was killed was taken back first")
    total = sum(each.total for each in done.state_dicts)
    if table:
        yield printable(f"{done.path}: {done.changed} of {total} keys would be renamed")
    elif not done.changed:
        copied = f"; {done.output} is a copy" if done.output != done.path else ""
        yield printable(f"{done.path}: no key gets another name{copied}")
    elif done.output != done.path:
        yield printable(f"{done.path} -> {done.output}: {done.changed} of {total} keys renamed")
    else:
        back = shell_join(("ddpdoctor", "repair", done.path, "--undo"), style.encoding)
        yield printable(f"{done.path}: {done.changed} of {total} keys renamed") + f" ({back} takes it back)"
    for each in done.state_dicts:
        yield from map(printable, _renamed_lines(each, table=table))


def _renamed_lines(each: Renamed, *, table: bool) -> Iterator[str]:
    where = subscript("ckpt", each.location)
    if each.renamed and not table:
        old, new = each.renamed[0]
        more = f" and {len(each.renamed) - 1} more" if len(each.renamed) > 1 else ""
        yield f"  {where}: {old} -> {new}{more}"
    if each.note:
        yield f"  {where}: {each.note}"
    if each.renamed and table:
        yield tabulate(each.renamed, headers=(where, "new"), disable_numparse=True)


def repair_data(done: Repair) -> dict[str, Any]:
    """Describe a repair for programs."""
    return {
        "path": done.path,
        "output": done.output,
        "changed": done.changed,
        "recovered": done.recovered,
        "state_dicts": [
            {
                "location": list(each.location),
                "total": each.total,
                "note": each.note,
                "renamed": [list(pair) for pair in each.renamed],
            }
            for each in done.state_dicts
        ],
    }
