"""How an event is written as JSON, and read again."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from ddpdoctor.watch import events
from ddpdoctor.watch.events import (
    Carried,
    Clip,
    Event,
    Exchange,
    Factor,
    Gathered,
    HeldGenerator,
    Keeper,
    LinkUse,
    LossTerm,
    Number,
    Product,
    SampledLine,
    Sampler,
    ShardedGradient,
    Site,
    Statistic,
    TimedCall,
    Used,
)

PARTS = {
    "exchanges": Exchange,
    "calls": TimedCall,
    "sampled": SampledLine,
    "keepers": Keeper,
    "clips": Clip,
    "used": Used,
    "factors": Factor,
    "statistics": Statistic,
    "held_generators": HeldGenerator,
    "parts": ShardedGradient,
    "products": Product,
    "numbers": Number,
    "links": LinkUse,
    "modules": Gathered,
}
"""By the name of an event's field what its tuple is made of."""
TYPES = {name: each for name, each in vars(events).items() if isinstance(each, type) and issubclass(each, Event)}


def packed(event: Event) -> list[Any]:
    """Return an event as JSON writes it."""
    values = {field.name: getattr(event, field.name) for field in fields(event)}
    if isinstance(sampler := values.get("sampler"), Sampler):
        values["sampler"] = {field.name: getattr(sampler, field.name) for field in fields(sampler)}
    return [type(event).__name__, values]


def unpacked(parts: list[Any]) -> Event:
    """Return the event that ``packed`` was given.

    Raises:
        KeyError, TypeError: it is no event.
    """
    kind, values = parts
    values = {name: _tuples(value) for name, value in values.items()}
    for name in ("site", "reader", "sharded", "loader_site", "sampler_site", "ignored_at"):
        if values.get(name) is not None:
            values[name] = Site(*values[name])
    for name, part in PARTS.items():
        if name in values:
            values[name] = tuple(part(*each) for each in values[name])
    if "terms" in values:
        values["terms"] = tuple(tuple(LossTerm(*term) for term in loss) for loss in values["terms"])
    if values.get("carried") is not None:
        values["carried"] = Carried(*values["carried"])
    if isinstance(values.get("sampler"), dict):
        values["sampler"] = Sampler(**values["sampler"])
    event: Event = TYPES[kind](**values)
    return event


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
