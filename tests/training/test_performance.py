"""Where steps go: what the ranks write, how it is added up, and what the checks make of it."""

from __future__ import annotations

import copy
import gc
import json
import os
import threading
import weakref
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from helpers import CHECKS, FIXTURES, Command, Run, Script
from hypothesis import given, strategies as st

from ddpdoctor.checks.performance._steps import behind, promise
from ddpdoctor.report.steps import course, steps_lines
from ddpdoctor.watch.dispatcher import Dispatcher
from ddpdoctor.watch.event_log import BLOCKS, Reader, Writer
from ddpdoctor.watch.events import (
    CallsTimed,
    EpochStarted,
    Joined,
    LinesSampled,
    Profiled,
    RankSteps,
    SampledLine,
    Site,
    StepsTimed,
    TimedCall,
)
from ddpdoctor.watch.events.steps.blocks import MOST, STEPS, Block, Spans
from ddpdoctor.watch.figures.anatomy import steps_data
from ddpdoctor.watch.monitor.seen.cores import throttled
from ddpdoctor.watch.rank.compared.pace import Pace
from ddpdoctor.watch.rank.compared.sampled import is_sampled
from ddpdoctor.watch.rank.measured.line_kinds import Sampled, by_line
from ddpdoctor.watch.rank.measured.lines import Lines

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ddpdoctor.watch.rank.measured.line_kinds import Line

MILLISECOND = 1_000_000
LOOP = Site("/home/me/train.py", 12, "main")


def block(number: int, **parts: float) -> Block:
    """Return so many steps whose parts take so many milliseconds each; ``rest`` is what remains of ``total``."""
    scaled = {name: int(value * STEPS * MILLISECOND) for name, value in parts.items()}
    zero = dict.fromkeys(("data", "first", "forward", "backward", "optimizer"), 0)
    return Block(number=number, end=number * 1_000 * MILLISECOND, **{**zero, **scaled})


def rank(number: int, spans: Sequence[Block], **facts: Any) -> RankSteps:
    """Return the steps of a rank on a CPU."""
    given_facts: dict[str, Any] = {"device": "cpu", "threads": 1, "cpus": 4, **facts}
    return RankSteps(number, 1, tuple(spans), **given_facts)


def like(parts: dict[str, float], count: int = 20) -> list[Block]:
    """Return spans that are all alike."""
    return [block(number, **parts) for number in range(count)]


def found(*ranks: RankSteps, workers: int = 0, passes: int = 1, persistent: bool = False) -> list[str]:
    """Return what all checks find in these steps of a training."""
    dispatcher = Dispatcher(CHECKS)
    for each in ranks:
        pid = 100 + each.rank
        told: dict[str, Any] = {"pid": pid, "time": 1.0, "rank": each.rank}
        list(dispatcher.see(Joined(**told, world_size=len(ranks), backend="gloo")))
        for number in range(passes):
            passed: dict[str, Any] = {
                "loader": 0, "number": number, "training": True, "dataset": "D", "length": 100, "batches": 50,
                "batch_size": 1, "drop_last": False, "workers": workers, "iterable": True, "sampler": None, "given": 0,
                "owning_library": "", "subgroups": False, "persistent": persistent, "site": LOOP,
            }  # fmt: skip
            list(dispatcher.see(EpochStarted(**told, **passed)))
    training = next(iter(dispatcher.trainings))
    event = StepsTimed(pid=0, time=2.0, ranks=ranks)
    slugs = [each.check.slug for each in dispatcher.see_of(training, event)]
    assert not dispatcher.crashes
    return slugs


FAST: dict[str, float] = {"total": 30, "data": 1, "forward": 8, "backward": 18, "optimizer": 2}
BOUND: dict[str, float] = {"total": 30, "data": 20, "forward": 3, "backward": 6, "optimizer": 1}


def test_data_that_all_ranks_wait_for_is_found_with_the_loop() -> None:
    """Both ranks wait two thirds of each step: that is said, and nothing else."""
    assert found(rank(0, like(BOUND)), rank(1, like(BOUND))) == ["waiting-for-data"]


def test_a_training_that_computes_is_not_blamed() -> None:
    """A slow training whose data is there gets no finding, with any number of workers and passes."""
    for workers in (0, 4):
        assert found(rank(0, like(FAST)), rank(1, like(FAST)), workers=workers, passes=5) == []


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"starved": 0.5}, id="its workers wait for a core: the machine is busy"),
        pytest.param({"device": "cuda"}, id="kernels run while Python waits"),
    ],
)
def test_where_it_cannot_be_told_nothing_is_said(change: dict[str, Any]) -> None:
    """The figures are those of a training that waits for data, or of a slow rank, and something else explains them."""
    assert found(rank(0, like(BOUND), **change), rank(1, like(BOUND), **change)) == []
    late = {"total": 30.0, "data": 1.0, "forward": 26.0, "backward": 2.0}
    assert found(rank(0, like(FAST), **change), rank(1, like(late), **change)) == []


def test_a_toy_is_not_blamed() -> None:
    """What is lost in a step has to be worth a change: a few hundred microseconds are not."""
    toy = {name: value / 50 for name, value in BOUND.items()}
    assert found(rank(0, like(toy)), rank(1, like(toy))) == []


def test_a_few_slow_spans_are_no_steady_loss() -> None:
    """A loader that stalls now and then, and an evaluation within the time, make no finding."""
    stalls = [block(number, **(BOUND if number % 3 == 0 else FAST)) for number in range(21)]
    assert found(rank(0, stalls), rank(1, stalls)) == []
    evaluates = [block(number, **(FAST | {"total": 300} if number % 5 == 0 else FAST)) for number in range(20)]
    assert found(rank(0, evaluates), rank(1, like(FAST | {"backward": 19}))) == []


@pytest.mark.parametrize(("part", "slug"), [("data", "one-rank-loads-slowly"), ("forward", "one-rank-is-slow")])
def test_the_rank_that_others_wait_for_is_found(part: str, slug: str) -> None:
    """One of four ranks takes 12 ms longer in each step, and the backward of the others is as much longer."""
    late = FAST | {part: FAST[part] + 12, "backward": FAST["backward"] - 12}
    ranks = [rank(number, like(late if number == 2 else FAST)) for number in range(4)]
    assert found(*ranks) == [slug]


def test_ranks_that_are_slow_in_turn_are_not_blamed() -> None:
    """Sequences of different lengths make another rank the last one in each step."""
    late = FAST | {"forward": 20, "backward": 6}
    spans = [[block(at, **(late if at % 2 == number else FAST)) for at in range(20)] for number in range(2)]
    assert found(*(rank(number, each) for number, each in enumerate(spans))) == []


def test_a_rank_that_nobody_waits_for_is_not_blamed() -> None:
    """One rank works longer, and the others' backward is no longer: they do other things meanwhile."""
    late = FAST | {"forward": 20, "total": 42}
    assert found(rank(0, like(FAST)), rank(1, like(late))) == []


def test_a_rank_with_fewer_cores_is_found_although_it_waits_for_them() -> None:
    """That it may run on one core, where the others have four, is its own and no noise."""
    late = FAST | {"forward": 20, "backward": 6}
    assert found(rank(0, like(FAST)), rank(1, like(late), cpus=1, starved=0.4)) == ["one-rank-is-slow"]
    assert found(rank(0, like(FAST)), rank(1, like(late), starved=0.4)) == []


def test_workers_that_start_in_each_epoch_are_found_and_persistent_ones_not() -> None:
    """A third of the time goes from the start of the loader to its first batch."""
    waits = like({"total": 30, "first": 10, "forward": 8, "backward": 12})
    ranks = rank(0, waits), rank(1, waits)
    assert found(*ranks, workers=2, passes=5) == ["workers-start-each-epoch"]
    assert found(*ranks, workers=2, passes=5, persistent=True) == []
    assert found(*ranks, workers=0, passes=5) == []
    assert found(*ranks, workers=2, passes=2) == [], "two epochs are none that repeat"
    assert found(*ranks, workers=2, passes=150) == [], "a new pass in each step is no epoch"


@given(st.lists(st.integers(1, 10**9), max_size=20).map(lambda few: few * MOST))
def test_spans_lose_no_time_and_are_numbered_alike(totals: list[int]) -> None:
    """However many blocks come, their sums are kept, in order, in few spans that are numbered alike."""
    spans = Spans()
    for number, total in enumerate(totals, start=1):
        spans.add([Block(number, number, total, total // 2, 0, 0, 0, 0)])
    kept = list(spans.spans.values())
    assert sum(each.total for each in kept) == sum(totals)
    assert sum(each.data for each in kept) == sum(total // 2 for total in totals)
    assert len(kept) <= MOST
    assert all(one.number + 1 == other.number for one, other in pairwise(kept))
    assert spans.per == 1 or len(totals) > MOST


def test_the_monitor_reads_each_block_once(tmp_path: Path) -> None:
    """What a rank writes is read once, in order; of what it overwrote the latest is kept."""
    writer = Writer(str(tmp_path))
    reader = Reader(tmp_path / f"{os.getpid()}.events")
    assert reader.blocks() == []
    first = [Block(number, *range(7)) for number in (1, 2, 3)]
    for each in first:
        writer.block(each)
    assert reader.blocks() == first
    assert reader.blocks() == []
    for number in range(4, BLOCKS + 50):
        writer.block(Block(number, *range(7)))
    assert [each.number for each in reader.blocks()] == list(range(50, BLOCKS + 50))


def test_a_step_is_looked_at_if_it_is_sampled_or_the_next_one_is() -> None:
    """And after another model was wrapped; between those nothing is."""

    class Anything:
        """Can be referred to weakly."""

    pace, owner = Pace(weakref.ref(thing := Anything())), thing
    for step in range(1, 2000):
        models = 1 if step < 500 else 2
        assert pace.begin(models) is (is_sampled(step) or is_sampled(step + 1) or step == 500), step
        assert pace.steps == step
    assert owner is not None


def test_the_table_names_what_takes_time_and_says_where_the_machine_was_busy() -> None:
    """Each rank has a line; parts that take nothing have no column."""
    data = steps_data((rank(0, like(BOUND)), rank(1, like(BOUND), starved=0.3)))
    text = "\n".join(steps_lines(data, {}))
    assert "waiting for data" in text
    assert "first batch  " not in text
    assert "67%" in text
    assert "30.0 (30.0 to 30.0)" in text
    assert "waited for a core 30%" in text
    many = steps_data([rank(number, like(FAST)) for number in range(100)])
    assert "and 84 more ranks" in "\n".join(steps_lines(many, {}))
    assert "Too few steps" in steps_lines({}, {})[0]


@pytest.mark.usefixtures("no_process_left")
def test_a_profile_is_printed_and_reported(ddpdoctor: Run, torchrun: Command, tmp_path: Path) -> None:
    """The table has a line for each rank, what was measured closely is told, and the report has the figures."""
    script = str(FIXTURES / "communication_not_hidden" / "broken.py")
    report = tmp_path / "report.json"
    done = ddpdoctor("run", "--profile", "20", "--report", str(report), "--", *torchrun, script)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert any("Where a step goes" in line for line in lines)
    assert any("Measured closely, 20 steps" in line for line in lines)
    facts = json.loads(report.read_text())["facts"]
    assert set(facts["steps"]) == set(facts["profile"]) == {"0", "1"}
    for rank in facts["steps"].values():
        for _, total, *rest in rank["spans"]:
            assert sum(rest) == pytest.approx(total, rel=0.01), "the parts make up the whole"
    assert all(each["exposed"][1] > 0.02 for each in facts["profile"].values()), "the link takes 30 ms a step"


def timed(*calls: TimedCall, steps: int = 50, total: float = 20.0, ranks: int = 2, starved: float = 0.0) -> list[str]:
    """Return what is said of calls that all ranks make, in steps of so many milliseconds."""
    dispatcher = Dispatcher(CHECKS)
    for number in range(ranks):
        told: dict[str, Any] = {"pid": 100 + number, "time": 1.0, "rank": number}
        list(dispatcher.see(Joined(**told, world_size=ranks, backend="gloo")))
        each = (int(total * MILLISECOND),) * steps
        measured: dict[str, Any] = {"exposed": each[:0], "hidden": each[:0], "buckets": (), "cost": 0.0}
        shares: dict[str, Any] = {"model": 0, "forwards": 1.0, "synced": 1.0, "backwards": 1.0}
        list(dispatcher.see(Profiled(**told, **measured, **shares, total=each)))
        list(dispatcher.see(CallsTimed(**told, steps=steps, calls=calls)))
    parts = [rank(number, like(FAST), starved=starved) for number in range(ranks)]
    event = StepsTimed(pid=0, time=2.0, ranks=tuple(parts))
    found = dispatcher.see_of(next(iter(dispatcher.trainings)), event)
    assert not dispatcher.crashes
    return [each.finding.message for each in found if each.check.slug == "blocking-calls-in-step"]


def call(what: str, milliseconds: float, *, times: int = 50, steps: int = 50) -> TimedCall:
    """Return calls of a line of the script."""
    return TimedCall(what, LOOP.file, LOOP.line, LOOP.function, times, steps, int(milliseconds * MILLISECOND))


def test_a_line_that_takes_a_large_part_of_each_step_is_named() -> None:
    """With its share; a call that takes a microsecond, or is made now and then, is nobody's fault."""
    assert timed(call("Tensor.item", 6, times=100)) == [
        "Tensor.item() at /home/me/train.py:12 takes 6.0 ms of each step of 20.0 ms: 30%, 2 calls a step"
    ]
    assert timed(call("print", 5))[0].startswith("print at /home/me/train.py:12 takes 5.0 ms")
    assert timed(call("barrier", 5))[0].startswith("barrier at")
    assert timed(call("Tensor.item", 0.001, times=5000)) == []
    assert timed(call("print", 5, times=5, steps=5)) == []
    assert timed(call("print", 5, steps=20, times=5000)) == []
    assert timed(call("print", 1.9), total=10) == []
    assert timed(call("print", 6), starved=0.5) == []


def test_what_is_counted_is_told_where_nothing_can_be_timed() -> None:
    """On a loaded machine: an exchange in each backward, a search in vain, small buckets; else nothing."""
    usual: dict[str, Any] = {
        "steps": 30, "total": [0.1] * 3, "exposed": [0.05] * 3, "hidden": [0.0] * 3, "buckets": [1 << 20], "reduced": 1,
        "searched_in_vain": False, "cost": 0.0, "calls": [], "lines": [],
    }  # fmt: skip
    wrong = {**usual, "buckets": [1000] * 40, "reduced": 8, "searched_in_vain": True}

    def told(profile: dict[str, Any], starved: float) -> str:
        figures = steps_data([rank(number, like(FAST), starved=starved) for number in range(2)])
        return "\n".join(steps_lines(figures, {"0": profile, "1": profile}))

    said = told(wrong, 0.8)
    assert "each step has 8 backwards, and the gradients are averaged in each (model.no_sync())" in said
    assert "looks for unused parameters in each step, and all were used" in said
    assert "gradients travel in 40 small buckets" in said
    assert "needs no clock" not in told(usual, 0.8)
    assert "needs no clock" not in told(wrong, 0.0), "the checks measure it"


def test_lines_that_read_tensors_are_told_together_where_each_takes_little() -> None:
    """Five lines of a helper, 6 % of a step each; on a machine that is busy, and where they take little, nothing."""
    lines = [TimedCall("Tensor.item", LOOP.file, at, "update", 100, 50, int(1.2 * MILLISECOND)) for at in range(30, 35)]
    (said,) = timed(*lines)
    assert said.startswith(
        "5 lines read tensors, 10 times a step, and take 6.0 ms of each step of 20.0 ms together: 30%"
    )
    assert timed(lines[0]) == []
    assert timed(*lines, starved=0.5) == []
    assert timed(*[each._replace(what="barrier") for each in lines]) == []
    (said,) = timed(*[each._replace(what="logging" if each is lines[1] else "print") for each in lines[:3]])
    assert said.startswith(
        "3 lines print or log, 6 times a step, and take 3.6 ms of each step of 20.0 ms together: 18%"
    )
    assert timed(lines[0], lines[1]._replace(what="print")) == [], "each of its kind"
    assert timed(*[each._replace(nanoseconds=MILLISECOND // 10) for each in lines]) == []


def test_a_promise_has_the_spread_of_the_steps_that_it_is_made_of() -> None:
    """The median of what is left, and what a tenth of the steps lies below and above: as wide as the steps differ."""
    took = [0.030 + 0.001 * each for each in range(11)]
    assert promise(took, [0.020] * 11) == "about 15 (11 to 19) instead of 35 ms a step"
    assert promise([0.004] * 5, [0.0035] * 5) == "about 0.5 (0.5 to 0.5) instead of 4.0 ms a step"
    assert promise([0.010] * 3, [0.020, 0.001, 0.001]) == "about 9 (0 to 9) instead of 10 ms a step"
    found = behind(
        StepsTimed(pid=0, time=1.0, ranks=(rank(0, like(FAST)), rank(1, like(FAST | {"forward": 20, "backward": 6})))),
        "forward",
    )
    assert found is not None
    assert found.promise == "about 18 (18 to 18) instead of 30 ms a step"


PROFILED = """
import logging, sys
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
class Agrees(nn.Module):
    def forward(self, inputs):
        scale = inputs.detach().abs().max()
        dist.all_reduce(scale)
        return inputs / max(scale.item(), 1.0)
model = DDP(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), Agrees()))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-6)
plain = torch.Tensor.__dict__.get("item"), print, dist.Work.wait
def metric(loss):
    total = loss.detach().clone()
    dist.all_reduce(total)
    return total.item()
for step in range(30):
    optimizer.zero_grad()
    loss = model(torch.ones(8, 4)).sum()
    features = torch.ones(64, 64)
    dist.all_reduce(features)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
    optimizer.step()
    metric(loss)
    dist.all_reduce(features)  # after the update
    if step % 10 == 0:
        print("step", step)
assert plain == (torch.Tensor.__dict__.get("item"), print, dist.Work.wait)
dist.destroy_process_group()
"""


def test_calls_are_counted_by_the_line_that_makes_them(
    ddpdoctor: Run, torchrun: Command, script: Script, tmp_path: Path
) -> None:
    """What the user's own lines call, not what torch does for them; afterwards torch is as before.

    What is large counts after the update alone: before it, the training is made of it.
    """
    report = tmp_path / "report.json"
    file = script(PROFILED)
    done = ddpdoctor("run", "--profile", "10", "--report", str(report), "--", *torchrun, file)
    assert done.returncode == 0, done.stderr

    for rank_profile in json.loads(report.read_text())["facts"]["profile"].values():
        calls = {(each["what"], each["line"]): each["calls"] for each in rank_profile["calls"]}
        metric = PROFILED.splitlines().index("    dist.all_reduce(total)") + 1
        assert calls.pop(("all_reduce", metric)) >= 1
        assert calls.pop(("Tensor.item", metric + 1)) == 1
        assert (
            calls.pop(
                ("all_reduce", PROFILED.splitlines().index("    dist.all_reduce(features)  # after the update") + 1)
            )
            == 1
        )
        assert calls == {}


@given(st.lists(st.floats(1e-4, 10), min_size=1, max_size=200))
def test_the_course_of_steps_is_drawn_where_they_change(took: list[float]) -> None:
    """In plain ASCII and a bounded width; the longest step is the highest."""
    drawn = course([(0.0, each) for each in took])
    assert drawn == "" or 8 <= len(drawn) <= 24
    assert set(drawn) <= set("_.-=+*#")
    assert drawn == "" or "#" in drawn


def test_steps_that_get_slower_show_it() -> None:
    """A processor that is throttled in the middle of a run; steps that are alike make no column."""
    spans = [block(number, **(FAST if number < 10 else FAST | {"total": 90, "forward": 60})) for number in range(20)]
    lines = "\n".join(steps_lines(steps_data([rank(0, spans), rank(1, spans)]), {}))
    assert "first to last step" in lines
    assert "__________##########" in lines
    assert "first to last" not in "\n".join(steps_lines(steps_data([rank(0, like(FAST))]), {}))


def stack(*lines: int, file: str = "/home/me/train.py") -> tuple[Line, ...]:
    """Return frames of a script, outermost first; the function of each has the place of its frame as its name."""
    return tuple((file, line, f"f{at}") for at, line in enumerate(lines))


def sampled(clock: int, *, processor: int | None = None, steps: int = 20) -> Sampled:
    """Return so many milliseconds in so many steps."""
    worked = clock if processor is None else processor
    return Sampled(clock * MILLISECOND, worked * MILLISECOND, set(range(steps)))


def test_lines_are_those_of_the_loop_with_the_line_they_spend_most_in() -> None:
    """However many functions lie around the loop, and below its lines."""
    told = by_line(
        {
            ("", stack(90, 40, 12, 3)): sampled(30),
            ("", stack(90, 40, 12, 4)): sampled(50),
            ("backward", stack(90, 40, 13)): sampled(60),
            ("data", stack(90, 40, 11, 7)): sampled(40),
        }
    )
    assert [(each.kind, each.line, each.nanoseconds // MILLISECOND) for each in told] == [
        ("", 12, 80),
        ("backward", 13, 60),
        ("data", 11, 40),
    ]
    assert (told[0].inner_line, told[0].most // MILLISECOND) == (4, 50)


@given(st.dictionaries(st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple), st.integers(0, 50), min_size=1))
def test_the_lines_of_a_loop_lose_little_of_the_time(stacks: dict[tuple[int, ...], int]) -> None:
    """Whatever the stacks are, no time is counted twice, and a loop without many lines is told as a whole."""
    told = by_line({("", stack(*lines)): sampled(clock) for lines, clock in stacks.items()})
    whole = sum(stacks.values())
    found = sum(each.nanoseconds for each in told) // MILLISECOND
    assert 0.9**4 * whole - 1 <= found <= whole
    assert all(each.most <= each.nanoseconds for each in told)


def test_a_sampler_says_what_a_line_does() -> None:
    """Of a running thread: what torch, or Python, does there, and the user's lines; it ends with its window."""

    class Told:
        """What a rank would write to."""

        log = object()
        events: ClassVar[list[dict[str, Any]]] = []

        def emit(self, _: type, **values: Any) -> None:
            self.events.append(values)

    before = len(gc.callbacks)
    lines = Lines(Told())  # type: ignore[arg-type]  # all that it asks of a rank
    lines.begin()
    for step in range(8):
        lines.step = step
        gc.collect()
        copies = copy.deepcopy({number: [number] for number in range(4000)})
    lines.end(8)
    assert len(copies) == 4000
    assert len(gc.callbacks) == before
    assert not [each for each in threading.enumerate() if each.name == "ddpdoctor-lines"]
    (event,) = Told.events
    kinds = {each.kind: each for each in event["sampled"]}
    assert {"copied", "garbage collected"} <= set(kinds)
    assert kinds["garbage collected"].steps == 8
    assert sum(each.nanoseconds for each in event["sampled"]) <= event["nanoseconds"]


def looked(kind: str, part: float, *, processor: float = 1.0, steps: int = 50, **ranks: Any) -> list[str]:
    """Return what is found where a line of rank 0 takes a part of its time, in steps of 20 ms."""
    dispatcher = Dispatcher(CHECKS)
    for number in (0, 1):
        told: dict[str, Any] = {"pid": 100 + number, "time": 1.0, "rank": number}
        list(dispatcher.see(Joined(**told, world_size=2, backend="gloo")))
        given_profile: dict[str, Any] = {
            "exposed": (0,), "hidden": (0,), "buckets": (), "cost": 0.0, "model": 0, "forwards": 1.0, "synced": 1.0,
            "backwards": 1.0, "searches": True, **ranks.get("profile", {}),
        }  # fmt: skip
        list(dispatcher.see(Profiled(**told, total=(20 * MILLISECOND,) * 50, **given_profile)))
        whole = 1000 * MILLISECOND
        line = SampledLine(
            kind, LOOP.file, 12, "main", int(part * whole), int(part * processor * whole), steps,
            LOOP.file, 3, "helper", int(part * whole),
        )  # fmt: skip
        list(dispatcher.see(LinesSampled(**told, steps=50, nanoseconds=whole, processor=whole, sampled=(line,))))
    facts = {name: value for name, value in ranks.items() if name != "profile"}
    event = StepsTimed(pid=0, time=2.0, ranks=tuple(rank(number, like(FAST), **facts) for number in (0, 1)))
    found = dispatcher.see_of(next(iter(dispatcher.trainings)), event)
    assert not dispatcher.crashes
    return [f"{each.check.slug}: {each.finding.message}" for each in found]


def test_work_that_each_step_does_needlessly_is_named_with_its_share() -> None:
    """Once in many steps it is nobody's fault; on a busy machine what the thread computes counts."""
    said = "needless-work-in-step: /home/me/train.py:3 writes a checkpoint in each step: 8.0 of 20.0 ms, 40%"
    assert looked("checkpoint written", 0.4) == [said]
    assert looked("checkpoint written", 0.4, starved=0.8) == [said], "it computes as much"
    assert looked("checkpoint written", 0.4, starved=0.8, processor=0.1) == [], "it waits, as all do on this machine"
    assert looked("checkpoint written", 0.4, steps=4) == []
    assert looked("checkpoint written", 0.08) == []
    assert looked("checkpoint written", 0.4, steps=10)[0].endswith("in 10 of 50 steps: 8.0 of 20.0 ms a step, 40%")
    assert looked("loader begun", 0.4, steps=10) == looked("garbage collected", 0.4, steps=10) == [], "as epochs are"
    assert looked("", 0.9) == looked("module called", 0.9) == [], "the user's own code is not judged"


def test_a_search_for_parameters_that_are_all_used_is_measured() -> None:
    """It is no fault where one step of 50 had an unused parameter, where nothing is searched, or it costs little."""
    (said,) = looked("graph searched", 0.15)
    assert said.endswith("and there are none: 3.0 of 20.0 ms, 15%")
    assert looked("graph searched", 0.15, profile={"unused": 4}) == []
    assert looked("graph searched", 0.15, profile={"searches": False}) == []
    assert looked("graph searched", 0.03) == looked("graph searched", 0.15, steps=4) == []
    assert looked("graph searched", 0.15, starved=0.8, processor=0.1) == []
    assert looked("graph searched", 0.15, device="cuda") == []


def buckets(*sizes: int, exposed: float = 8, largest: int = 0, **facts: Any) -> list[str]:
    """Return what is said of these buckets, where the backward waits so many of 20 ms for them."""
    values = (int(exposed * MILLISECOND),) * 50
    profile = {"exposed": values, "hidden": (0,) * 50, "buckets": sizes, "largest": largest, "searches": False}
    found = looked("", 0.0, profile=profile, **facts)
    return [each for each in found if each.startswith("bucket-size-unfit")]


def test_buckets_that_are_far_too_small_or_hold_everything_are_told() -> None:
    """As DDP makes them by default they are right, whatever the backward waits; so is one that holds one parameter."""
    mib = 1 << 20
    assert "gradients travel in 40 buckets of 20.0 KiB on average" in buckets(*(20 * 1024,) * 40)[0]
    assert "98% of all gradients are in one bucket" in buckets(200 * mib, 4 * mib)[0]
    assert buckets(mib, *(25 * mib,) * 8) == buckets(300 * 1024) == []
    assert buckets(200 * mib, 4 * mib, largest=190 * mib) == []
    assert buckets(*(20 * 1024,) * 40, exposed=1) == []
    assert "40 buckets of 20.0 KiB on average, 1 by default" in buckets(*(20 * 1024,) * 40, starved=0.5)[0]
    assert buckets(200 * mib, 4 * mib, starved=0.5) == []


def test_a_rank_that_something_keeps_from_its_cores_is_told_with_what_it_is() -> None:
    """By a quota, or by who computes on the cores that it is bound to; not where all ranks wait for cores."""
    late = FAST | {"forward": 20, "backward": 6}

    def said(mine: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
        return found(rank(0, like(FAST), **theirs), rank(1, like(late), **mine))

    slug = "one-rank-lacks-a-core"
    hog = (("python", 4711, 0.6),)
    assert slug in said({"throttled": 0.5, "starved": 0.5}, {})
    assert slug in said({"starved": 0.6, "beside": hog}, {})
    assert slug not in said({"throttled": 0.5, "starved": 0.5}, {"throttled": 0.5})
    assert slug not in said({"starved": 0.6, "beside": hog}, {"starved": 0.6, "beside": hog})
    assert slug not in said({"starved": 0.6}, {}), "nobody knows what keeps it"
    assert slug not in found(rank(0, like(FAST), throttled=0.5), rank(1, like(FAST))), "nobody waits for it"


def test_what_a_quota_takes_is_read_from_both_kinds_of_cgroups(tmp_path: Path) -> None:
    """Of the process' own group, or one above it, wherever it is mounted."""
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "7").mkdir(parents=True)
    for folder, text in (
        ("cpu/pod/a", "nr_throttled 3\nthrottled_time 2500000000\n"),
        ("pod", "throttled_usec 500000\n"),
    ):
        (groups / folder).mkdir(parents=True)
        (groups / folder / "cpu.stat").write_text(text)
    (proc / "7" / "cgroup").write_text("3:cpu,cpuacct:/pod/a\n0::/\n")
    assert throttled(7, proc, groups) == 2.5
    (proc / "7" / "cgroup").write_text("0::/pod/b\n")
    assert throttled(7, proc, groups) == 0.5
    assert throttled(8, proc, groups) == 0.0
