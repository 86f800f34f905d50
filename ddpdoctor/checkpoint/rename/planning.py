"""Plans a repair: which names the keys of each state dict of a checkpoint get."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ddpdoctor.checkpoint.contents import Location, StateDict, subscript
from ddpdoctor.checkpoint.formats.distributed import Metadata
from ddpdoctor.checkpoint.keys import assumed_strip
from ddpdoctor.checkpoint.places import at_places, offered
from ddpdoctor.checkpoint.rename.fit import FEW, NoMatch, fitted, in_the_way
from ddpdoctor.checkpoint.rename.optimizers import left_behind
from ddpdoctor.checkpoint.rename.plan import Renamed, names_of, renamed
from ddpdoctor.checkpoint.rename.rules import Rules, marked, new_names, why_left_alone
from ddpdoctor.facets import BadTarget

if TYPE_CHECKING:
    from ddpdoctor.checkpoint.reader import Opened

COUNTS = re.compile(r"(?:global_?|num_?|best_?)*(?:step|epoch|iter|iteration|update|best|loss|acc|accuracy|score|lr)s?")
"""Names of numbers that trainings keep."""


def planned(
    source: Opened, how: Rules, wanted: tuple[StateDict, ...] = (), at: Iterable[str] = ()
) -> tuple[Renamed, ...]:
    """Return what happens to each state dict; ``at`` names those that are meant.

    Raises:
        BadTarget: two keys would get one name, or a key none; or it is not clear what is meant.
        NoMatch: no renaming makes the keys those that are wanted.
    """
    state_dicts = source.file.state_dicts
    try:
        chosen = _chosen(state_dicts, how, at, any_number=bool(wanted))
        plan = _like(chosen, wanted) if wanted else _by_rules(chosen, how)
        return tuple(_noted(plan.get(each.location) or _kept(each), each, source) for each in state_dicts)
    except BadTarget as exc:
        raise type(exc)(f"{source.file.path}: {exc}") from None


def why_refused(state_dict: StateDict) -> str:
    """Return why a repair that is told nothing more refuses a state dict; empty where it does not."""
    keys, strip = state_dict.keys, assumed_strip(state_dict.keys)
    if not strip.inside and not state_dict.others:
        has_front = bool(strip.front) and min(keys) != str(strip)  # which would leave no name
        if has_front or not (strip.front or marked(keys)):
            return ""  # a front that all keys have, or none: no two become one
    names, how = names_of(state_dict), Rules()
    try:
        if not why_left_alone(state_dict, how):
            renamed(state_dict, names, *new_names(state_dict, names, how))
    except BadTarget as exc:
        return str(exc)
    return ""


def _chosen(
    state_dicts: Sequence[StateDict], how: Rules, at: Iterable[str], *, any_number: bool
) -> Sequence[StateDict]:
    """Return those that the user means: all, unless the rules change any keys whatever."""
    if places := tuple(at):
        return at_places(state_dicts, places)
    if any_number or not how.for_one:
        return state_dicts
    able = [each for each in state_dicts if not why_left_alone(each, how)] or state_dicts
    if len(able) > 1:
        raise BadTarget(f"it holds {len(able)} state dicts; name those that are meant: {offered(able)}")
    return able


def _by_rules(chosen: Sequence[StateDict], how: Rules) -> dict[Location, Renamed]:
    left = {each.location: reason for each in chosen if (reason := why_left_alone(each, how))}
    if len(left) == len(chosen):
        location, reason = next(iter(left.items()))
        raise BadTarget(f"{subscript('ckpt', location)} is left alone: {reason}")
    plan = {}
    for each in chosen:
        if each.location in left:
            plan[each.location] = _kept(each, f"left alone: {left[each.location]}")
        else:
            names = names_of(each)
            plan[each.location] = renamed(each, names, *new_names(each, names, how))
    return plan


def _kept(state_dict: StateDict, note: str = "") -> Renamed:
    return Renamed(state_dict.location, (), len(names_of(state_dict)), note)


def _noted(each: Renamed, state_dict: StateDict, source: Opened) -> Renamed:
    """Note what keeps its name though keys beside it get another one."""
    if not each.renamed:
        return each
    said = [
        each.note,
        *_without_layer(state_dict),
        *_perhaps_beside(each, state_dict),
        *left_behind(source.file, each),
        *_distributed(each, source),
    ]
    return replace(each, note="; ".join(filter(None, said)))


def _without_layer(state_dict: StateDict) -> Iterator[str]:
    named = set(names_of(state_dict) if state_dict.others else ())
    others = [key for key in state_dict.others if key not in named]
    if others:
        more = f" and {len(others) - FEW} more" if len(others) > FEW else ""
        belong = "belong" if len(others) > 1 else "belongs"
        yield f"{', '.join(others[:FEW])}{more} {belong} to no layer: not renamed"


def _perhaps_beside(each: Renamed, state_dict: StateDict) -> Iterator[str]:
    """Yield which renamed numbers can be buffers of the model, or can have been put beside its weights."""
    keys, shapes = state_dict.entries.columns[:2]
    found = {key for key, shape in zip(keys, shapes, strict=True) if not shape and COUNTS.fullmatch(key)}
    if told := [old for old, _ in each.renamed if old in found] if found else []:
        one = len(told) == 1
        yield (
            f"assumed that {', '.join(told[:FEW])} {'is a buffer' if one else 'are buffers'} of the model itself, and "
            f"{'was' if one else 'were'} not put beside its weights"
        )


def _distributed(each: Renamed, source: Opened) -> Iterator[str]:
    """Yield a note on the optimizer that a distributed checkpoint keeps by the old names, as the ranks' files do."""
    if isinstance(source.inside, Metadata):
        old = {name for name, _ in each.renamed}
        ways = (way for way in source.inside.ways.values() if way[:-1] != each.location)
        if any(part in old for way in ways for part in way):
            yield "the optimizer's state keeps the old names, which stand in the ranks' own files, too"


def _like(chosen: Sequence[StateDict], wanted: Sequence[StateDict]) -> dict[Location, Renamed]:
    """Return each state dict the names of the one that it fits: that of the same place, if it does."""
    plan, reasons = {}, []
    for each in chosen:
        others = sorted(wanted, key=lambda other: other.location != each.location)
        found = [(other, fitted(each, other)) for other in others]
        new = next((fit for _, fit in found if isinstance(fit, list)), None)
        if new is None:
            reasons += [in_the_way(each, other, fit) for other, fit in found if not isinstance(fit, list)][:1]
            plan[each.location] = _kept(each, "left alone: its tensors are not those that are wanted")
        else:
            plan[each.location] = renamed(each, names_of(each), new, "")
    if len(reasons) == len(plan):
        raise NoMatch(f"no renaming makes the keys equal: {reasons[0]}")
    return plan
