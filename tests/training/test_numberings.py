"""Tables of numbers that a training has given to words, as the watch finds them in its variables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ddpdoctor.checks.data.shares.unlike._numberings import made_at
from ddpdoctor.watch.events import Site
from ddpdoctor.watch.rank.data.numberings import _numbering

if TYPE_CHECKING:
    from pathlib import Path

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


def test_the_line_that_orders_a_table_by_a_set_is_shown_sorted(tmp_path: Path) -> None:
    """The set that a table's words come from is found, also where another line numbers them."""
    file = tmp_path / "corpus.py"
    file.write_text(
        "def table(words):\n    classes = list(set(words))\n    ids = {c: i for i, c in enumerate(classes)}\n"
    )

    made = made_at("data.ids", Site(str(file), 3, "table"))

    assert made is not None
    assert (made.line, made.sorted) == (2, "-classes = list(set(words))\n+classes = sorted(set(words))")


def test_a_table_that_is_sorted_already_is_left_as_it_is(tmp_path: Path) -> None:
    """Its own line is named, without a change."""
    file = tmp_path / "corpus.py"
    file.write_text("def table(words):\n    ids = {c: i for i, c in enumerate(sorted(set(words)))}\n")

    made = made_at("ids", Site(str(file), 2, "table"))

    assert made is not None
    assert (made.line, made.sorted) == (2, "")
