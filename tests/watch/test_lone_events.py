"""An event that comes without those that go before it, and whose lists are empty, crashes no check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any, get_origin, get_type_hints

from helpers import CHECKS
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from ddpdoctor.host.process.connections import Peer
from ddpdoctor.host.process.waits.wait import Awaited
from ddpdoctor.watch.dispatcher import Dispatcher
from ddpdoctor.watch.events import Event
from ddpdoctor.watch.events.steps import parts
from ddpdoctor.watch.wire import TYPES

NAMES = {**vars(parts), "Peer": Peer, "Awaited": Awaited}
"""What the annotations of events name, and their modules do not import as they run."""


NUMBERS: dict[Any, st.SearchStrategy[Any]] = {int: st.integers(1, 8), float: st.floats(0.5, 100)}
"""Counts, sizes and seconds as a process can have them: none is negative, none a memory's worth of ranks."""


def event_of(kind: type[Event]) -> st.SearchStrategy[Event]:
    """Return events of a type that hold what it asks for, and nothing else."""
    hints = get_type_hints(kind, localns=NAMES)
    asked = [each.name for each in fields(kind) if each.default is MISSING and each.default_factory is MISSING]
    values: dict[str, st.SearchStrategy[Any]] = {name: value_of(hints[name]) for name in asked}
    return st.builds(kind, **{**values, "pid": st.integers(1, 2), "time": st.floats(0, 100), "rank": st.integers(0, 1)})


def value_of(hint: Any) -> st.SearchStrategy[Any]:
    """Return values of a type: lists and mappings are empty, whose lengths go with those of others."""
    origin = get_origin(hint)
    if isinstance(origin, type) and issubclass(origin, (tuple, Mapping)):
        return st.just({} if issubclass(origin, Mapping) else ())
    return NUMBERS[hint] if hint in NUMBERS else st.from_type(hint)


EVENTS = st.sampled_from([kind for kind in TYPES.values() if kind is not Event]).flatmap(event_of)


@settings(suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.generate])  # to shrink takes minutes
@given(st.lists(EVENTS, min_size=5, max_size=30))
def test_no_check_crashes(events: Sequence[Event]) -> None:
    """Ranks are killed as they write, hooks are undone half-way: a check asks what there is."""
    dispatcher = Dispatcher(CHECKS)
    for event in events:
        list(dispatcher.see(event))

    assert [(each.slug, each.reason) for each in dispatcher.crashes] == []
