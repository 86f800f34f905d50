from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from ddpdoctor.checks.collectives.hangs._hangs import hang_of
from ddpdoctor.checks.collectives.hangs._kinds import Hang
from ddpdoctor.facets import Ailment, Check, Instrument, watch
from ddpdoctor.findings import Evidence, Finding, Fix, Place, Severity, Status
from ddpdoctor.source.reach.ranks import rank_condition
from ddpdoctor.watch import event_log
from ddpdoctor.watch.dispatcher import Dispatcher
from ddpdoctor.watch.events import (
    Doing,
    EpochStarted,
    Joined,
    Position,
    Sampler,
    Site,
    Stalled,
    Started,
)
from ddpdoctor.watch.monitor.monitor import Monitor
from ddpdoctor.watch.monitor.seen import flight
from ddpdoctor.watch.rank.compared.sampled import is_sampled
from ddpdoctor.watch.rank.patch import patch
from ddpdoctor.watch.run import watched
from ddpdoctor.watch.settings import VARIABLE, Rehearsal, Settings, inherited
from ddpdoctor.watch.training import Training
from ddpdoctor.watch.wire import packed, unpacked

WORDS = st.text(max_size=20)
SITES = st.none() | st.builds(Site, WORDS, st.integers(1, 9999), WORDS)
SAMPLERS = st.none() | st.builds(Sampler, number=st.integers(0, 9), kind=WORDS, seed=st.none() | st.integers(0, 9))
EPOCHS = st.builds(
    EpochStarted, pid=st.integers(1, 99), time=st.floats(0, 1e10), rank=st.none() | st.integers(0, 9), site=SITES,
    loader=st.integers(0, 9), number=st.integers(0, 9), training=st.booleans(), dataset=WORDS,
    length=st.none() | st.integers(0, 99), batches=st.none() | st.integers(0, 99), batch_size=st.none(),
    workers=st.integers(0, 4), iterable=st.booleans(), sampler=SAMPLERS, owning_library=WORDS,
)  # fmt: skip


class TestLedger:
    """What a process writes is what the monitor reads."""

    @given(EPOCHS)
    def test_an_event_survives_the_file(self, event: EpochStarted) -> None:
        """Through JSON and back it is equal, whatever its texts."""
        assert unpacked(json.loads(json.dumps(packed(event)))) == event

    def test_only_whole_lines_are_read(self, tmp_path: Path) -> None:
        """A line that is being written waits for its end."""
        path = tmp_path / "7.events"
        line = json.dumps(packed(Started(pid=7, time=1.0, program="train.py"))).encode()
        path.write_bytes(line + b"\n" + line[:20])
        reader = event_log.Reader(path)

        assert len(list(reader.new())) == 1
        path.write_bytes(line + b"\n" + line + b"\n")
        assert len(list(reader.new())) == 1
        assert not list(reader.new())

    @given(st.integers(0, 3 * event_log.RING))
    def test_the_last_communications_are_kept_in_order(self, count: int) -> None:
        """The ring holds as many as it has room for, each with its number in its group."""
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            writer = event_log.Writer(folder)
            for number in range(count):
                writer.communication(float(number), "all_reduce", "ab"[number % 2], f"[{number % 3}]", None)
            reader = event_log.Reader(Path(folder) / f"{os.getpid()}.events")
            list(reader.new())
            found = reader.communications()

        kept = range(max(0, count - event_log.RING), count)
        assert [each.time for each in found] == list(map(float, kept))
        assert [each.number for each in found] == [number // 2 + 1 for number in kept]
        assert reader_counts(found) == [f"[{number % 3}]" for number in kept]


def reader_counts(found: tuple[Any, ...]) -> list[str]:
    """Return the shapes of communications."""
    return [each.shapes for each in found]


class TestSettings:
    """One variable hands everything to every process."""

    def test_they_are_inherited(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What is exported is what is read, a rehearsal too."""
        settings = Settings(session="/s", hang_after=3, on_finding="raise", rehearsal=Rehearsal(batches=2))
        environ: dict[str, str] = {}
        settings.export(environ)
        monkeypatch.setenv(VARIABLE, environ[VARIABLE])

        assert inherited() == settings

    def test_without_it_nothing_is_watched(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """No variable, no watch."""
        monkeypatch.delenv(VARIABLE, raising=False)

        assert inherited() is None


class TestPatch:
    """What is replaced is put back."""

    def test_inherited_and_own_attributes(self) -> None:
        """An attribute of a base class is not left behind on the class below it."""

        class Base:
            def method(self) -> int:
                """Return one."""
                return 1

        class Below(Base):
            pass

        done = patch(Below, "method", lambda original: lambda self: original(self) + 1)

        assert Below().method() == 2
        assert Below.method.__doc__ == "Return one."
        done.undo()
        assert Below().method() == 1
        assert "method" not in vars(Below)

    def test_a_warning_shows_the_line_that_called(self) -> None:
        """With a stacklevel, the frame of what stands in for a function does not count."""
        owner = SimpleNamespace(function=lambda: warnings.warn("old", FutureWarning, stacklevel=2))
        done = patch(owner, "function", lambda original: lambda *args: original(*args))  # noqa: PLW0108 - a frame of its own is the point
        with pytest.warns(FutureWarning) as seen:
            owner.function()
        done.undo()

        assert seen[0].filename == __file__
        assert Path(__file__).read_text().splitlines()[seen[0].lineno - 1].strip() == "owner.function()"

    def test_what_somebody_else_put_there_since_stays(self) -> None:
        """Undo takes away its own replacement only."""
        owner = SimpleNamespace(function=lambda: 1)
        done = patch(owner, "function", lambda original: lambda: original() + 1)
        theirs = owner.function = lambda: 3
        done.undo()

        assert owner.function is theirs


AILMENT = Ailment("ACME100", Severity.WARNING)


class TestJudge:
    """Checks see the events that they ask for."""

    def test_a_finding_is_made_once(self) -> None:
        """The same message at the same place is not repeated; its severity is the check's."""

        @watch(Joined)
        def facet(event: Joined, training: Training) -> list[Finding]:
            found = Finding(
                f"{training.world_size} ranks", (Evidence("seen"),), Fix("mend"), Place(file="a.py", rank=event.rank)
            )
            return [found]

        check = Check("ACME100", "acme", "data", Severity.WARNING, "t", "p", (facet,), "here")
        judge = Dispatcher([check])
        events = [Joined(pid=rank, time=1.0, rank=rank, world_size=2, backend="gloo") for rank in range(2)]
        found = [each for event in events for each in judge.see(event)]

        assert check.of(Instrument.WATCH) == (facet,)
        assert [(each.finding.message, each.finding.severity) for each in found] == [("2 ranks", Severity.WARNING)]

    def test_seconds_make_no_other_finding(self) -> None:
        """What a look says that differs from the last one in its seconds alone was said."""

        @watch(Joined)
        def facet(event: Joined) -> list[Finding]:
            return [Finding(f"rank 0 sleeps, {event.pid} s from now, as rank 1", (Evidence("seen"),), Fix("mend"))]

        judge = Dispatcher([Check("ACME100", "acme", "data", Severity.NOTE, "t", "p", (facet,), "here")])
        events = [Joined(pid=pid, time=1.0, rank=0, world_size=2, backend="gloo") for pid in (4, 2)]

        assert [each.finding.message[:18] for event in events for each in judge.see(event)] == ["rank 0 sleeps, 4 s"]

    def test_a_check_that_fails_stops_nothing(self) -> None:
        """It is told once, and asked nothing more; the other facets go on."""
        asked: list[int] = []

        @watch(Joined)
        def broken(event: Joined) -> list[Finding]:
            asked.append(event.pid)
            raise ZeroDivisionError("of its own")

        @watch(Joined)
        def sound(event: Joined) -> list[Finding]:
            return [Finding(f"process {event.pid}", (Evidence("seen"),), Fix("mend"))]

        judge = Dispatcher([Check("ACME100", "acme", "data", Severity.WARNING, "t", "p", (broken, sound), "here")])
        events = [Joined(pid=pid, time=1.0, rank=pid, world_size=2, backend="gloo") for pid in range(2)]

        assert [each.finding.message for event in events for each in judge.see(event)] == ["process 0", "process 1"]
        assert asked == [0]
        assert [(each.code, each.status) for each in judge.crashes] == [("ACME100", Status.CRASHED)]
        assert "ZeroDivisionError: of its own" in judge.crashes[0].reason


@given(
    st.text()
    | st.recursive(
        st.none() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner) | st.dictionaries(st.sampled_from(["entries", "retired", "process_group"]), inner)
        ),
    ).map(json.dumps)
)
def test_a_dump_of_the_flight_recorder_that_is_none_says_nothing(text: str) -> None:
    """No exception, whatever the text."""
    assert flight.parse(text) == ()


@pytest.mark.parametrize(
    ("step", "expected"),
    [(1, True), (3, True), (4, False), (10, True), (15, False), (70, False), (500, True)],
)
def test_few_steps_are_sampled(step: int, *, expected: bool) -> None:
    """The first three, then ever fewer."""
    assert is_sampled(step) is expected
    assert sum(map(is_sampled, range(1, 100_001))) <= 19


def standing(*doings: Doing, world_size: int = 2) -> Stalled:
    """Make a training that stands."""
    ranks = tuple(
        Position(rank=rank, pid=rank + 1, doing=doing, seconds=9, operation="barrier" if doing is Doing.WAITING else "")
        for rank, doing in enumerate(doings)
    )
    return Stalled(pid=0, time=0.0, ranks=ranks, world_size=world_size)


@pytest.mark.parametrize(
    ("doings", "expected"),
    [
        ((Doing.WAITING, Doing.STOPPED), Hang.GONE),
        ((Doing.WAITING, Doing.WORKING), Hang.WORKS),
        ((Doing.WAITING, Doing.STANDING), Hang.STANDS),
        ((Doing.WAITING, Doing.ENDED), Hang.LEFT),
        ((Doing.WAITING, Doing.WAITING), Hang.SAME),
        ((Doing.WORKING, Doing.DIED), Hang.GONE),
    ],
)
def test_what_is_seen_for_sure_decides_first(doings: tuple[Doing, ...], expected: Hang) -> None:
    """A rank that is gone explains those that wait, a rank that works makes no fault of it."""
    assert hang_of(standing(*doings), Training()) is expected


def test_the_condition_on_the_rank_is_found(tmp_path: Path) -> None:
    """The innermost one around the line, also by a variable that holds the rank."""
    path = tmp_path / "train.py"
    path.write_text(
        "r = dist.get_rank()\nif debug:\n    if r == 0:\n        dist.barrier()\n    else:\n        other()\n"
        "if debug:\n    end()\n"
    )

    assert rank_condition(str(path), 4) == "r == 0"
    assert rank_condition(str(path), 6) == ""
    assert rank_condition(str(path), 8) == ""
    assert rank_condition(str(tmp_path / "gone.py"), 1) == ""


@pytest.mark.parametrize("step", ["poll", "end"])
def test_a_crash_of_the_watch_is_no_end_of_the_training(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever the monitor stumbles over, the command comes to its own end and keeps its exit status."""

    def crash(*_: object, **__: object) -> None:
        raise KeyError(step)

    monkeypatch.setattr(Monitor, step, crash)
    code = f"import time; time.sleep(0.5); open({str(tmp_path / 'end')!r}, 'w').close(); raise SystemExit(3)"

    status, _, _ = watched((sys.executable, "-S", "-c", code), Settings(session=str(tmp_path)), (), print)

    assert status == 3
    assert (tmp_path / "end").exists()
    assert f"the watch has crashed, the command goes on without it: KeyError: '{step}'" in capsys.readouterr().err
