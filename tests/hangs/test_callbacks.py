"""Communications in functions that nobody calls in turn, and flags that one rank alone has set."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from helpers import CHECKS

from ddpdoctor.checks.collectives.hangs._hangs import hang_of
from ddpdoctor.checks.collectives.hangs._kinds import Hang
from ddpdoctor.checks.collectives.hangs.calls._alone import called_alone
from ddpdoctor.checks.collectives.hangs.handed._callbacks import has_ended, of_threads
from ddpdoctor.checks.collectives.hangs.reasons._stops import stop_of_some_ranks
from ddpdoctor.source.values.callbacks import Caller, callback_around
from ddpdoctor.watch.dispatcher import Dispatcher
from ddpdoctor.watch.events import Communication, Doing, Failed, PeerLost, Position, Progress, Site, Stalled, StopAsked
from ddpdoctor.watch.events.hang import Pending
from ddpdoctor.watch.training import Training

REGISTERED = {
    "signal.signal(signal.SIGTERM, act)": Caller.SIGNAL,
    "loop.add_signal_handler(signal.SIGTERM, act)": Caller.SIGNAL,
    "weakref.finalize(thing, act)": Caller.OBJECT,
    "atexit.register(act)": Caller.PROGRAM,
    "threading.Thread(target=act).start()": Caller.THREAD,
    "pool.submit(act, 1)": Caller.THREAD,
    "act()": None,
    "signal.signal(signal.SIGTERM, act)\nact()": None,  # what is called in turn, too
    "use(act)": None,
}
START = "import atexit, signal, threading, weakref\nimport torch.distributed as dist\n"
CLOSES = "+thing.close()   # on all ranks, before the end"
START += "def act(*_):\n    pass\n    dist.barrier()\n\n"


@pytest.mark.parametrize("code", REGISTERED)
def test_what_calls_a_function_is_read_from_where_it_is_given(tmp_path: Path, code: str) -> None:
    """One that the script calls by its name is none of them."""
    file = tmp_path / "train.py"
    file.write_text(f"{START}{code}\n")
    found = callback_around(str(file), 5)

    assert (found.caller if found else None) is REGISTERED[code]


@pytest.mark.parametrize(
    ("base", "called", "found"),
    [
        ("threading.Thread", "", Caller.THREAD),
        ("Base", "", None),
        ("threading.Thread", "averages.share(1)\n", None),  # what is called in turn, too
    ],
)
def test_a_helper_of_a_class_of_threads_runs_in_the_thread(
    tmp_path: Path, base: str, called: str, found: Caller | None
) -> None:
    """By its `run`, which Python calls; the line that makes the thread is told."""
    file = tmp_path / "train.py"
    file.write_text(
        f"import threading\nclass Averages({base}):\n    def run(self):\n        self.share(1)\n"
        f"    def share(self, value):\n        dist.all_reduce(value)\n"
        f"averages = Averages()\naverages.start()\n{called}"
    )
    callback = callback_around(str(file), 6)

    assert (callback.caller if callback else None) is found
    assert callback is None or (callback.name, callback.line) == ("run", 7)


def test_a_method_that_is_a_handler_and_the_end_of_an_object_are_found(tmp_path: Path) -> None:
    """Of another class the method of the same name is none."""
    file = tmp_path / "train.py"
    file.write_text(
        "import signal\nclass A:\n    def __init__(self):\n        signal.signal(1, self.act)\n"
        "    def act(self, *_):\n"
        "        barrier()\n    def __del__(self):\n        barrier()\n"
        "class B:\n    def act(self):\n        barrier()\n"
    )

    found = [callback_around(str(file), line) for line in (6, 8, 11)]
    assert [each and each.caller for each in found] == [Caller.SIGNAL, Caller.OBJECT, None]


def waiting(rank: int, operation: str, line: int, file: Path, under_way: str = "") -> Position:
    """Return a rank that waits at a line of a file."""
    site = Site(str(file), line, "")
    return Position(
        rank=rank,
        pid=rank + 1,
        doing=Doing.WAITING,
        seconds=7.0,
        forwards=4,
        site=site,
        operation=operation,
        stack=(site,),
        pending=(Pending(under_way, "0", 6, ""),) if under_way else (),
        recent=(Communication(5, 0.0, "barrier", "0", "", Site(str(file), 5, "act")),),
    )


def stalled(*ranks: Position) -> Stalled:
    """Return a hang of these ranks."""
    return Stalled(pid=0, time=0.0, ranks=ranks, world_size=len(ranks))


def test_a_hang_in_a_handler_is_told_by_it_unless_all_ranks_are_there(tmp_path: Path) -> None:
    """A signal that comes to all ranks together leads them to one barrier."""
    file = tmp_path / "train.py"
    file.write_text(f"{START}signal.signal(signal.SIGTERM, act)\ntrain()\n")
    one, other = waiting(0, "barrier", 5, file), waiting(1, "backward", 8, file)

    assert hang_of(stalled(one, other), Training()) is Hang.CALLED_BACK
    assert hang_of(stalled(one, waiting(1, "barrier", 5, file)), Training()) is not Hang.CALLED_BACK


@pytest.mark.parametrize(
    ("body", "diff"),
    [
        ("self.close()", "-def __del__(self):\n-    self.close()\n" + CLOSES),
        (
            "dist.all_reduce(self.rows)",
            "-def __del__(self):\n+def close(self):\n     dist.all_reduce(self.rows)\n" + CLOSES,
        ),
    ],
    ids=["a method of its own", "the collective itself"],
)
def test_the_end_of_an_object_is_mended_by_what_it_calls(tmp_path: Path, body: str, diff: str) -> None:
    """Where the object has a method for it, no second one is made."""
    file = tmp_path / "train.py"
    file.write_text(
        f"import torch.distributed as dist\nclass Shard:\n    def __del__(self):\n        {body}\ntrain()\n"
    )
    ranks = waiting(0, "all_reduce", 4, file), waiting(1, "backward", 5, file)
    (found,) = Dispatcher(CHECKS).see(stalled(*ranks))

    assert (found.check.slug, found.finding.fix.diff) == ("collective-in-handler", diff)


def test_a_hang_of_a_thread_needs_two_calls_that_met(tmp_path: Path) -> None:
    """Where the same operation is under way on both ranks, the thread has nothing to do with it."""
    file = tmp_path / "train.py"
    file.write_text(f"{START}threading.Thread(target=act).start()\ntrain()\n")
    ours = waiting(0, "backward", 8, file, "barrier")
    met, alike = (waiting(1, "backward", 8, file, each) for each in ("all_reduce", "barrier"))

    assert hang_of(stalled(ours, met), Training()) is Hang.THREADS
    assert hang_of(stalled(ours, alike), Training()) is not Hang.THREADS


def came(rank: int, forwards: int, *recent: Communication) -> Progress:
    """Return how far a rank came."""
    return Progress(rank=rank, forwards=forwards, recent=recent)


def lost(file: Path, stack: int, *progress: Progress) -> PeerLost:
    """Return that rank 0 is gone, and that rank 1 lost it at a line."""
    failed = Failed(pid=2, time=9.0, rank=1, error="RuntimeError", text="RuntimeError: Connection reset by peer")
    return PeerLost(
        pid=0, time=9.0, first=None, others=(failed,), gone=(0,), progress=progress, stack=(Site(str(file), stack, ""),)
    )


def test_threads_are_told_where_a_rank_is_gone_and_each_has_called_last_in_one(tmp_path: Path) -> None:
    """Of a rank that has called something itself since, nothing is concluded."""
    file = tmp_path / "train.py"
    file.write_text(f"{START}threading.Thread(target=act).start()\ntrain()\n")
    call = Communication(5, 0.0, "barrier", "0", "", Site(str(file), 5, "act"))
    later = Communication(6, 1.0, "all_reduce", "0", "", Site(str(file), 8, ""))
    both = (came(0, 4, call), came(1, 4, call))

    assert of_threads(lost(file, 8, *both)) is not None
    assert of_threads(lost(file, 8, both[0], came(1, 4, call, later))) is None
    assert of_threads(lost(file, 5, *both)) is None, "the thread itself has lost it"


def test_a_call_that_one_rank_alone_comes_to_is_told_where_the_other_was_in_its_backward(tmp_path: Path) -> None:
    """One that has called something of the same number answers it."""
    file = tmp_path / "train.py"
    file.write_text(
        "import ignite.distributed as idist\n\n@idist.one_rank_only()\ndef validate(engine):\n"
        "    evaluator.run(val)\n\n"
        "trainer.run(train)\n"
    )
    call = Communication(5, 0.0, "all_reduce", "0", "", Site(str(file), 5, "validate"))
    alone = came(0, 9, call)

    found = called_alone(lost(file, 7, alone, came(1, 5)))
    assert found is not None
    assert (found.rank, found.other) == (0, 1)
    assert called_alone(lost(file, 7, alone, came(1, 5, call))) is None


def test_a_rank_in_what_the_end_of_the_program_calls_has_ended(tmp_path: Path) -> None:
    """It has left every loop of the script."""
    file = tmp_path / "train.py"
    file.write_text(f"{START}atexit.register(act)\ntrain()\n")

    assert has_ended(waiting(0, "barrier", 5, file))
    assert not has_ended(waiting(0, "barrier", 8, file))


def test_an_evaluation_that_one_rank_asked_for_is_told_until_its_next_step(tmp_path: Path) -> None:
    """Where the other rank has asked as well, or has begun no forward since, it is not."""
    asked = StopAsked(
        pid=1, time=1.0, rank=0, framework="the transformers Trainer", flag="should_evaluate", forwards=4, steps=4
    )
    one = replace(waiting(0, "all_gather", 5, tmp_path), steps=4)
    other = replace(waiting(1, "backward", 8, tmp_path), steps=4, forwards=5)

    def told(*events: StopAsked, ranks: tuple[Position, ...] = (one, other)) -> bool:
        training = Training()
        for each in events:
            training.add(each)
        return stop_of_some_ranks(ranks, training) is not None

    assert told(asked)
    assert not told(asked, replace(asked, pid=2, rank=1))
    assert not told(asked, ranks=(replace(one, steps=5), other))
    assert not told(asked, ranks=(one, replace(other, forwards=4)))
