"""Tables of numbers that a training has given to words, as the watch finds them in its variables."""

from __future__ import annotations

import pytest

from ddpdoctor.watch.rank.data.numberings import _numbering

WORDS = [f"word{number}" for number in range(20)]


@pytest.mark.parametrize(
    ("first", "words", "is_one"),
    [(0, 3, True), (1, 3, True), (2, 3, False), (4, 20, True), (100, 20, False)],
    ids=["from 0", "from 1", "few numbers of anything", "behind special tokens", "numbers of anything"],
)
def test_a_table_has_no_gap_and_begins_where_tables_do(first: int, words: int, *, is_one: bool) -> None:
    """Numbers that begin elsewhere are those of words where there are many, and not far from the start."""
    table = {word: number for number, word in enumerate(WORDS[:words], first)}

    assert (_numbering("vocab", table) == table) == is_one
    assert _numbering("vocab", {**table, "last": first + words + 1}) is None
