"""Numbers that a module keeps and updates in forward, step by step."""

from __future__ import annotations

from ddpdoctor.check import (
    Statistic,
    StepFingerprinted,
)

from ..._ledgers.sheets import differ
from ._held import Attribute
from ._statements import is_meter
from ._variables import made_of_many, meets_samples

Rows = dict[str, list[Statistic]]
Found = dict[str, tuple[list[Statistic], tuple[str, int] | None]]


def updated(steps: list[Rows], event: StepFingerprinted) -> Found:
    """Return what objects hold, and what updates it."""
    found: Found = {}
    for path in sorted(set.intersection(*(_apart(_of_objects(each)) for each in steps))):
        rows = [each[path] for each in steps]
        attribute = Attribute(path, rows[0][0].kind, (rows[0][0].file, event.site.file if event.site else ""))
        updated, replaced = attribute.written()
        if attribute.is_exchanged() or is_meter(rows[0][0].kind, attribute.classes):
            continue
        summed_up = bool(updated) and not replaced and _is_of_many(rows[0][0], attribute, event)
        kept = _stays(rows) and rows[0][0].named and not rows[0][0].broadcast
        if (kept or summed_up) and attribute.meets_samples():
            found[path] = rows[0], updated
    return found


def made(steps: list[Rows]) -> Found:
    """Return what variables hold, each what was made of many samples, and stays as it is."""
    common = set.intersection(*map(_apart, steps)) - _of_objects(steps[0]).keys()
    rows = {path: [each[path] for each in steps] for path in sorted(common) if steps[0][path][0].named}
    return {
        path: (row[0], None)
        for path, row in rows.items()
        if _stays(row) and made_of_many(row[0][0].file, path) and meets_samples(row[0][0].file, path)
    }


def weigh(steps: list[Rows]) -> Rows:
    """Return the variables, by their names, that stay as they are, and are not the same on all ranks."""
    common = set.intersection(*map(_apart, steps)) - _of_objects(steps[0]).keys()
    return {path: steps[0][path] for path in sorted(common) if _stays([each[path] for each in steps])}


def _of_objects(rows: Rows) -> Rows:
    return {path: row for path, row in rows.items() if row[0].kind}


def _stays(rows: list[list[Statistic]]) -> bool:
    return all(_prints(row) == _prints(rows[0]) for row in rows)


def _is_of_many(held: Statistic, attribute: Attribute, event: StepFingerprinted) -> bool:
    """Whether an attribute is made of many samples, and no state of each sample of a batch."""
    reduces = attribute.reduces()
    return reduces is True or (reduces is None and held.named and held.shape[:1] != (event.rows,))


def rows_of(ranks: dict[int, StepFingerprinted]) -> Rows:
    """Return the statistics that all ranks hold, by where they are."""
    told = [{each.path: each for each in step.statistics} for step in ranks.values()]
    return {
        path: [each[path] for each in told]
        for path in told[0]
        if all(path in each and _is_alike(each[path], told[0][path]) for each in told)
    }


def _is_alike(one: Statistic, other: Statistic) -> bool:
    return (one.kind, one.size) == (other.kind, other.size)


def _apart(rows: Rows) -> set[str]:
    return {path for path, row in rows.items() if differ(_prints(row))}


def _prints(row: list[Statistic]) -> list[tuple[float, ...] | None]:
    return [each.print for each in row]
