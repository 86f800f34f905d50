"""The watch reads the frames of the user's functions, and leaves no trace in them."""

from __future__ import annotations

import sys
import weakref
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ddpdoctor.logs.records import Frame
from ddpdoctor.watch.rank.model.parameter_names import modules_in_sight
from ddpdoctor.watch.user_frames import user_site, users_sites, variables_of

if TYPE_CHECKING:
    from ddpdoctor.watch.events import Site


class Thing:
    """What a function holds for a while."""


def test_what_a_function_deletes_is_gone() -> None:
    """A model that is kept until its process group was destroyed can make torch 2.13 hang."""
    thing = Thing()
    gone = weakref.ref(thing)

    assert variables_of(sys._getframe())["thing"] is thing
    del thing

    assert gone() is None


def test_what_the_function_asked_for_itself_stays_its_own() -> None:
    """locals() is one dict for each call of a function, which a script can keep."""
    number = 3
    mine = locals()
    variables_of(sys._getframe())

    assert mine["number"] == number


def test_a_debugger_writes_the_same_variables_back() -> None:
    """While a function is traced, its variables are written back from that dict after each line."""

    def traced(frame: Any, _: str, __: Any) -> Any:
        variables_of(frame)
        return traced

    def function() -> int:
        number = 3
        number += 1
        return number

    before = sys.gettrace()
    sys.settrace(traced)
    try:
        assert function() == 4
    finally:
        sys.settrace(before)


def test_a_class_keeps_what_its_body_has_set() -> None:
    """There the variables are the namespace itself, as they are in a module."""

    class Built:
        number = 3
        variables_of(sys._getframe())

    assert Built.number == 3


def test_modules_of_the_function_and_of_its_file_are_in_sight(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script's model is a variable of its function, or of its module."""
    import torch

    of_the_file, own = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    monkeypatch.setitem(globals(), "shared", of_the_file)
    seen = modules_in_sight()

    assert seen["shared"] is of_the_file
    assert seen["own"] is own


@dataclass
class Arguments:
    """What a framework makes of its options."""

    site: Site | None = field(default_factory=user_site)


def test_a_generated_function_is_no_line_of_the_users() -> None:
    """The line that makes a dataclass is named, not the ``__init__`` that was written for it."""
    made = Arguments().site
    stack = [Frame("<string>", 3, "__init__"), Frame(__file__, 12, "main"), Frame("<string>", 1, "<module>")]

    assert made is not None
    assert Path(made.file) == Path(__file__)
    assert [each.line for each in users_sites(stack)] == [12, 1]
