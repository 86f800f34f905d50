"""``ddpdoctor stuck`` finds trainings that were started without it, and says where they hang, or that they do not.

All of them are started at once, by plain torchrun, and looked at together.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from helpers import CHECKS, FIXTURES, TORCHRUN, Run

from ddpdoctor.findings import Severity
from ddpdoctor.report.data import as_json
from ddpdoctor.stuck.looks.look import look
from ddpdoctor.stuck.looks.spy import py_spy
from ddpdoctor.stuck.positions import sighting
from ddpdoctor.stuck.ranks.jobs import Job, jobs
from ddpdoctor.stuck.ranks.processes import pythons
from ddpdoctor.stuck.told.sighting_file import as_data, read_sighting
from ddpdoctor.stuck.told.text import ranks_text
from ddpdoctor.stuck.told.verdict import Verdict, verdict
from ddpdoctor.watch.events import Doing

if TYPE_CHECKING:
    from ddpdoctor.stuck.told.sighting import Sighting

pytestmark = pytest.mark.skipif(py_spy() is None, reason="py-spy is not installed")
WINDOW = 2.0
PATIENCE = 80.0
BEGIN = """
import os, subprocess, sys, threading, time
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

def step(model):
    model(torch.ones(2, 4)).sum().backward()
"""
JOIN = """
dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(nn.Linear(4, 1))
"""
HANGING = {
    "store": JOIN
    + """
store = dist.distributed_c10d._get_default_store()
if rank == 1:
    store.wait(["never"])  # here
dist.barrier()
""",
    "asks the store": JOIN
    + """
store = dist.distributed_c10d._get_default_store()
while rank == 1 and not store.check(["never"]):
    time.sleep(1)  # here
dist.barrier()
""",
    "order": JOIN
    + """
a, b = torch.ones(1), torch.ones(1)
if rank == 0:
    dist.all_reduce(a)  # here
    dist.broadcast(b, 0)
else:
    dist.broadcast(b, 0)
    dist.all_reduce(a)
""",
    "iterations": JOIN
    + """
apart = [dist.new_group([0, 1]), dist.new_group([0, 1])]
def reduce(number):
    if number == rank + 2:
        dist.all_reduce(torch.ones(1), group=apart[rank])  # here
def loop():
    for number in range(9):
        reduce(number)
loop()
""",
    "worker": """
LOCK = threading.Lock()
class Numbers(Dataset):
    def __len__(self):
        return 16
    def __getitem__(self, index):
        with LOCK:  # worker
            return torch.ones(4)
"""
    + JOIN
    + """
if rank == 1:
    LOCK.acquire()
for batch in DataLoader(Numbers(), 4, num_workers=1, multiprocessing_context="fork"):  # here
    step(model)
""",
    "handler": JOIN
    + """
def load():
    if rank == 1:
        raise ValueError("a bad sample")
for number in range(9):
    try:
        load()
        step(model)
    except ValueError:
        dist.barrier()  # here
""",
    "all stand": JOIN
    + """
step(model)
threading.Event().wait()  # here
""",
    "leaves": JOIN
    + """
if rank == 1:
    os._exit(0)
dist.new_group()  # here
""",
    "never joins": """
if os.environ["RANK"] == "1":
    time.sleep(3600)  # here
"""
    + JOIN,
}
MOVING = {
    "evaluates": JOIN
    + """
step(model)
while rank == 0:
    torch.ones(256, 256) @ torch.ones(256, 256)
    time.sleep(0.01)
dist.barrier()
""",
    "trains": JOIN
    + """
while True:
    step(model)
    time.sleep(0.01)
""",
    "slow data": """
class Slow(Dataset):
    def __len__(self):
        return 100_000
    def __getitem__(self, index):
        time.sleep(0.1)
        return torch.ones(4)
def train():
    for number, batch in enumerate(DataLoader(Slow(), 4)):
        step(model)
"""
    + JOIN
    + "train()",
    "helper": JOIN
    + """
HELPER = "import os; [sum(range(9_999)) for _ in iter(lambda p=os.getppid(): os.getppid() == p, False)]"
if rank == 1:
    subprocess.run([sys.executable, "-S", "-c", HELPER], timeout=600)
dist.barrier()
""",
}
SCRIPTS = HANGING | MOVING
HANGS = {
    "store": "rank-died-or-stuck",
    "asks the store": "rank-died-or-stuck",
    "order": "collective-order-mismatch",
    "iterations": "ranks-diverge",
    "worker": "rank-died-or-stuck",
    "handler": "exception-swallowed",
    "all stand": "rank-died-or-stuck",
    "leaves": "rank-left-early",
    "never joins": "missing-ranks-at-init",
}
FIXTURE_HANGS = {
    "collective_order_mismatch": "collective-order-mismatch",
    "collective_timeout": "collective-timeout",
    "rank0_only_collective": "rank0-only-collective",
    "rank_died_or_stuck": "rank-died-or-stuck",
    "ranks_diverge": "ranks-diverge",
    "receive_deadlock": "receive-deadlock",
}


def decided(seen: Sighting) -> Verdict:
    """Return what the checks say."""
    return verdict(seen, CHECKS, WINDOW)


class Started:
    """Jobs that run, by name: each is looked at again and again, until it stands, or all its ranks have joined."""

    def __init__(self, runs: dict[str, str]) -> None:
        """Begin with nothing seen; ``runs`` are the launcher's names of the jobs."""
        self._runs = runs
        self._seen: dict[str, Sighting] = {}
        self.jobs: dict[str, Job] = {}

    def see(self, name: str) -> Sighting:
        """Return what is seen of a job; all are looked at together."""
        until = time.monotonic() + PATIENCE
        while name not in self._seen and time.monotonic() < until:
            self._look()
        return self._seen[name]

    def _look(self) -> None:
        there = {each.ranks[0].identity.run.rpartition(".")[0]: each for each in jobs(pythons()[0], {})}
        waiting = {name: there[run] for name, run in self._runs.items() if run in there and name not in self._seen}
        seen, said = look([rank.pid for each in waiting.values() for rank in each.ranks], WINDOW)
        assert not said.refused
        for name, job in waiting.items():
            if not all(each.process.has_torch for each in job.ranks):
                continue  # clients of warm.py, whose processes are not there yet
            found = sighting(job, seen, WINDOW)
            if name in MOVING:
                now = decided(found)
                assert now.report.exit_status(Severity.WARNING) == 0  # at no time is it blamed
                began = all(each.came for each in found.ranks) and now.said.startswith("This training does not hang")
            else:
                began = not any(each.doing in {Doing.WORKING, Doing.DIED} for each in found.positions)
            if began:
                self._seen[name], self.jobs[name] = found, job


def starting(python: str, folder: Path, scripts: dict[str, Path | str]) -> Iterator[Started]:
    """Start jobs of two ranks by plain torchrun; end them afterwards."""
    runs, started = {name: uuid.uuid4().hex for name in scripts}, []
    with ExitStack() as stack:
        for name, script in scripts.items():
            path = folder / name / "train.py"
            path.parent.mkdir()
            path.write_text(BEGIN + script if isinstance(script, str) else script.read_text())
            rendezvous = ("--rdzv_backend=c10d", "--rdzv_endpoint=localhost:0", f"--rdzv_id={runs[name]}")
            log = stack.enter_context((path.parent / "log").open("w"))
            command = (python, str(TORCHRUN), *rendezvous, "--nproc_per_node=2", str(path))
            started.append(subprocess.Popen(command, stdout=log, stderr=log))
        try:
            yield Started(runs)
        finally:
            for process in started:
                process.terminate()
            for process in started:
                process.wait(60)


@pytest.fixture(scope="module")
def started(python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    """Start all jobs that hang."""
    broken = {name: FIXTURES / name / "broken.py" for name in FIXTURE_HANGS}
    yield from starting(python, tmp_path_factory.mktemp("hanging"), {**HANGING, **broken})


@pytest.fixture(scope="class")
def moving(python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    """Start all jobs that move."""
    yield from starting(python, tmp_path_factory.mktemp("moving"), {**MOVING})


def marked(name: str, word: str = "here") -> int:
    """Return the line of a script that is marked."""
    lines = (BEGIN + SCRIPTS[name]).splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# {word}"))


@pytest.mark.parametrize("name", [*HANGS, *FIXTURE_HANGS])
def test_a_hang_is_named(started: Started, name: str) -> None:
    """One check speaks, and of the right cause; the verdict is that it hangs."""
    said = decided(started.see(name))
    assert [each.slug for each in said.report.results] == [(HANGS | FIXTURE_HANGS)[name]]
    assert said.said == "This training hangs."
    assert said.report.exit_status(Severity.WARNING) == 1


@pytest.mark.parametrize("name", HANGING)
def test_the_guilty_line_is_named(started: Started, name: str) -> None:
    """The finding's place is the line at which the rank stands."""
    (finding,) = decided(started.see(name)).report.findings()
    assert finding.place.line == marked(name)


@pytest.mark.parametrize(
    ("name", "words"), [("store", "an answer of the ranks' store"), ("all stand", "event, an Event, to be set")]
)
def test_what_a_rank_waits_for_is_named(started: Started, name: str, words: str) -> None:
    """As the kernel knows it, also where a report of it is read again."""
    seen = started.see(name)
    (finding,) = decided(seen).report.findings()
    assert f"and waits for {words}" in finding.message
    again = read_sighting("report", {"facts": {"stuck": json.loads(json.dumps(as_data(seen)))}})
    assert again is not None
    assert decided(again).report.findings() == [finding]


def test_the_line_of_a_worker_is_named(started: Started) -> None:
    """A rank that waits for its data loader's worker is not the culprit: the worker's line is told, with its text."""
    (finding,) = decided(started.see("worker")).report.findings()
    assert f"train.py:{marked('worker', 'worker')}, and waits for LOCK, which was taken when this" in finding.message
    assert "with LOCK:  # worker" in [each.seen for each in finding.evidence]


class TestMoving:
    """Jobs that are slow, or busy with something else, and do not hang."""

    @pytest.mark.parametrize("name", MOVING)
    def test_a_job_that_moves_does_not_hang(self, moving: Started, name: str) -> None:
        """Ranks that compute, load data slowly, or have another process compute are at work, however others wait."""
        said = decided(moving.see(name))
        assert said.said.startswith("This training does not hang")

    def test_who_works_while_others_wait_is_told(self, moving: Started) -> None:
        """A long evaluation on rank 0 is no hang: it is said that rank 0 works, and who waits for it."""
        said = decided(moving.see("evaluates"))
        assert "rank 0 is at work" in said.said
        assert [each.slug for each in said.report.results] == ["slow-rank"]

    def test_how_far_a_job_came_is_told(self, moving: Started) -> None:
        """The counter of the loop that a rank is in, at the first look and at the last."""
        moving.see("slow data")
        job = moving.jobs["slow data"]
        text = ""
        until = time.monotonic() + PATIENCE
        while not re.search(r"train\.number \d+ to \d+", text) and time.monotonic() < until:
            text = ranks_text(sighting(job, look([each.pid for each in job.ranks], WINDOW)[0], WINDOW))
        assert "train.number" in text


class TestOnTheCommandLine:
    """The command itself, and its report."""

    def test_a_report_says_the_same_again(self, started: Started, ddpdoctor: Run, tmp_path: Path) -> None:
        """What one host has written is read with the same verdict, by stuck and by explain."""
        started.see("rank_died_or_stuck")
        report = tmp_path / "stuck.json"
        pid = started.jobs["rank_died_or_stuck"].ranks[1].pid
        first = ddpdoctor("stuck", "--seconds", "2", "--report", str(report), str(pid))
        assert (first.returncode, first.stderr) == (1, ""), first.stdout
        assert "DDP720 rank-died-or-stuck: rank 1 standing still in train at train.py" in first.stdout
        assert json.loads(report.read_text())["facts"]["stuck"]["verdict"] == "This training hangs."
        assert ddpdoctor("explain", str(report)).stdout == first.stdout

    def test_two_hosts_give_one_verdict(self, started: Started, ddpdoctor: Run, tmp_path: Path) -> None:
        """Each host alone sees one rank; together they tell which of them is missing."""
        both = started.see("rank_died_or_stuck")
        halves = [tmp_path / "0.json", tmp_path / "1.json"]
        for number, half in enumerate(halves):
            seen = replace(both, ranks=(replace(both.ranks[number], host=f"host{number}"),))
            half.write_text(as_json(decided(seen).report, Severity.WARNING, {"stuck": as_data(seen)}))
        alone = ddpdoctor("stuck", str(halves[0]))
        assert alone.returncode == 0
        assert "Undecided: all ranks that were seen wait for others" in alone.stdout
        together = ddpdoctor("explain", *map(str, halves))
        assert together.returncode == 1
        assert "rank 1 standing still in train" in together.stdout
        assert "host1" in together.stdout
        via = f"sh -c 'cat {tmp_path}/{{}}.json'"
        looked = ddpdoctor("stuck", "--hosts", "0,1,2", "--via", via)
        assert (looked.returncode, looked.stdout) == (1, together.stdout)
        assert re.fullmatch(
            r"ddpdoctor: no look on 2: cat: .*: No such file or directory \(exit status 1\)\n", looked.stderr
        )
        assert ddpdoctor("stuck", "--hosts", "0,2", "--via", via).returncode == 2, (
            "nothing found, and not all looked at"
        )

    def test_nothing_is_changed(self, started: Started) -> None:
        """The ranks of a job that hangs come to run no more often for having been looked at."""
        started.see("rank_died_or_stuck")
        job = started.jobs["rank_died_or_stuck"]
        before = [psutil.Process(each.pid).num_ctx_switches() for each in job.ranks]
        look([each.pid for each in job.ranks], WINDOW)
        assert before == [psutil.Process(each.pid).num_ctx_switches() for each in job.ranks]
