"""What is asked of a loader's ``collate_fn``, and where nothing is said."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ddpdoctor.examine.loader.collated import MOST, uncollated
from ddpdoctor.examine.loader.facts import Order


def batch(samples: list[Any]) -> list[Any]:
    """Take samples of one kind, as default_collate does."""
    if len({type(sample) for sample in samples}) > 1:
        raise TypeError("batch must contain one kind")
    return samples


def loader(dataset: Any, **changed: Any) -> SimpleNamespace:
    """Build what is asked of a loader."""
    return SimpleNamespace(**{"dataset": dataset, "batch_sampler": object(), "collate_fn": batch, **changed})


def test_the_first_batch_is_tried_as_the_sampler_chose_it() -> None:
    """Of four samples the sampler takes three, of which one is of another kind."""
    assert uncollated(loader([1, "a", 2, 3]), Order((0, 2, 3), (3,), complete=True)) == ""
    assert uncollated(loader([1, "a", 2, 3]), Order((0, 1, 3), (3,), complete=True)) == (
        "TypeError: batch must contain one kind"
    )


@pytest.mark.parametrize(
    ("changed", "sizes"),
    [
        ({"batch_sampler": None}, (2,)),  # batch_size=None: no batch is made
        ({}, ()),  # a sampler that chooses nothing
        ({}, (MOST + 1,)),  # a part of a batch may be refused for being one
    ],
)
def test_nothing_is_said_where_no_whole_batch_is_tried(changed: dict[str, Any], sizes: tuple[int, ...]) -> None:
    """A collate_fn may count on the size of a batch."""
    mixed: list[Any] = [1, "a"] * MOST
    assert uncollated(loader(mixed, **changed), Order(tuple(range(2 * MOST)), sizes, complete=True)) == ""


def test_samples_are_fetched_at_once_where_the_data_set_can() -> None:
    """As torch does: such a data set need not know a single sample."""

    class Several:
        def __getitems__(self, indices: list[int]) -> list[Any]:
            return [*indices, "a"]

    assert uncollated(loader(Several()), Order((0, 1), (2,), complete=True)).startswith("TypeError")


def test_what_fetching_raises_is_no_fault_of_the_batch() -> None:
    """Others tell of it."""
    assert uncollated(loader([]), Order((0, 1), (2,), complete=True)) == ""
