"""Plans a repair: which names the keys of each state dict of a checkpoint get."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ddpdoctor.checkpoint.distributed import Metadata
from ddpdoctor.checkpoint.rename.fit import NoMatch, fitted, in_the_way
from ddpdoctor.checkpoint.rename.plan import Renamed, names_of, renamed
from ddpdoctor.checkpoint.rename.rules import Rules, new_names
from ddpdoctor.facets import BadTarget

if TYPE_CHECKING:
    from ddpdoctor.checkpoint.contents import StateDict
    from ddpdoctor.checkpoint.reader import Opened


def planned(source: Opened, how: Rules, wanted: tuple[StateDict, ...]) -> tuple[Renamed, ...]:
    """Return what happens to each state dict.

    Raises:
        BadTarget: two keys would get one name, or a key none.
        NoMatch: no renaming makes the keys those that are wanted.
    """
    state_dicts = source.file.state_dicts
    try:
        if wanted:
            return _like(state_dicts, wanted)
        plan = tuple(renamed(each, names_of(each), *new_names(each, names_of(each), how)) for each in state_dicts)
        return tuple(_with_optimizer(each, source) for each in plan)
    except BadTarget as exc:
        raise type(exc)(f"{source.file.path}: {exc}") from None


def _with_optimizer(each: Renamed, source: Opened) -> Renamed:
    """Note the optimizer that a distributed checkpoint keeps by the old names, which stand in the ranks' files, too."""
    if isinstance(source.inside, Metadata) and each.renamed:
        old = {name for name, _ in each.renamed}
        ways = (way for way in source.inside.ways.values() if way[:-1] != each.location)
        if any(part in old for way in ways for part in way):
            note = "the optimizer's state keeps the old names, which stand in the ranks' own files, too"
            return replace(each, note="; ".join(filter(None, (each.note, note))))
    return each


def _like(state_dicts: Sequence[StateDict], wanted: Sequence[StateDict]) -> tuple[Renamed, ...]:
    """Return each state dict the names of the one that it fits: that of the same place, if it does."""
    plan, reasons = [], []
    for each in state_dicts:
        others = sorted(wanted, key=lambda other: other.location != each.location)
        found = [(other, fitted(each, other)) for other in others]
        new = next((fit for _, fit in found if isinstance(fit, list)), None)
        if new is None:
            reasons += [in_the_way(each, other, fit) for other, fit in found if not isinstance(fit, list)][:1]
        names = names_of(each)
        note = "" if new else "left alone: its tensors are not those that are wanted"
        plan.append(renamed(each, names, new or list(names), note))
    if len(reasons) == len(plan):
        raise NoMatch(f"no renaming makes the keys equal: {reasons[0]}")
    return tuple(plan)
