"""What comes now and then, or with each epoch: evaluations, files, workers; and what is counted on a busy machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from measured_steps import FAST, MS, TRAINS, line, seen

from ddpdoctor.checks.performance.source._read_each_epoch import read_again

if TYPE_CHECKING:
    from pathlib import Path

    from ddpdoctor.watch.events import SampledLine

EVALUATES = """\
for step, (x, y) in enumerate(batches):
    loss = train(model, x, y)
    if step % 10 == 0:
        score = evaluate(model)
"""


def at(file: Path, number: int, kind: str, clock: float, steps: int) -> SampledLine:
    """Return a line of a file, in so many of 50 steps."""
    return line(number, kind, clock, steps=steps, inner=(str(file), number, "main"))._replace(file=str(file))


def test_what_rank_0_evaluates_every_tenth_step_is_told_once_and_by_averages(tmp_path: Path) -> None:
    """Three steps of those measured are enough where they take so much; twice may be chance."""
    file = tmp_path / "train.py"
    file.write_text(EVALUATES)
    for steps, expected in ((3, ["one-rank-is-slow"]), (2, [])):
        mine = (*TRAINS, at(file, 4, "module called", 400, steps), at(file, 2, "", 10, 50))
        others = (*TRAINS, at(file, 6, "collective", 420, 50), at(file, 2, "", 10, 50))
        told = seen(mine, others)
        assert [slug for slug, _ in told] == expected
        for _, found in told:
            assert found.fix.summary.startswith("evaluate less often")
            assert "about 12 instead of 20 ms a step on average" in found.fix.summary


def test_a_validation_that_all_ranks_repeat_is_told_whatever_it_does(tmp_path: Path) -> None:
    """Its forwards are the wrapper's, its sums are collectives; a line that trains as well is none."""
    file = tmp_path / "train.py"
    file.write_text(EVALUATES)
    parts = (at(file, 4, "forward", 250, 10), at(file, 4, "collective", 180, 10), at(file, 4, "", 80, 10))
    ((slug, found),) = seen((*TRAINS, *parts), (*TRAINS, *parts))
    assert slug == "needless-work-in-step"
    assert "evaluates in 10 of 50 steps: 10.2 of 20.0 ms a step, 51%" in found.message
    assert "about 10 instead of 20 ms a step on average" in found.fix.summary
    trains = (*parts, at(file, 4, "backward", 20, 10))
    assert seen((*TRAINS, *trains), (*TRAINS, *trains)) == []
    assert seen((*TRAINS, *parts), (*TRAINS, *parts), passes=40) == [], "one for each short epoch"


IN_PLACE = """\
for step, (x, y) in enumerate(batches):
    loss = train(model, x, y)
    if step % 10 == 0:
        model.eval()
        with torch.no_grad():
            right = sum((model(x).argmax(1) == y).sum() for x, y in held_out)
        dist.all_reduce(right)
        model.train()
"""


def test_an_evaluation_that_stands_in_the_loop_is_told_as_one(tmp_path: Path) -> None:
    """All lines between eval() and train() together; not where something is trained between them."""
    file = tmp_path / "train.py"
    file.write_text(IN_PLACE)
    parts = (at(file, 6, "module called", 300, 10), at(file, 7, "collective", 210, 10))
    ((slug, found),) = seen((*TRAINS, *parts), (*TRAINS, *parts))
    assert slug == "needless-work-in-step"
    assert "evaluates in 10 of 50 steps: 10.2 of 20.0 ms a step, 51%" in found.message
    other = tmp_path / "adversarial.py"
    other.write_text(IN_PLACE.replace("dist.all_reduce(right)", "right.backward()"))
    trained = tuple(each._replace(file=str(other), inner_file=str(other)) for each in parts)
    assert seen((*TRAINS, *trained), (*TRAINS, *trained)) == []


READS = """\
import csv, sys, torch
TABLE = "table.csv"
def rows(path):
    with open(path) as file:
        return [row for row in csv.reader(file)]
def one(epoch):
    with open(f"part{epoch}.csv") as file:
        return file.read()
class Part:
    def __init__(self, path):
        self.path = path
    def read(self):
        return open(self.path).read()
def kept():
    return torch.load("best.pt")
def state():
    return open("state.txt").read()
def keep(text):
    open("state.txt", "w").write(text)
for epoch in range(9):
    rows(TABLE)
"""


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("return [row for row", "TABLE"),
        ("return file.read()", None),
        ("return open(self.path)", None),
        ("return torch.load", None),
        ('return open("state.txt")', None),
    ],
)
def test_a_file_of_one_path_alone_is_the_same_in_each_epoch(text: str, path: str | None, tmp_path: Path) -> None:
    """Not one that is named by the epoch, of each object another, a checkpoint, or written by the script itself."""
    file = tmp_path / "train.py"
    file.write_text(READS)
    number = next(at for at, each in enumerate(READS.splitlines(), 1) if text in each)
    found = read_again(str(file), number)
    assert (found.path if found else None) == path


def test_a_table_that_is_read_anew_in_each_epoch_is_told(tmp_path: Path) -> None:
    """As epochs begin: in two steps of those measured; once is how a training begins, and in each is another thing."""
    file = tmp_path / "train.py"
    file.write_text(READS)

    def read(steps: int) -> list[str]:
        own = line(21, "", 300, steps=steps, inner=(str(file), 5, "rows"))._replace(file=str(file))
        return [found.message for _, found in seen((*TRAINS, own), (*TRAINS, own), passes=8)]

    (said,) = read(3)
    assert "train.py:4 reads the same file (TABLE) anew in each epoch, 8 by now: 6.0 of 20.0 ms a step, 30%" in said
    assert read(1) == []


@pytest.mark.parametrize(
    ("first", "data", "persistent", "expected"),
    [
        pytest.param(12.0, 1.0, False, ["workers-start-each-epoch"], id="epochs begin with a wait"),
        pytest.param(12.0, 1.0, True, [], id="its workers are kept"),
        pytest.param(12.0, 6.0, False, [], id="all of its waits are long"),
        pytest.param(6.0, 1.0, False, [], id="it is short"),
    ],
)
def test_workers_that_start_anew_are_told_on_a_busy_machine(
    first: float, data: float, persistent: object, expected: list[str]
) -> None:
    """By how the waits differ: who lacks a core waits in all parts of a step."""
    parts = FAST | {"total": 30.0, "first": first, "data": data, "backward": 8.0}
    told = seen(TRAINS, TRAINS, parts=(parts, parts), workers=1, passes=5, persistent=bool(persistent), starved=0.9)
    assert [slug for slug, _ in told] == expected


@pytest.mark.parametrize("starved", [0.0, 0.6])
def test_counted_exchanges_are_findings_busy_or_not(starved: float) -> None:
    """Each micro-batch averaged, dozens of small buckets: with milliseconds only where they can be measured."""
    waits = {"exposed": (6 * MS,) * 50, "hidden": (0,) * 50}
    each = {**waits, "synced": 8.0, "backwards": 8.0}
    ((slug, found),) = seen(TRAINS, TRAINS, profile=each, starved=starved)
    assert slug == "accumulation-reduces-every-step"
    assert ("7 of 8 exchanges are for nothing" in found.message) is (starved > 0)
    small = {**waits, "buckets": (10_000,) * 49}
    ((slug, found),) = seen(TRAINS, TRAINS, profile=small, starved=starved)
    assert slug == "bucket-size-unfit"
    assert found.message.startswith("gradients travel in 49 buckets of")
    assert ("ms" in found.message) is (starved == 0)
    quick = {"exposed": (MS // 10,) * 50, "hidden": (0,) * 50, "buckets": (10_000,) * 49}
    assert seen(TRAINS, TRAINS, profile=quick, starved=starved) == []


def test_an_exchange_for_nothing_is_skipped_by_the_counter_of_its_loop(tmp_path: Path) -> None:
    """At the line of the backward; a loop of steps has no such counter."""
    loop = "for step in range(9):\n    for micro in range(args.accum):\n        model(x).backward()\n"
    each = {"exposed": (6 * MS,) * 50, "hidden": (0,) * 50, "synced": 8.0, "backwards": 8.0}
    for name, source, expected in (
        ("accumulates.py", f"{loop}    optimizer.step()\n", "micro + 1 < args.accum"),
        ("steps.py", f"{loop}        optimizer.step()\n", "(i + 1) % k"),
    ):
        file = tmp_path / name
        file.write_text(source)
        lines = (at(file, 3, "backward", 600, 50),)
        ((_, found),) = seen(lines, lines, profile=each)
        assert (found.place.file, found.place.line) == (str(file), 3)
        assert expected in found.fix.diff


SYNC = """\
def average(model):
    gs = [p.grad for p in model.parameters()]
    flat = torch.cat([g.reshape(-1) for g in gs])
    dist.all_reduce(flat)
    for g in gs:
        g.copy_(flat)
"""


def test_loops_that_pack_what_is_sent_at_once_are_no_loops_to_mend(tmp_path: Path) -> None:
    """Three small ones of one function that sends; without the exchange they are told together."""
    for name, source, expected in (
        ("sync.py", SYNC, []),
        ("other.py", SYNC.replace("dist.all_reduce(flat)", "pass"), ["python-loop-in-step"]),
    ):
        file = tmp_path / name
        file.write_text(source)
        lines = [
            line(30, "", 45, inner=(str(file), number, "average"))._replace(line=30 + number) for number in (2, 3, 6)
        ]
        assert [slug for slug, _ in seen((*TRAINS, *lines), (*TRAINS, *lines))] == expected
