"""Slow settings and loops by the line of the script: threads, bound cores, anomalies, loading in Python loops."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any

import pytest
from measured_steps import FAST, MS, TRAINS, line, seen

from ddpdoctor.checks.performance.source._at_line import averages
from ddpdoctor.watch.events import TimedCall
from ddpdoctor.watch.rank.measured.lines import Lines

if TYPE_CHECKING:
    from pathlib import Path

    from ddpdoctor.findings import Finding
    from ddpdoctor.watch.events import SampledLine

SETTINGS = """\
import os, torch
def setup(n):
    torch.set_num_threads(n)
    os.sched_setaffinity(0, {0})
    torch.autograd.set_detect_anomaly(True)
"""


def trains(tmp_path: Path, text: str = SETTINGS) -> tuple[SampledLine, ...]:
    """Return lines of a script that imports a module with this text from beside it."""
    script = tmp_path / "train.py"
    script.write_text("from tools.settings import setup\nsetup(16)\n")
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "settings.py").write_text(text)
    return (*TRAINS, line(19, "stack kept", 200, inner=(str(script), 2, "main"))._replace(file=str(script), line=2))


def told(slug: str, found: list[tuple[str, Finding]]) -> Finding:
    """Return the finding of a check."""
    return dict(found)[slug]


def test_threads_that_the_script_sets_are_mended_there(tmp_path: Path) -> None:
    """No variable changes what a call has set; what a loader's workers set to one is not it."""
    lines = trains(tmp_path)
    busy: dict[str, Any] = {"host_cores": 8, "threads": 16, "starved": 0.5}
    found = told("omp-oversubscription", seen(lines, lines, **busy))
    assert (found.place.file, found.place.line) == (str(tmp_path / "tools" / "settings.py"), 3)
    assert found.fix.diff == "-    torch.set_num_threads(n)\n+    torch.set_num_threads(4)"
    assert not found.fix.command
    (tmp_path / "tools" / "settings.py").write_text("import torch\ndef in_worker(_):\n    torch.set_num_threads(1)\n")
    found = told("omp-oversubscription", seen(*[(*TRAINS, line(3, "", 9))] * 2, **busy))
    assert found.fix.command == "export OMP_NUM_THREADS=4"


def test_cores_that_the_script_binds_are_told_with_its_line(tmp_path: Path) -> None:
    """Else the launcher has bound them."""
    lines = trains(tmp_path)
    busy: dict[str, Any] = {"host_cores": 8, "bound": (0,), "starved": 0.5}
    found = told("ranks-share-cores", seen(lines, lines, **busy))
    assert found.place.line == 4
    assert found.fix.diff == "-    os.sched_setaffinity(0, {0})"
    found = told("ranks-share-cores", seen(TRAINS, TRAINS, **busy))
    assert "taskset" in found.fix.summary


def test_the_line_that_switches_anomaly_detection_on_is_named(tmp_path: Path) -> None:
    """Not one that switches it off."""
    lines = trains(tmp_path)
    found = told("anomaly-detection-left-on", seen(lines, lines, profile={"anomalies": True}))
    assert found.place.line == 5
    assert found.fix.diff == "-    torch.autograd.set_detect_anomaly(True)"
    assert "at least" not in found.fix.summary


LOADS = """\
def collate(batch, longest):
    for sample in batch:
        for j in range(longest):
            if j < len(sample):
                row.append(int(sample[j]))
            else:
                row.append(0)
def jitter(img):
    for c in range(3):
        out[c] = torch.roll(img[c], 2)
def load(paths):
    for i in range(len(paths)):
        images.append(decode(paths[i]))
"""


@pytest.mark.parametrize(
    ("number", "part", "said"),
    [
        (5, 300.0, "train.py:3 goes through numbers one by one, 40 reads of a tensor a step: 30% of the time"),
        (10, 300.0, "train.py:9 fills a tensor piece by piece: 30% of the time"),
        (13, 300.0, ""),
        (5, 60.0, ""),
    ],
)
def test_a_python_loop_that_most_of_the_loading_goes_to_comes_before_workers(
    number: int, part: float, said: str, tmp_path: Path
) -> None:
    """By what the loop does; one that decodes files is no such loop, nor one that takes a little of the loading."""
    script = tmp_path / "train.py"
    script.write_text(LOADS)
    inside = (str(script), number, "f", int(part * MS), int(part * MS), 0)
    loads = line(1, "data", 450, inner=(str(script), number, "f"))._replace(file=str(script), inside=(inside,))
    parts = {"total": 30.0, "data": 16.0, "forward": 4.0, "backward": 8.0}
    calls = (TimedCall("Tensor.__int__", str(script), 5, "collate", 2000, 50, MS),)
    ((slug, found),) = seen((*TRAINS, loads), (*TRAINS, loads), parts=(parts, parts), calls=calls)
    assert slug == "waiting-for-data"
    assert said in found.message
    assert ("num_workers second" in found.fix.summary) is bool(said)
    assert bool(found.fix.diff) is not bool(said)


def test_workers_are_advised_where_there_are_cores_for_them() -> None:
    """Two ranks on two cores leave none; what loads waits for the storage needs none."""
    loads = line(1, "data", 450)
    parts = FAST | {"data": 16.0, "backward": 4.0}
    for cpus, diff in ((2, False), (4, True)):
        ((_, found),) = seen((*TRAINS, loads), (*TRAINS, loads), parts=(parts, parts), cpus=cpus)
        assert bool(found.fix.diff) is diff
    sleeps = line(1, "data", 450, computes=0.1)
    ((_, found),) = seen((*TRAINS, sleeps), (*TRAINS, sleeps), parts=(parts, parts), cpus=2)
    assert "num_workers=" in found.fix.diff


EMA = """\
import copy
class Shadow:
    def update(self, model):
        new = copy.deepcopy(model)
        for k, v in new.state_dict().items():
            v.mul_(1 - self.decay).add_(self.old[k], alpha=self.decay)
def snapshot(model):
    return copy.deepcopy(model.state_dict())
"""


def test_a_copy_for_an_average_of_the_weights_is_left_out_not_made_seldom(tmp_path: Path) -> None:
    """An average that is updated once in many steps is another one; a snapshot is as good then."""
    script = tmp_path / "ema.py"
    script.write_text(EMA)
    assert averages(str(script), 4)
    for number, said in ((4, "copy nothing: update the average"), (8, "copy once in many steps")):
        assert averages(str(script), number) is (number == 4)
        copies = line(30, "copied", 300, inner=(str(script), number, "update"))
        ((slug, found),) = seen((*TRAINS, copies), (*TRAINS, copies))
        assert slug == "needless-work-in-step"
        assert found.fix.summary.startswith(said)


class Recorder:
    """A rank that keeps what it tells."""

    log = object()

    def __init__(self) -> None:
        """Begin with nothing told."""
        self.told: list[dict[str, object]] = []

    def emit(self, _: type, **values: object) -> None:
        """Keep it."""
        self.told.append(values)


def test_a_collection_of_garbage_counts_once() -> None:
    """A look that comes between its end and what is told of it waits for that: the line has not the time twice."""
    recorder = Recorder()
    lines = Lines(recorder)  # type: ignore[arg-type]
    kept = [{number: [number]} for number in range(100_000)]
    lines.begin()
    for step in range(4):
        lines.step = step
        gc.collect()
    lines.end(4)
    assert len(kept) == 100_000
    (event,) = recorder.told
    sampled: tuple[SampledLine, ...] = event["sampled"]  # type: ignore[assignment]
    collected = sum(each.nanoseconds for each in sampled if each.kind == "garbage collected")
    beside = [each.nanoseconds for each in sampled if not each.kind and each.file == __file__]
    assert sum(beside) < collected, sys.version
