"""What the lines of the loop say where a machine is busy: waits for a core left out, and what one rank alone does."""

from __future__ import annotations

import sys
import sysconfig
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st
from measured_steps import FAST, FILE, MS, TRAINS, line, seen, spans

from ddpdoctor.checks.performance.source._step_body import seldom
from ddpdoctor.watch.events import (
    SampledLine,
    TimedCall,
)
from ddpdoctor.watch.rank.measured.line_kinds import Sampled, by_line, stack_of

if TYPE_CHECKING:
    from pathlib import Path

    from ddpdoctor.findings import Finding


@pytest.mark.parametrize("starved", [0.0, 0.6])
@pytest.mark.parametrize("kind", ["checkpoint written", "", "module called"])
def test_what_one_rank_alone_does_while_others_wait_is_found(starved: float, kind: str) -> None:
    """Every fifth step, in a line that no other rank comes to, and the others wait in a barrier: busy or not."""
    mine = (*TRAINS, line(30, kind, 350, steps=10), line(31, "collective", 20))
    others = (*TRAINS, line(31, "collective", 370))
    (found,) = [each for slug, each in seen(mine, others, others, starved=starved) if slug == "one-rank-is-slow"]
    assert found.message.startswith("rank 0 alone works 7 of 20 ms a step at /home/me/train.py:30, in 10 of 50 steps")
    assert found.evidence[1].seen.startswith("37% of the time at /home/me/train.py:31")
    assert found.place.rank == 0


@pytest.mark.parametrize(
    ("mine", "others"),
    [
        pytest.param(line(30, "", 350, steps=10), line(30, "", 340), id="all do it"),
        pytest.param(line(30, "", 350, steps=2), line(31, "collective", 370), id="once in many steps"),
        pytest.param(line(30, "", 350, steps=10), line(40, "", 370), id="the others do something else meanwhile"),
        pytest.param(line(30, "", 90, steps=10), line(31, "collective", 110), id="it takes a tenth"),
        pytest.param(line(30, "", 350, steps=10, waited=300), line(31, "collective", 370), id="it waited for a core"),
        pytest.param(line(30, "", 350, function="step"), line(31, "collective", 370), id="another function's lines"),
    ],
)
def test_ranks_that_work_alike_or_seldom_apart_are_not_blamed(mine: SampledLine, others: SampledLine) -> None:
    """What all do, what is rare, what nobody waits for, and what a busy machine took is nobody's fault."""
    assert seen((*TRAINS, mine), (*TRAINS, others)) == []


BACKWARD = line(20, "backward", 600, computes=0.9), line(20, "backward", 750, computes=0.4)


@pytest.mark.parametrize(
    ("worked", "lines", "starved", "found"),
    [
        pytest.param((18.0, 9.0), BACKWARD, 0.0, True, id="twice as long"),
        pytest.param((18.0, 9.0), BACKWARD, 0.5, True, id="on a busy machine as well"),
        pytest.param((18.0, 14.0), BACKWARD, 0.0, False, id="a quarter longer, as cores differ"),
        pytest.param((18.0, 9.0), BACKWARD[:1] * 2, 0.0, False, id="nobody waits"),
        pytest.param((18.0, 18.0), BACKWARD, 0.0, False, id="all alike"),
        pytest.param(((18.0, 8.0), (8.0, 18.0)), BACKWARD, 0.0, False, id="by turns"),
    ],
)
def test_a_rank_whose_backward_computes_longer_is_found_by_the_time_of_its_processor(
    worked: tuple[Any, Any], lines: tuple[SampledLine, SampledLine], starved: float, found: object
) -> None:
    """By the clock the backward of all ranks ends together; longer sequences show in what the processor does."""
    steps = [each * 25 if isinstance(each, tuple) else (each,) * 50 for each in worked]
    told = seen((lines[0],), (lines[1],), each_step=steps, starved=starved)
    slow = [each.message for slug, each in told if slug == "one-rank-is-slow"]
    assert bool(slow) is found, told
    assert all(each.startswith("rank 0 computes 9 ms a step longer than the others") for each in slow)


def test_a_rank_that_loads_for_all_is_found_and_one_that_loads_its_own_is_none_of_this_check() -> None:
    """Rank 0 loads and scatters: the others load nothing. Where they load as well, their waits tell."""
    loads, waits = line(30, "data", 400), line(31, "collective", 420)
    ((slug, found),) = seen((*TRAINS, loads), (*TRAINS, waits))
    assert slug == "one-rank-is-slow"
    assert "DistributedSampler" in found.fix.summary
    assert seen((*TRAINS, loads), (*TRAINS, waits, line(40, "data", 10))) == []


def test_a_sleeping_line_counts_on_a_busy_machine_without_its_waits_for_a_core() -> None:
    """A checkpoint on a slow disk computes next to nothing, and is found; what waited for a core is not."""
    busy = line(20, "backward", 600, waited=300)
    writes = line(30, "checkpoint written", 300, computes=0.05)
    assert [slug for slug, _ in seen((busy, writes), (busy, writes), starved=0.5)] == ["needless-work-in-step"]
    waits = line(30, "checkpoint written", 300, waited=290, computes=0.05)
    assert seen((busy, waits), (busy, waits), starved=0.5) == []


def test_a_function_that_reads_many_tensors_is_told_once_and_nothing_is_left_out_of_the_training() -> None:
    """Clipping by hand reads each parameter twice: one finding, and no diff that would clip each hundredth time."""
    calls = tuple(TimedCall("Tensor.item", FILE, at, "clip", 5000, 50, MS // 10) for at in (3, 5))
    lines = (line(20, "backward", 500), line(21, "", 300, inner=(FILE, 4, "clip")))
    (found,) = [each for slug, each in seen(lines, lines, calls=calls) if slug == "blocking-calls-in-step"]
    said = "clip(), called at /home/me/train.py:21, reads tensors 200 times a step, and takes 6.0 ms of each step of"
    assert found.message.startswith(said)
    assert not found.fix.diff


def test_of_a_small_collective_no_more_is_promised_than_its_line_had() -> None:
    """Timing calls makes them longer: the line's share of the time before that is the bound."""
    calls = (TimedCall("all_reduce", FILE, 7, "average", 500, 50, 18 * MS),)
    lines = (line(20, "backward", 600), line(21, "collective", 300, inner=(FILE, 7, "average")))
    (found,) = [each for slug, each in seen(lines, lines, calls=calls) if slug == "blocking-calls-in-step"]
    assert "takes 6.0 ms of each step of 20.0 ms: 30%, 10 calls a step" in found.message
    assert "put the 10 numbers of a step into one tensor" in found.fix.summary


def test_what_is_large_is_told_by_its_own_check_where_no_rank_waits_for_a_core() -> None:
    """A fifth of the step and more; small ones are the other check's; a rank without a core keeps all waiting."""
    large = TimedCall("all_reduce", FILE, 7, "average", 50, 50, 6 * MS, numbers=10**6)
    lines = (line(20, "backward", 600), line(21, "collective", 300, inner=(FILE, 7, "average")))
    ((slug, found),) = seen(lines, lines, calls=(large,))
    assert slug == "large-collective-each-step"
    assert (
        "exchanges 1,000,000 numbers after the update, and takes 6.0 ms of each step of 20.0 ms: 30%" in found.message
    )
    assert seen(lines, lines, calls=(large,), starved=0.5) == []
    assert seen(lines, lines, calls=(large._replace(nanoseconds=MS),)) == []
    assert [slug for slug, _ in seen(lines, lines, calls=(large._replace(numbers=10),))] == ["blocking-calls-in-step"]


def test_of_loaders_that_load_ahead_not_one_is_blamed_where_all_are_slow() -> None:
    """With workers the loader that is slower by a hundredth waits for all; without them the wait is what it loads."""
    late = FAST | {"data": 20.0, "backward": 2.0, "total": 33.0}
    waits = FAST | {"data": 8.0, "backward": 14.0, "total": 33.0}
    lines = (line(20, "backward", 100),)

    def said(other: dict[str, float], workers: int) -> list[tuple[str, Finding]]:
        found = seen(lines, lines, workers=workers, parts=(other, late))
        return [each for each in found if each[0] == "one-rank-loads-slowly"]

    assert said(waits, 2) == []
    assert len(said(waits, 0)) == 1
    ((_, found),) = said(FAST | {"backward": 22.0, "total": 33.0}, 2)
    assert "instead of" not in found.fix.summary, "how much slower it is nobody knows"


@pytest.mark.parametrize(
    ("path", "said"),
    [("self.path", "it is the same file for each item: read it once and keep it, about 10"), ("i", "let workers load")],
)
def test_what_each_item_reads_anew_is_read_once_before_there_are_workers(tmp_path: Path, path: str, said: str) -> None:
    """Where each item has a file of its own, workers are what helps."""
    (file := tmp_path / "train.py").write_text(
        "class Data:\n    def __init__(self, path):\n        self.path = path\n    def __getitem__(self, i):\n"
        f"        text = open({path}).read()\n        return text[i]\n"
    )
    loads = line(20, "data", 600)
    loads = loads._replace(inside=((str(file), 5, "__getitem__", 500 * MS, 500 * MS, 0),))
    slow = {"total": 20.0, "data": 12.0, "forward": 3.0, "backward": 4.0, "optimizer": 1.0}
    ((slug, found),) = seen((loads, TRAINS[0]), (loads, TRAINS[0]), parts=(slow, slow))
    assert slug == "waiting-for-data"
    assert found.fix.summary.startswith(said)
    assert ("each item reads the same file (self.path) anew" in found.message) is (path == "self.path")


def test_workers_that_wait_for_the_storage_are_not_limited_by_cores() -> None:
    """A loader that sleeps is given as many as keep up with the training; one that computes no more than cores."""
    waits = {"total": 30.0, "data": 26.0, "forward": 1.0, "backward": 2.0, "optimizer": 1.0}

    def advised(workers: int, computes: float, **facts: Any) -> str:
        lines = (line(11, "data", 850, computes=computes), line(20, "backward", 150))
        found = seen(lines, lines, workers=workers, parts=(waits, waits), **{"cpus": 2, **facts})
        ((slug, finding),) = found
        assert slug == "waiting-for-data"
        return finding.fix.diff or finding.fix.summary

    assert "num_workers=7," in advised(0, 0.1)
    assert "num_workers=2," in advised(0, 1.0, cpus=4)
    assert "2 ranks on 2 cores leave none to workers" in advised(0, 1.0)
    assert "num_workers=16," in advised(4, 0.1, worked=0.1)
    assert "make a sample cheaper" in advised(4, 0.1, worked=0.9)
    assert "make a sample cheaper" in advised(4, 0.1, worked=0.1, starved=0.45)
    assert "make a sample cheaper" in advised(4, 0.1), "nobody counted what they compute"


@pytest.mark.parametrize(("worked", "computes"), [(0.1, False), (0.9, True)])
@pytest.mark.parametrize("taken", ["fcntl.flock(lock, fcntl.LOCK_EX)", "self.lock.acquire()", "lock.close()"])
def test_workers_that_take_turns_at_a_lock_are_not_told_to_be_more(
    taken: str, worked: float, computes: object, tmp_path: Path
) -> None:
    """The class stands beside the loop. Where they compute most of the time, it is not the lock that they wait for."""
    waits = {"total": 30.0, "data": 26.0, "forward": 1.0, "backward": 2.0, "optimizer": 1.0}
    lines = (line(11, "data", 850, computes=0.1), line(20, "backward", 150))
    (file := tmp_path / "train.py").write_text(
        f"class D:\n    def __getitem__(self, i):\n        {taken}\n        return self.rows[i]\n"
    )
    ((slug, found),) = seen(lines, lines, workers=4, parts=(waits, waits), worked=worked, file=str(file))
    assert slug == "waiting-for-data"
    assert found.fix.summary.startswith("read without a lock") is ("close" not in taken and not computes)


def test_workers_that_wait_for_a_core_are_not_slow_whatever_the_rank_computes_to_take_in_their_batches() -> None:
    """On a busy machine what the rank computes in its loader counts where it loads by itself, not where others load."""
    waits = {"total": 30.0, "data": 26.0, "forward": 1.0, "backward": 2.0, "optimizer": 1.0}
    lines = (line(11, "data", 500), line(20, "backward", 100))
    found = [[slug for slug, _ in seen(lines, lines, workers=workers, parts=(waits, waits), starved=starved)]
             for workers, starved in ((2, 0.7), (0, 0.7), (2, 0.1))]  # fmt: skip
    assert found == [[], ["waiting-for-data"], ["waiting-for-data"]]


def test_loaders_that_all_wait_for_in_turn_are_told() -> None:
    """Both are as slow: now the workers of one rank are ahead, now those of the other. Without workers it is none."""
    waits = {"total": 40.0, "data": 36.0, "forward": 1.0, "backward": 2.0, "optimizer": 1.0}
    is_ahead = waits | {"data": 1.0, "backward": 37.0}
    turns = [tuple(block for at in range(20) for block in spans(waits if at % 2 == rank else is_ahead)[at : at + 1])
             for rank in (0, 1)]  # fmt: skip
    lines = (line(20, "backward", 400),)
    ((slug, found),) = seen(lines, lines, workers=2, parts=turns)
    assert slug == "waiting-for-data"
    assert found.message.startswith("the training waits for data 90% of the time: for the workers of one rank or of")
    assert seen(lines, lines, workers=0, parts=turns) == []
    assert seen(lines, lines, workers=2, parts=turns, starved=0.7) == []


def test_buffers_larger_than_the_model_are_told_on_the_rank_that_waits_least() -> None:
    """With their name; small ones are not, whatever ranks wait there, nor where one rank hardly waits."""
    large = {"broadcast": 32 << 20, "largest_buffer": "queue", "buckets": (1 << 17,)}
    sends = (line(19, "buffers broadcast", 500), line(20, "backward", 200))
    ((slug, found),) = seen(sends, sends, profile=large)
    assert slug == "buffers-broadcast-each-forward"
    assert "32.0 MiB of buffers before each forward, most of them in queue: 50%" in found.message
    assert seen(sends, sends, profile=large | {"broadcast": 1 << 20}) == []
    assert seen(sends, (line(19, "buffers broadcast", 50), line(20, "backward", 200)), profile=large) == []


def test_anomaly_detection_is_told_by_what_its_stacks_take() -> None:
    """On a busy machine as well: it is a share of what the thread computes."""
    lines = (line(19, "stack kept", 200), line(20, "backward", 500))
    assert [slug for slug, _ in seen(lines, lines, profile={"anomalies": True}, starved=0.7)] == [
        "anomaly-detection-left-on"
    ]
    assert seen(lines, lines, profile={"anomalies": False}) == [], "the script formats stacks itself"
    assert seen(TRAINS, TRAINS, profile={"anomalies": True}) == []


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        pytest.param({"bound": (0,), "starved": 0.5}, ["ranks-share-cores"], id="both on one core"),
        pytest.param({"bound": (0,), "starved": 0.1}, [], id="there is room for both"),
        pytest.param({"bound": (0, 1), "starved": 0.5}, [], id="as many cores as ranks"),
        pytest.param({"bound": (), "starved": 0.5}, [], id="not bound"),
        pytest.param({"threads": 16, "starved": 0.5}, ["omp-oversubscription"], id="32 threads on 8 cores"),
        pytest.param({"threads": 15, "starved": 0.5}, [], id="fewer than four for each core"),
        pytest.param({"threads": 16, "starved": 0.1}, [], id="no rank waits for a core"),
        pytest.param({"threads": 1, "bound": (3,), "starved": 0.1}, [], id="one thread each"),
    ],
)
def test_cores_and_threads_are_counted_where_ranks_wait_for_a_core(facts: dict[str, Any], expected: list[str]) -> None:
    """By numbers that a busy machine does not change."""
    assert [slug for slug, _ in seen(TRAINS, TRAINS, host_cores=8, **facts)] == expected


@pytest.mark.parametrize(
    ("module", "function", "kind"),
    [
        ("subprocess.py", "run", "program waited for"),
        ("http/client.py", "getresponse", "server asked"),
        ("site-packages/torch/fx/traceback.py", "format_stack", "stack kept"),
        ("site-packages/torch/nn/parallel/distributed.py", "_sync_buffers", "buffers broadcast"),
    ],
)
def test_a_call_is_told_by_the_library_that_it_is_in(module: str, function: str, kind: str) -> None:
    """Whatever else is in the stack: DDP's broadcast is in its forward."""
    code = compile(
        f"def forward(get):\n    return {function}(get)\ndef {function}(get):\n    return get()",
        f"{sysconfig.get_path('stdlib')}/{module}", "exec",
    )  # fmt: skip
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102 - functions of a file that is named as a library's
    assert stack_of(names["forward"](sys._getframe))[0] == kind


def test_waits_for_a_core_are_added_up_by_line() -> None:
    """All stacks of a line together; what a thread waited is told once it has a core again, so it can be in one."""
    place = (FILE, 3, "main")
    (told,) = by_line({("", (place,)): Sampled(5, 1, {1}, 4), ("", (place, (FILE, 9, "f"))): Sampled(7, 2, {2}, 2)})
    assert (told.nanoseconds, told.processor, told.waited, told.steps) == (12, 3, 6, 2)


SCRIPT = """\
def report(step, loss):
    for part in range(3):
        print(part)
    print(step,
          loss)


for epoch in range(3):
    for step, batch in enumerate(batches):
        print(step)
        total += loss.item()
        value = loss.item()
        if loss.item() > 3:
            break
    for batch in batches:
        report(0, batch)
while True:
    print(3)
"""


def test_a_line_is_put_under_a_condition_where_that_changes_nothing_else(tmp_path: Path) -> None:
    """By the counter of its own loop; a value that is used further on is left alone, and a sum is kept as a tensor."""
    (file := tmp_path / "train.py").write_text(SCRIPT)
    assert seldom(str(file), 10) == "-        print(step)\n+        if step % 100 == 0:\n+            print(step)"
    assert seldom(str(file), 11).endswith("+        total += loss.detach()")
    assert seldom(str(file), 3).endswith("+        if part % 100 == 0:\n+            print(part)")
    assert [seldom(str(file), at) for at in (4, 5, 12, 13, 16, 18, 99)] == [""] * 7


@given(st.text())
def test_any_file_gives_a_diff_or_none(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    """A file that is no Python any more raises nothing."""
    (file := tmp_path_factory.mktemp("any") / "train.py").write_text(text, encoding="utf-8", newline="")
    assert isinstance(seldom(str(file), 1), str)
