"""Functions of torch replaced for the time of a watch, and put back."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]
"""What is given a function, and returns what is to stand in its place."""
MISSING = object()
PASSED_OVER = "(importlib._bootstrap)"
"""In a file's name, both words make ``warnings`` pass over its frames when it counts a stacklevel, as Python's own."""


@dataclass(frozen=True, slots=True)
class Patch:
    """One attribute that was replaced: what stood there before (MISSING where it was inherited), and what does now."""

    owner: Any
    name: str
    before: Any
    now: Any

    def undo(self) -> None:
        """Put back what stood there; where somebody else has replaced it since, leave theirs in place."""
        if vars(self.owner).get(self.name) is not self.now:
            return
        if self.before is MISSING:
            delattr(self.owner, self.name)
        else:
            setattr(self.owner, self.name, self.before)


def patch(owner: Any, name: str, wrap: Wrap) -> Patch:
    """Replace ``owner.name`` by what ``wrap`` makes of it; the new function keeps name, docstring and signature."""
    original = getattr(owner, name)
    before = vars(owner).get(name, MISSING)
    now: Any = functools.wraps(original)(_passed_over(wrap(original)))
    if isinstance(before, staticmethod):
        now = staticmethod(now)
    setattr(owner, name, now)
    return Patch(owner, name, before, now)


def _passed_over(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let what torch warns of show the line of the user's that called it, as it does without the watch."""
    if isinstance(function, FunctionType):
        code = function.__code__
        function.__code__ = code.replace(co_filename=f"{code.co_filename} {PASSED_OVER}")
    return function
