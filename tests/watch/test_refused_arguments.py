"""What argparse says of arguments that it refuses, as the watch reads it."""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn

import pytest

from ddpdoctor.watch.command.command_output import said_by
from ddpdoctor.watch.rank.end.leaving import refused_by_parser


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--nproc_per_node=2"], "train.py: error: unrecognized arguments: --nproc_per_node=2"),
        (["--lr", "fast"], "train.py: error: argument --lr: invalid float value: 'fast'"),
        (["--help"], ""),
    ],
)
def test_the_parsers_word_is_read_where_it_ends_the_program(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    """It is in argparse's own frame, and nowhere else; an answer to --help is no refusal."""
    heard: list[str] = []

    def ends(status: object = None) -> NoReturn:
        heard.append(refused_by_parser(sys._getframe(1)))
        raise SystemExit(status)

    monkeypatch.setattr(sys, "exit", ends)
    parser = argparse.ArgumentParser(prog="train.py")
    parser.add_argument("--lr", type=float)
    with pytest.raises(SystemExit):
        parser.parse_args(arguments)
    with pytest.raises(SystemExit):
        sys.exit(2)

    assert heard == [said, ""]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            ["usage: train.py [-h]", "train.py: error: unrecognized arguments: --lr 3", "=" * 60],
            "train.py refuses its command line: unrecognized arguments: --lr 3 (DDP425 script-arguments-refused)",
        ),
        (["a word of its own", "=" * 60, ""], "a word of its own"),
        ([], "it printed nothing"),
    ],
)
def test_the_output_of_a_rehearsal_that_failed_tells_why(lines: list[str], said: str) -> None:
    """Its ranks ended before they told anything: a check's words, and no line that a launcher draws."""
    assert said_by(lines) == said
