"""What a step is made of: closures, loaders of one rank, lines that all ranks come to, and small collectives."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
from measured_steps import FAST, FILE, MS, TRAINS, line, seen

from ddpdoctor.watch.events import TimedCall
from ddpdoctor.watch.events.steps.blocks import STEPS
from ddpdoctor.watch.rank.measured import callers
from ddpdoctor.watch.rank.measured.calls import LOGGED
from ddpdoctor.watch.rank.measured.line_kinds import stack_of
from ddpdoctor.watch.rank.stopwatch import Stopwatch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import FrameType

    from ddpdoctor.watch.events.steps.blocks import Block

PLACES = {"users": "/home/me/train.py", "Lightning's": "/venv/lib/python3.11/site-packages/lightning/loops/closure.py"}


def looks(file: str) -> Callable[[], str]:
    """Return a function of a file that says what the thread does that calls it."""
    names: dict[str, Any] = {"look": lambda: stack_of(sys._getframe(1))[0]}
    exec(compile("def closure():\n    seen.append(look())\n    return 0.0", file, "exec"), names)  # noqa: S102 - a function of a file that is named so
    names["seen"] = []
    closure: Callable[[], str] = names["closure"]
    closure.seen = names["seen"]  # type: ignore[attr-defined]
    return closure


@pytest.mark.parametrize("file", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("kind", ["Adam", "LBFGS"])
def test_what_an_optimizer_calls_as_its_closure_is_none_of_its_work(kind: str, file: str) -> None:
    """The user's function, and that of a framework which runs a training step within it."""
    import torch

    closure = looks(file)
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.grad = torch.ones(2)
    getattr(torch.optim, kind)([parameter], lr=0.1).step(closure)
    seen_kinds: list[str] = closure.seen  # type: ignore[attr-defined]
    assert set(seen_kinds) == {""}


def test_what_an_optimizer_or_a_schedule_does_itself_is_its_work() -> None:
    """Also where a function of the user's is called by a hook."""
    import torch

    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.grad = torch.ones(2)
    optimizer = torch.optim.Adam([parameter])
    closure = looks(PLACES["users"])

    def hook(*_: object) -> None:
        closure()

    optimizer.register_step_pre_hook(hook)
    optimizer.step()
    assert closure.seen == ["optimizer"]  # type: ignore[attr-defined]


class Log:
    """Keeps the blocks that it is given."""

    def __init__(self) -> None:
        """Begin with none."""
        self.blocks: list[Block] = []

    def block(self, block: Block) -> None:
        """Keep one."""
        self.blocks.append(block)


def test_parts_of_a_step_add_up_where_the_optimizer_runs_them_all() -> None:
    """A forward and a backward in a closure are theirs alone, and the optimizer has what is left of its step."""
    watch, log = Stopwatch(), Log()
    for _ in range(STEPS + 1):
        watch.begins_step()
        watch.forward += 10**12
        watch.backward += 10**12
        watch.stepped(log)  # type: ignore[arg-type]
    (block,) = log.blocks
    assert block.optimizer < 10**10
    watch.begins_step()
    watch.in_step -= 10**12
    watch.stepped(log)  # type: ignore[arg-type]
    assert watch.optimizer >= 10**12, "a step without a closure is all its own"


LOGS = """\
def log(self, name, value, sync_dist=False):
    return self.frame()
def log_other(self, name, value):
    return self.frame()
"""


@pytest.mark.parametrize(("method", "module", "expected"), [
    ("log", "lightning.pytorch.core.module", True),
    ("log", "pytorch_lightning.core.module", True),
    ("log_other", "lightning.pytorch.core.module", False),
    ("log", "another.core.module", False),
])  # fmt: skip
def test_a_line_that_logs_by_lightning_is_the_one_that_reduces(method: str, module: str, expected: object) -> None:
    """However deep below it the reduction is called; other methods, and other libraries, are no line of the user's."""
    library: dict[str, Any] = {"__name__": module}
    exec(compile(LOGS, "/venv/lib/python3.11/site-packages/lightning/core/module.py", "exec"), library)  # noqa: S102 - as above
    script: dict[str, Any] = {"log": library[method], "self": type("M", (), {"frame": lambda _: sys._getframe(1)})()}
    text = "def training_step():\n    return log(self, 1, 2)"
    exec(compile(text, "/home/me/lit.py", "exec"), script)  # noqa: S102 - as above
    frame: FrameType = script["training_step"]()
    found, logged = callers.calling_line(frame)
    assert logged is expected
    assert (found is not None and found.f_code.co_filename == "/home/me/lit.py") is expected


def logged(number: int, times: int, took: float) -> TimedCall:
    """Return what a line logs in 50 steps."""
    return TimedCall(LOGGED, FILE, number, "training_step", times, 50, int(took * MS))


@pytest.mark.parametrize("starved", [0.0, 0.6])
def test_what_lightning_reduces_in_each_step_is_told_once_with_its_lines(starved: float, tmp_path: Path) -> None:
    """Busy or not: they are counted. What takes next to nothing of a step is not."""
    script = tmp_path / "lit.py"
    script.write_text(
        'class M:\n    def training_step(self):\n        self.log("a", x, on_step=True, sync_dist=True)\n'
    )
    lines = logged(3, 200, 3)._replace(file=str(script)), logged(9, 50, 2)
    ((slug, found),) = seen(TRAINS, TRAINS, calls=lines, starved=starved)
    assert slug == "blocking-calls-in-step"
    assert (
        "self.log(sync_dist=True) reduces 5 values in each step, by a barrier and an all_reduce each" in found.message
    )
    assert found.place.line == 3
    assert '+        self.log("a", x, on_step=False, on_epoch=True, sync_dist=True)' in found.fix.diff
    assert ("instead of 20 ms a step" in found.fix.summary) is (starved == 0)
    assert seen(TRAINS, TRAINS, calls=(logged(3, 50, 0.3),), starved=starved) == []


@pytest.mark.parametrize("starved", [0.0, 0.6])
def test_a_barrier_beside_a_collective_is_told_with_it_once(starved: float) -> None:
    """One finding, one promise: the barrier goes, the collective comes less often."""
    both = tuple(TimedCall(what, FILE, at, "sync", 350, 50, 4 * MS) for at, what in ((7, "barrier"), (8, "all_reduce")))
    lines = (line(20, "backward", 500), line(21, "collective", 400, inner=(FILE, 7, "sync")))
    ((slug, found),) = seen(lines, lines, calls=both, starved=starved)
    assert slug == "blocking-calls-in-step"
    assert "barrier at /home/me/train.py:7 and all_reduce at /home/me/train.py:8" in found.message
    assert found.fix.summary.startswith("leave the barrier out")
    assert "put the 7 numbers of a step into one tensor" in found.fix.summary
    seldom = tuple(each._replace(times=50) for each in both)
    assert bool(seen(lines, lines, calls=seldom, starved=starved)) is (starved == 0)


def test_a_barrier_alone_is_left_out_and_packs_no_numbers() -> None:
    """It sends none."""
    alone = (TimedCall("barrier", FILE, 7, "sync", 350, 50, 8 * MS),)
    ((_, found),) = seen(TRAINS, TRAINS, calls=alone)
    assert found.fix.summary.startswith("leave the barrier out")
    assert "tensor" not in found.fix.summary


def test_a_rank_that_computes_longer_in_its_loader_is_told_by_the_loader_alone() -> None:
    """Where its wait for data is told, nobody speaks of its forward and backward; else it is said to be its loader."""
    loads, waits = (
        (line(20, "backward", 200, computes=0.9), line(30, "data", 600)),
        line(20, "backward", 750, computes=0.3),
    )
    few = line(30, "data", 50)
    slow = FAST | {"data": 20.0, "backward": 3.0, "total": 33.0}
    fast = FAST | {"data": 1.0, "backward": 22.0, "total": 33.0}
    steps = [(18.0,) * 50, (8.0,) * 50]
    told = seen(loads, (waits, few), each_step=steps, parts=(slow, fast))
    assert [slug for slug, _ in told] == ["one-rank-loads-slowly"]
    ((slug, found),) = seen(loads, (waits, few), each_step=steps)
    assert slug == "one-rank-is-slow"
    assert "in its loader" in found.message
    assert "what rank 0 reads" in found.fix.summary


def test_a_line_that_all_ranks_come_to_is_none_that_one_does_alone(tmp_path: Path) -> None:
    """A sleep is told with its line; of other work it is asked why it takes longer there; the rest stays as it was."""
    script = tmp_path / "limit.py"
    script.write_text("import time\ndef wait():\n    time.sleep(1)\ndef work():\n    return sum(range(9))\n")
    slow, fast = {"total": 30.0, "backward": 2.0}, {"total": 30.0, "backward": 22.0}

    def said(number: int, theirs: float) -> list[tuple[str, str]]:
        mine = line(30, "", 800, inner=(str(script), number, "f"), computes=0.0)
        other = line(30, "", theirs, inner=(str(script), number, "f"), computes=0.0)
        told = seen((TRAINS[0], mine), (TRAINS[0], other), parts=(slow, fast))
        return [(slug, each.fix.summary) for slug, each in told]

    assert [slug for slug, _ in said(3, 200)] == ["needless-work-in-step"]
    fix = dict(said(5, 200))["one-rank-is-slow"]
    assert "takes longer on rank 0 than on the others, which come to it as well" in fix
    assert "what rank 0 alone does" in dict(said(5, 10))["one-rank-is-slow"]
