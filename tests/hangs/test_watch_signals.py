"""The handlers of signals that the user has set: what they raise is the training's, wherever the signal comes."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from ddpdoctor.watch.rank.recorder import Recorder


class OutOfTimeError(Exception):
    """What a handler raises that limits the time of a step."""


def too_late(number: int, _: object) -> None:
    """Be the user's handler."""
    raise OutOfTimeError(number)


@pytest.fixture
def handled() -> Iterator[None]:
    """Set the handler, and the old one again."""
    before = signal.signal(signal.SIGALRM, too_late)
    yield
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("handled")
def test_what_a_handler_raises_is_passed_on(capfd: pytest.CaptureFixture[str]) -> None:
    """A signal can come while the watch looks at something; its own failures stay its own."""
    told: list[str] = []
    recorder: Any = SimpleNamespace(_complained=False, _fails=None)  # a real one stays with this process
    recorder.safely = lambda _, *told_of: told.extend(told_of)

    def fails() -> None:
        raise KeyError("of the watch")

    Recorder.safely(recorder, fails)
    with pytest.raises(OutOfTimeError):
        Recorder.safely(recorder, signal.raise_signal, signal.SIGALRM)

    assert "the watch failed" in capfd.readouterr().err
    assert told[1:] == ["KeyError: 'of the watch'"]
