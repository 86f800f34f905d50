"""What functions of an evaluation return is listened for, briefly, and nobody else who listens is disturbed."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from ddpdoctor.watch.rank.evaluation.returned import TIMES, Returns


@pytest.fixture
def told() -> list[tuple[tuple[str, float], ...]]:
    """Have what was told."""
    return []


@pytest.fixture
def returns(told: list[Any]) -> Returns:
    """Have what listens, with a recorder that keeps what it is told."""
    recorder: Any = SimpleNamespace(
        safely=lambda function, *given: function(*given), emit=lambda _, **values: told.append(values["values"])
    )
    return Returns(recorder)


def _evaluates(returns: Returns, result: Any, operation: str = "all_reduce") -> Any:
    returns.communicated(operation)
    return result


def test_numbers_are_told_by_where_they_are(returns: Returns, told: list[Any]) -> None:
    """Of a tuple, a dictionary and a number alone; whole numbers are counts, and stay untold."""
    _evaluates(returns, (0.5, {"loss": 0.25, "seen": 12}))

    assert told[0] == (("[0]", 0.5), ("[1]['loss']", 0.25))


def test_nobody_listens_once_the_functions_have_returned(returns: Returns) -> None:
    """Python is asked for calls until the callers that are looked at have returned, or the training goes on."""
    _evaluates(returns, 0.5)
    assert sys.getprofile() is returns.listener

    returns.over()

    assert sys.getprofile() is None


def test_a_profiler_of_the_users_is_left_alone(returns: Returns, told: list[Any]) -> None:
    """Where somebody listens already, nothing is looked at."""

    def theirs(*_: Any) -> None:
        pass

    sys.setprofile(theirs)
    try:
        _evaluates(returns, 0.5)
        assert sys.getprofile() is theirs
    finally:
        sys.setprofile(None)
    assert told == []


def test_a_function_is_told_a_few_times(returns: Returns, told: list[Any]) -> None:
    """What returns in each step is not listened for in each step."""
    for _ in range(TIMES + 2):
        _evaluates(returns, 0.5)
        returns.over()

    assert len(told) == TIMES


def test_what_one_rank_alone_was_given_is_not_compared(returns: Returns, told: list[Any]) -> None:
    """After ``reduce`` the ranks have different numbers, as is meant."""
    _evaluates(returns, 0.5, "reduce")
    _evaluates(returns, 0.5)
    returns.over()

    assert told == []
