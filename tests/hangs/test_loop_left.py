"""Which way a rank took out of a loop: read off the source, and named only where there is one."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from helpers import Script

from ddpdoctor.checks.collectives.hangs.source._exits import LeftBy
from ddpdoctor.checks.collectives.left._leave_together import mended
from ddpdoctor.source.reach.exits import Exit, Line, LoopLeft, loop_left
from ddpdoctor.watch.events import Site

SOURCES = {
    "a return": """
        def train():
            for step in range(20):
                if bad():
                    return  # exit
                work()  # inside
        train()
        dist.barrier()  # outside
        """,
    "a break, and the next epoch": """
        def train():
            for epoch in range(epochs):
                dist.barrier()  # outside
                for batch in loader:
                    if bad(batch):
                        break  # exit
                    work(batch)  # inside
        train()
        """,
    "an exception that the caller swallows": """
        def train():
            while True:
                work()  # inside
        try:
            train()
        except RuntimeError:  # exit
            pass
        dist.barrier()  # outside
        """,
}


def read(path: str, mark: str) -> list[Line]:
    """Return the stack of who is at the marked line: in train(), which the module calls, or in the module itself."""
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    at = next(number for number, line in enumerate(lines, 1) if f"# {mark}" in line)
    called = next(number for number, line in enumerate(lines, 1) if line.strip() == "train()")
    if lines[at - 1].startswith(" ") and at < called:
        return [(path, at, "train"), (path, called, "<module>")]
    return [(path, at, "<module>")]


def left(script: Script, text: str, *, broken_off: bool = True, ended: bool = False) -> LoopLeft | None:
    """Compare the two marked lines of a source."""
    path = script(dedent(text))
    return loop_left(read(path, "inside"), () if ended else read(path, "outside"), lambda *_: broken_off)


@pytest.mark.parametrize("name", SOURCES)
def test_the_only_way_out_is_named(script: Script, name: str) -> None:
    """Its line, where the loop cannot have ended by itself."""
    found = left(script, SOURCES[name])
    line = next(number for number, each in enumerate(dedent(SOURCES[name]).splitlines(), 1) if "# exit" in each)

    assert found is not None
    assert found.only is not None
    assert found.only.line == line


def test_of_a_rank_that_has_ended_as_well(script: Script) -> None:
    """It is past all lines of the script."""
    found = left(script, SOURCES["a return"], ended=True)

    assert found is not None
    assert found.only is not None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("range(20)", "range(count)"),
        ("work()  # inside", "if step:\n            work()  # inside"),
        ("if bad():", "if other():\n            continue\n        if bad():"),
        ("if bad():", "if other():\n            return\n        if bad():"),
    ],
    ids=["as many as there are", "a line under a condition", "a skipped step", "two ways"],
)
def test_several_ways_are_not_one(script: Script, old: str, new: str) -> None:
    """What remains is listed, and nothing is taken for proven."""
    text = dedent(SOURCES["a return"])
    assert old in text
    found = left(script, text.replace(old, new), broken_off=False)

    assert found is not None
    assert found.only is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("train()\ndist", "if ready():\n    train()\ndist"),
        ("    for step", "    if ready():\n     for step"),
        ("work()  # inside\n", "work()  # inside\n        dist.barrier()  # outside\n"),
    ],
    ids=["a call under a condition", "a loop under a condition", "in the loop itself"],
)
def test_nothing_is_said_of_a_rank_that_may_never_have_been_in_it(script: Script, old: str, new: str) -> None:
    """It must have come past the loop, on the way that both went."""
    text = dedent(SOURCES["a return"])
    assert old in text

    assert left(script, text.replace(old, new)) is None


METHODS = """
class Trainer:
    def epoch(self):
        for _ in range(5):
            work()  # inside
    def fit(self):
        for epoch in range(self.most):
            self.epoch()  # calls
            if self.has_enough():
                break  # exit
def main():
    Trainer().fit()  # fits
    dist.barrier()  # outside
main()
"""


def test_the_loop_of_the_break_is_named_where_a_method_has_one_of_its_own(script: Script) -> None:
    """The functions of both loops have returned on the other rank."""
    path = script(METHODS)
    at = {mark: number for number, line in enumerate(METHODS.splitlines(), 1) for mark in line.split("# ")[1:]}
    start = (path, len(METHODS.splitlines()), "<module>")
    inside = [(path, at["inside"], "epoch"), (path, at["calls"], "fit"), (path, at["fits"], "main"), start]
    found = loop_left(inside, [(path, at["outside"], "main"), start], lambda *_: False)

    assert found is not None
    assert found.only is not None
    assert (found.line, found.only.line) == (at["calls"] - 1, at["exit"])


@pytest.mark.parametrize(
    ("way", "diff"),
    [
        (Exit("train.py", 9, "break", "if stopper.stop"), "[int(bool(stopper.stop))])"),
        (Exit("train.py", 9, "return", "if not better"), "-if not better:\n+if stop.item():\n     return"),
        (
            Exit("train.py", 9, "except OSError", around=True),
            "-except OSError:\n-    ...   # line 9\n+except OSError:\n+    raise",
        ),
        (Exit("train.py", 9, "sys.exit()", "if done"), "-if stop_here:\n+if stop.item():\n     break"),
    ],
)
def test_the_fix_is_written_with_the_test_of_the_only_way(way: Exit, diff: str) -> None:
    """So that it can be pasted; what ends the process is told in words."""
    site = Site("train.py", 8, "main")
    left = LeftBy(1, 0, site, LoopLeft("train.py", 5, (way,), ends_itself=False, alike=False))

    assert diff in mended(left, None).diff


CAUGHT = """
def train():
    for step in range(9):  # loop
        {body}

def main():
    try:
        train()
    except ValueError:  # handler
        print("failed")
    dist.barrier()  # outside

main()
"""


@pytest.mark.parametrize(
    ("body", "only"),
    [("loss(step).backward()  # inside", True), ("if step:\n            break\n        loss(step)  # inside", False)],
)
def test_a_handler_around_the_loop_is_the_only_way_out(tmp_path: Path, body: str, *, only: bool) -> None:
    """Of a loop that runs as often on all ranks; one within the loop skips a pass, and the rank can be in it still."""
    text = CAUGHT.format(body=body)
    (path := tmp_path / "train.py").write_text(text)
    at = {
        word: number for number, line in enumerate(text.splitlines(), 1) for word in [line.partition("# ")[2]] if word
    }
    end = len(text.splitlines())
    calls = next(number for number, line in enumerate(text.splitlines(), 1) if line == "        train()")
    inside: list[Line] = [(str(path), at["inside"], "train"), (str(path), calls, "main"), (str(path), end, "<module>")]

    found = loop_left(inside, [(str(path), at["outside"], "main"), inside[2]], lambda *_: False)

    assert found is not None
    assert (found.only is not None and found.only.line == at["handler"]) is only
