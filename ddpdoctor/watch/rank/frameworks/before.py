"""A look at what a method is given, before it runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddpdoctor.watch.rank.patch import Wrap
    from ddpdoctor.watch.rank.process import Process


def before(recorder: Process, look: Callable[..., None]) -> Wrap:
    """Return what shows ``look`` the arguments of a method that a rank is about to call."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def method(*args: Any, **kwargs: Any) -> Any:
            if recorder.is_rank:
                recorder.safely(partial(look, *args, **kwargs))
            return original(*args, **kwargs)

        return method

    return wrap
