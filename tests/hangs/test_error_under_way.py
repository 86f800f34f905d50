"""Ranks that an exception has led to the end of a ``with``, to a handler, or to a ``finally``, where they wait."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from helpers import CHECKS

from ddpdoctor.host.stack import Frame
from ddpdoctor.source.values.handlers import counted_in_handlers
from ddpdoctor.stuck.looks.raised import raised
from ddpdoctor.watch.dispatcher import Dispatcher
from ddpdoctor.watch.events import Doing, Position, Site, Stalled, UnderWay

if TYPE_CHECKING:
    from ddpdoctor.findings import Finding

SCRIPT = """
class Session:
    def __exit__(self, *exc):
        dist.barrier()

def main():
    with Session():
        for step in range(9):
            loss(step).backward()

def other():
    try:
        work()
    except OSError as exc:
        dist.barrier()
"""
END = "(<type at 0x7f01>, <KeyError at 0x7f02>, <traceback at 0x7f03>)"


def frame(file: str, line: int, name: str, **variables: str) -> dict[str, Any]:
    """Return a frame as py-spy writes it."""
    shown = [{"name": each, "repr": text} for each, text in variables.items()]
    return {"filename": file, "line": line, "name": name, "locals": shown}


def test_the_end_of_a_with_is_given_an_exception(tmp_path: Path) -> None:
    """By one name for all, or by three; a library's method as well, whose caller is the user's."""
    (path := tmp_path / "train.py").write_text(SCRIPT)
    file = str(path)
    main = frame(file, 7, "main")
    three = {"self": "<S at 0x7f>", "kind": "<type at 0x7f01>", "value": "<OSError at 0x7f02>"}
    ends = frame(
        "/usr/lib/python3.11/contextlib.py", 158, "_GeneratorContextManager.__exit__", **three, tb="<traceback at 0x7>"
    )

    assert raised([frame(file, 4, "Session.__exit__", self="<S at 0x7f>", exc=END), main]) == (
        "KeyError",
        Frame(file, 7, "main"),
    )
    assert raised([ends, main]) == ("OSError", Frame(file, 7, "main"))
    assert raised([frame(file, 4, "Session.__exit__", self="<S at 0x7f>", exc="(None, None, None)"), main]) is None
    assert raised([main]) is None


def test_a_handler_holds_an_exception(tmp_path: Path) -> None:
    """By the name that it gives it; the same name elsewhere is a variable as any."""
    (path := tmp_path / "train.py").write_text(SCRIPT)
    held = {"exc": "<FileNotFoundError at 0x7f>"}

    assert raised([frame(str(path), 15, "other", **held)]) == ("FileNotFoundError", Frame(str(path), 15, "other"))
    assert raised([frame(str(path), 13, "other", **held)]) is None


def waits(rank: int, operation: str, *stack: Site, error: UnderWay | None = None) -> Position:
    """Return a rank that waits, as it is seen from outside."""
    return Position(
        rank=rank, pid=rank + 1, doing=Doing.WAITING, seconds=9, site=stack[0], operation=operation, stack=stack,
        raised=error,
    )  # fmt: skip


def told(*ranks: Position) -> tuple[str, Finding]:
    """Return what the checks say of a hang that is seen from outside."""
    [found] = Dispatcher(CHECKS).see(Stalled(pid=0, time=2.0, ranks=ranks, world_size=len(ranks), outside=True))
    return found.check.slug, found.finding


def test_an_exception_has_led_one_rank_out_of_a_with(tmp_path: Path) -> None:
    """It is named by its class; without one, the rank has come to the end otherwise, and nothing of it is said."""
    (path := tmp_path / "train.py").write_text(SCRIPT)
    file = str(path)
    head, ends = Site(file, 7, "main"), Site(file, 4, "__exit__")
    inside = waits(1, "backward", Site(file, 9, "main"))

    slug, finding = told(waits(0, "barrier", ends, head, error=UnderWay("KeyError", head)), inside)

    assert slug == "exception-swallowed"
    assert "KeyError has led rank 0 out of the `with` at line 7" in finding.message
    assert finding.place.line == 4
    assert finding.fix is not None
    assert "if kind is not None:" in finding.fix.diff
    assert "KeyError" not in told(waits(0, "barrier", ends, head), inside)[1].message


FINALLY = """
def main():
    try:
        for {loop}:
            loss(step).backward()
    finally:
        dist.barrier()

main()
"""


@pytest.mark.parametrize(
    ("loop", "said", "certain"),
    [
        ("step in range(9)", "an exception has led rank 0 there", True),
        ("step in batches", "in the `finally` of what rank 1 is in still", False),
    ],
)
def test_a_rank_waits_in_a_finally(tmp_path: Path, loop: str, said: str, *, certain: bool) -> None:
    """Where the loop has as many passes on all ranks, nothing but an exception leads there."""
    (path := tmp_path / "train.py").write_text(FINALLY.format(loop=loop))
    file = str(path)
    lines = path.read_text().splitlines()
    at = next(number for number, each in enumerate(lines, 1) if "barrier" in each)
    calls = Site(file, len(lines), "<module>")

    _, finding = told(
        waits(0, "barrier", Site(file, at, "main"), calls), waits(1, "backward", Site(file, 5, "main"), calls)
    )

    assert said in finding.message
    assert (finding.ambiguity is None) is certain


COUNTED = """
def epoch(batches):
    skipped, tried = 0, 0
    for batch in batches:
        while True:
            try:
                batch = batch.read()
                break
            except OSError:
                tried += 1
        try:
            loss(batch).backward()
        except ValueError:
            skipped += 1
            continue
    dist.barrier()
"""


def test_a_handler_counts_what_it_catches(tmp_path: Path) -> None:
    """The rank that has caught more left a step out; how often something was tried again tells nothing."""
    (path := tmp_path / "train.py").write_text(COUNTED)
    file = str(path)
    handler, again = Site(file, 13, ""), Site(file, 9, "")
    assert counted_in_handlers(file, 16) == {"tried": 9, "skipped": 13}

    def ranks(skipped: int, tried: int) -> tuple[Position, Position]:
        ahead = replace(waits(0, "barrier", Site(file, 16, "epoch")), caught=((handler, skipped), (again, tried)))
        return ahead, replace(waits(1, "backward", Site(file, 12, "epoch")), caught=((handler, 0), (again, 0)))

    slug, finding = told(*ranks(1, 0))
    assert slug == "exception-swallowed"
    assert "rank 0 has caught 1 exception at train.py:13 (`except ValueError:`), and rank 1 0" in finding.message
    assert finding.place.line == 13
    assert told(*ranks(0, 3))[0] != "exception-swallowed"
