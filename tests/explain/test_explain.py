"""What the engine of ``ddpdoctor explain`` reads out of logs, with checks that the tests make."""

from __future__ import annotations

import datetime as dt
import json
import re
from calendar import timegm
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from helpers import Run
from hypothesis import given, strategies as st

from ddpdoctor.facets import Check, Pattern, Role, log_pattern
from ddpdoctor.findings import Ambiguity, Finding, Fix, Severity
from ddpdoctor.literals import literals
from ddpdoctor.logs.answer import Answer, Confidence
from ddpdoctor.logs.examination import examination, explain
from ddpdoctor.logs.read.clock import find_moment
from ddpdoctor.logs.read.elastic import error_file
from ddpdoctor.logs.read.lines import decoded, parsed
from ddpdoctor.logs.read.sources import Origin, sources
from ddpdoctor.logs.records import Kind, Log, Record
from ddpdoctor.logs.search.finder import finder
from ddpdoctor.logs.search.prefilter import Shapes
from ddpdoctor.registry import load_checks


def made(
    slug: str,
    pattern: str,
    role: Role = Role.CAUSE,
    supersedes: tuple[str, ...] = (),
    ambiguity: Ambiguity | None = None,
) -> Check:
    """Make a check with one sign."""

    def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
        yield Finding(f"{slug} is here", (record.proof(match),), Fix("mend it"), record.place, ambiguity=ambiguity)

    facet = log_pattern(pattern, role=role, supersedes=supersedes)(in_logs)
    return Check("DDP999", slug, "model", Severity.ERROR, slug, slug, (facet,), __name__)


OPEN = Ambiguity(("x", "y"), "look")


def numbered(*checks: Check) -> tuple[Check, ...]:
    """Return each a code of its own."""
    from dataclasses import replace

    return tuple(replace(check, code=f"DDP9{number:02}") for number, check in enumerate(checks))


def answered(log: str, *checks: Check, size: int = 1 << 20) -> Answer:
    """Explain a log that comes in blocks of some size."""
    data = log.encode()
    blocks = [data[start : start + size] for start in range(0, len(data), size)]
    return explain([(Origin("train.log"), blocks)], numbered(*checks))


def records(log: str) -> list[Record]:
    """Return all lines as records."""
    examined = examination((made("any", r"[^\n]*"),))
    examined.read(Origin("train.log"), [log.encode()])
    return list(examined.buffer.kept().log.records)


@pytest.mark.parametrize("piece", ["- ", "x ", "("])
@pytest.mark.parametrize("code", [True, False], ids=["with its source", "without"])
def test_a_line_of_any_length_is_quoted_in_part(piece: str, ddpdoctor: Run, tmp_path: Path, *, code: bool) -> None:
    """What Python's parser gives up on is no line of code, and a message of a million letters is told shortly."""
    said = piece * 100_000
    frame = f'  File "t.py", line 1, in <module>\n{f"    fit({said})" if code else ""}\n'.replace("\n\n", "\n")
    (tmp_path / "a.log").write_text(f"Traceback (most recent call last):\n{frame}RuntimeError: {said}\n")

    done = ddpdoctor("explain", "a.log", cwd=tmp_path)
    assert "RuntimeError" in done.stdout
    assert len(done.stdout) < 3000
    assert done.stderr == ""


class TestLines:
    """What stands before what a program says."""

    @pytest.mark.parametrize(
        ("line", "text", "rank", "node"),
        [
            ("[rank3]: boom", "boom", 3, None),
            ("[default1]:boom", "boom", 1, None),
            ("[rank1]:[E1121 08:50:50.123 a.cpp:1] boom", "[E1121 08:50:50.123 a.cpp:1] boom", 1, None),
            ("3: boom", "boom", 3, None),
            (" 12: boom", "boom", 12, None),
            ("[1,5]<stderr>:boom", "boom", 5, None),
            ("[2]<stdout>:boom", "boom", 2, None),
            ("[rank: 4] boom", "boom", 4, None),
            ("(RayTrainWorker pid=77, ip=10.0.0.2) boom", "boom", None, "10.0.0.2"),
            ("(train pid=7) [rank2]: boom", "boom", 2, None),
            ("trainer-1  | boom", "boom", None, "trainer-1"),
            ("worker-2: [rank9]: boom", "boom", 9, "worker-2"),
            ("2024-05-01T10:00:00.5Z [rank0]: boom", "boom", 0, None),
            ("\x1b[31m[rank0]: bo\x1b[0mom\x07", "boom", 0, None),
            ("gpu7:12:34 [0] NCCL WARN boom", "gpu7:12:34 [0] NCCL WARN boom", None, "gpu7"),
            ("[PG ID 0 PG GUID 0(default_pg) Rank 6] boom", "[PG ID 0 PG GUID 0(default_pg) Rank 6] boom", 6, None),
            ("step 3: boom", "step 3: boom", None, None),
            ("12:30 boom", "12:30 boom", None, None),
        ],
    )
    def test_prefixes_tell_rank_and_node(self, line: str, text: str, rank: int | None, node: str | None) -> None:
        """Each launcher's prefix is taken off, whatever stands within whatever."""
        read = parsed(decoded(line.encode()), 1)

        assert (read.text, read.rank, read.node) == (text, rank, node)

    @pytest.mark.parametrize(
        ("text", "seconds", "rest"),
        [
            ("2024-05-01 10:00:00,250 - root - INFO", 1714557600.25, "root - INFO"),
            ("[2024-05-01 10:00:00] boom", 1714557600, "boom"),
            ("2024-05-01T12:00:00+02:00 boom", 1714557600, "boom"),
            ("2024-05-01T10:00:00.000000Z boom", 1714557600, "boom"),
            ("2024-05-01_10:00:00 boom", 1714557600, "boom"),
            ("[Wed May  1 10:00:00 2024] NVRM: Xid", 1714557600, "NVRM: Xid"),
        ],
    )
    def test_times_of_many_forms_are_one(self, text: str, seconds: float, rest: str) -> None:
        """The time is in UTC, and no part of what is said."""
        found = find_moment(text)

        assert found is not None
        assert found[0].seconds == seconds
        assert text[found[1] :] == rest

    def test_a_time_without_a_year_stays_and_gets_the_year_of_the_log(self) -> None:
        """What glog prints is compared with the dates of others."""
        log = "[E0501 10:00:00.5 a.cpp:7] boom\n2024-05-01 10:00:00 bang\n"
        first, second = records(log)

        assert (first.time, second.time) == (1714557600.5, 1714557600)
        assert first.text.startswith("[E0501")

    @given(
        st.datetimes(dt.datetime(2001, 6, 1), dt.datetime(2037, 6, 1)),  # noqa: DTZ001 - logs are taken to be in UTC
        st.timedeltas(dt.timedelta(days=-120), dt.timedelta(days=120)),
    )
    def test_a_day_without_a_year_is_the_day_that_it_was(self, said: dt.datetime, gap: dt.timedelta) -> None:
        """In leap years and others, and around New Year, next to a line that names its year."""
        log = f"[E{said:%m%d %H:%M:%S}.0 a.cpp:7] boom\n{said + gap:%Y-%m-%d %H:%M:%S} bang\n"

        assert records(log)[0].time == timegm(said.timetuple())

    @given(st.binary(max_size=300))
    def test_no_line_fails(self, raw: bytes) -> None:
        """Whatever the bytes, there is a line, and nothing in it moves a terminal."""
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", parsed(decoded(raw), 1).text)


INTERLEAVED = """\
[rank1]: Traceback (most recent call last):
[rank0]: Traceback (most recent call last):
[rank1]:   File "/home/u/train.py", line 12, in main
[rank0]:   File "/home/u/train.py", line 22, in main
[rank1]:     loss()
[rank0]:   File "/opt/lib/python3.11/site-packages/torch/nn/module.py", line 9, in _call_impl
step 3 loss 0.1
[rank1]: KeyError: 'foo'
[rank0]: ValueError: more
[rank0]: than a line
"""
CHAINED = """\
Traceback (most recent call last):
  File "a.py", line 1, in f
KeyError: 1

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "b.py", line 2, in g
RuntimeError: second
step 4
"""
SPAWNED = """\
torch.multiprocessing.spawn.ProcessRaisedException:

-- Process 3 terminated with the following error:
Traceback (most recent call last):
  File "/x/site-packages/torch/multiprocessing/spawn.py", line 95, in _wrap
    fn(i, *args)
  File "/home/u/t.py", line 7, in work
    raise ValueError("x")
ValueError: x
"""
GROUPED = """\
  + Exception Group Traceback (most recent call last):
  |   File "t.py", line 3, in <module>
  |     raise ExceptionGroup("two", [ValueError(1)])
  | ExceptionGroup: two (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "t.py", line 9, in f
    | ValueError: 1
    +------------------------------------
"""


class TestTracebacks:
    """Lines that belong together."""

    def test_ranks_that_shout_at_once_are_told_apart(self) -> None:
        """Each rank's traceback is one record with the numbers of its own lines."""
        one, zero = (record for record in records(INTERLEAVED) if record.kind is Kind.TRACEBACK)

        assert (one.rank, one.error, one.line, one.users and one.users.line) == (1, "KeyError", 1, 12)
        assert (zero.rank, zero.error, zero.users and zero.users.line) == (0, "ValueError", 22)
        assert zero.text.endswith("ValueError: more\nthan a line")
        assert one.proof().source == "train.log:8, rank 1"

    def test_what_another_says_between_is_a_record_of_its_own(self) -> None:
        """A line of nobody's traceback is not swallowed."""
        assert "step 3 loss 0.1" in [record.text for record in records(INTERLEAVED)]

    @pytest.mark.parametrize("text", [CHAINED, SPAWNED, GROUPED])
    def test_chained_spawned_and_grouped_ones_are_one_record(self, text: str) -> None:
        """All that one exception prints is one record."""
        (record,) = (record for record in records(text) if record.kind is Kind.TRACEBACK)

        assert text.strip().startswith(record.text.strip()[:300])
        assert len(record.frames) == 2
        assert record.text.count("Traceback") == text.count("Traceback")

    def test_the_process_that_spawn_names_is_the_rank(self) -> None:
        """The parent reports the error of process 3."""
        (record,) = records(SPAWNED)

        assert record.rank == 3
        assert record.error == "ValueError"

    def test_a_process_that_stops_in_its_traceback_ends_it(self) -> None:
        """Nothing waits for ever for the rest of a rank that was killed."""
        log = "[rank1]: Traceback (most recent call last):\n" + "[rank0]: step\n" * 2000 + "[rank0]: the end\n"
        examined = examination((made("any", "the end"), made("half", "Traceback")))
        reader = examined.begin(Origin("train.log"))
        examined.feed(reader, log.encode())

        assert len(examined.buffer.kept().log.records) == 2


class TestRanking:
    """Which comes first."""

    def test_a_cause_goes_before_what_others_say_earlier(self) -> None:
        """Role decides before time; what is said of any failure leaves nothing open."""
        answer = answered(
            "broken pipe\ntime-out\nno memory\n",
            made("pipe", "broken pipe", Role.CONSEQUENCE),
            made("late", "time-out", Role.GENERIC, ambiguity=OPEN),
            made("memory", "no memory"),
        )

        assert answer.cause is not None
        assert (answer.cause.check.slug, answer.confidence) == ("memory", Confidence.CERTAIN)
        assert [each.check.slug for each in answer.followed] == ["pipe", "late"]
        assert answer.others == ()

    @pytest.mark.parametrize("slugs", [("late", "status"), ("status", "late")])
    def test_of_what_is_said_of_any_failure_the_earlier_one(self, slugs: tuple[str, str]) -> None:
        """Where nothing says more, it is the answer; and it comes before those who lost a connection."""
        checks = (
            made("pipe", "broken pipe", Role.CONSEQUENCE),
            *(made(slug, slug, Role.GENERIC, ambiguity=OPEN) for slug in ("late", "status")),
        )
        answer = answered("broken pipe\n" + "".join(f"{slug}\n" for slug in slugs), *checks)

        assert answer.cause is not None
        assert (answer.cause.check.slug, answer.confidence) == (slugs[0], Confidence.UNDECIDABLE)
        assert {each.check.slug for each in answer.followed} == {"pipe", slugs[1]}

    @pytest.mark.parametrize("slugs", [("memory", "killed"), ("killed", "memory")])
    def test_one_of_several_causes_follows_from_a_certain_one_before_it(self, slugs: tuple[str, str]) -> None:
        """What an earlier attempt died of does not follow from what happened to a later one."""
        answer = answered(
            "".join(f"{slug}\n" for slug in slugs),
            made("memory", "memory"),
            made("killed", "killed", ambiguity=OPEN),
        )
        others, followed = ((), ("killed",)) if slugs[0] == "memory" else (("killed",), ())

        assert answer.cause is not None
        assert answer.cause.check.slug == "memory"
        assert tuple(each.check.slug for each in answer.others) == others
        assert tuple(each.check.slug for each in answer.followed) == followed

    def test_a_certain_cause_goes_before_one_of_several_in_the_same_line(self) -> None:
        """Two checks read one message; the one that can tell what is behind it explains the other."""
        answer = answered("no GPU\n", made("hidden", "no GPU", ambiguity=OPEN), made("ray", "no GPU"))

        assert answer.cause is not None
        assert (answer.cause.check.slug, answer.confidence) == ("ray", Confidence.CERTAIN)
        assert [each.check.slug for each in answer.followed] == ["hidden"]

    def test_of_two_causes_the_earlier_one(self) -> None:
        """Time decides among equals, and the answer says that there is another."""
        answer = answered("BBBB\nAAAA\n", made("a", "AAAA"), made("b", "BBBB"))

        assert answer.cause is not None
        assert (answer.cause.check.slug, answer.confidence) == ("b", Confidence.LIKELY)

    def test_what_another_sign_explains_only_followed(self) -> None:
        """``supersedes`` turns a cause into a consequence."""
        answer = answered("BBBB\nAAAA\n", made("a", "AAAA", supersedes=("b",)), made("b", "BBBB"))

        assert answer.cause is not None
        assert (answer.cause.check.slug, answer.confidence) == ("a", Confidence.CERTAIN)
        assert [each.check.slug for each in answer.followed] == ["b"]

    def test_doubt_is_undecidable(self) -> None:
        """A finding that leaves several causes says so."""
        answer = answered("AAAA\n", made("a", "AAAA", ambiguity=OPEN))

        assert answer.confidence is Confidence.UNDECIDABLE

    def test_harmless_only_is_no_cause(self) -> None:
        """A log that only shows what is harmless names no cause."""
        answer = answered("AAAA\n", made("a", "AAAA", Role.HARMLESS))

        assert answer.cause is None
        assert [each.check.slug for each in answer.harmless] == ["a"]

    @pytest.mark.parametrize("role", [Role.CAUSE, Role.GENERIC])
    def test_an_unknown_error_is_the_answer_before_what_leaves_the_cause_open(self, role: Role) -> None:
        """A user's own exception is no guess, a time-out of others is its consequence; not one before it."""
        late = made("late", "time-out", role, ambiguity=OPEN)
        answer, after = answered(INTERLEAVED + "time-out\n", late), answered("time-out\n" + INTERLEAVED, late)

        assert answer.cause is None
        assert answer.unknown is not None
        assert answer.unknown.record.rank == 1
        beside = answer.followed if role is Role.GENERIC else answer.others
        assert [each.check.slug for each in beside] == ["late"]
        assert after.cause is not None
        assert after.unknown is None

    @pytest.mark.parametrize("retries", [1, 50])
    def test_an_error_whose_words_were_warned_of_many_times_is_no_unknown_one(self, retries: int) -> None:
        """A store that is retried prints what it raises in the end: more often than a pattern is examined."""
        raised = 'Traceback (most recent call last):\n  File "train.py", line 3, in main\nDistNetworkError: AAAA\n'
        answer = answered("retry: AAAA\n" * retries + raised, made("a", "AAAA", Role.GENERIC))

        assert answer.unknown is None
        assert answer.cause is not None
        assert answer.cause.count == retries + 1

    def test_an_error_that_the_training_survives_is_no_answer(self) -> None:
        """A retry that was logged is not what ended the training; with a failure at the end it can be."""
        check = made("late", "exit code 1", Role.CONSEQUENCE)
        log = INTERLEAVED + "step\n" * 50

        assert answered(log, check).unknown is None
        assert answered(log + "exit code 1\n", check).unknown is not None

    def test_many_are_counted_and_few_are_kept(self) -> None:
        """A million of the same line needs no memory and is counted."""
        answer = answered("AAAA\n" * 5000, made("a", "AAAA"))

        assert answer.cause is not None
        assert answer.cause.count == 5000
        assert answer.lines == 5000

    def test_ranks_and_nodes_are_sorted_by_their_time(self) -> None:
        """Of two files the one whose error is earlier, in spite of time zones."""
        checks = numbered(made("a", "AAAA"), made("b", "BBBB"))
        answer = explain(
            [
                (Origin("0.log"), [b"2024-05-01T12:00:01+02:00 AAAA\n"]),
                (Origin("1.log"), [b"2024-05-01T10:00:00Z BBBB\n"]),
            ],
            checks,
        )

        assert answer.cause is not None
        assert answer.cause.check.slug == "b"

    @pytest.mark.parametrize(
        ("first", "second"),
        [
            ("{d} 10:00:00 begins\n{d} 10:20:05 {said}\n", "{d} 12:00:03 begins\n{d} 12:20:00 {said}\n"),
            ("{d} 15:30:00 begins\n{d} 15:50:05 {said}\n", "{d} 10:00:03Z begins\n{d} 10:20:00Z {said}\n"),
            (
                "{d}T10:00:00Z begins\n{d}T10:20:05Z [I0501 03:20:05.1 a.cpp:1] {said}\n",
                "{d} 03:00:01 begins\n{d} 03:20:00 {said}\n",
            ),
        ],
        ids=["no zone is named", "one host names its zone", "a collector's clock before the program's own"],
    )
    def test_hosts_in_other_time_zones_began_together(self, first: str, second: str) -> None:
        """Clocks that are whole hours apart are reconciled by when the logs begin, in whatever order they are given."""
        checks = numbered(made("late", "AAAA"), made("early", "BBBB"))
        logs = [
            (Origin("node0.log", node="node0"), [first.format(d="2024-05-01", said="AAAA").encode()]),
            (Origin("node1.log", node="node1"), [second.format(d="2024-05-01", said="BBBB").encode()]),
        ]

        for order in (logs, logs[::-1]):
            answer = explain(order, checks)
            assert answer.cause is not None
            assert answer.cause.check.slug == "early"

    def test_what_was_before_is_told_by_one_clock_or_by_the_order(self) -> None:
        """In a log that several hosts write to, the times of two of them prove nothing."""
        stopped = Record(text="BBBB", node="node1", time=7200)
        failed = Record(text="AAAA", node="node0", time=0)
        log = Log((stopped, failed))

        assert log.before(stopped, "AAAA") is None
        assert log.before(failed, "BBBB") is not None
        assert Log((stopped, replace(failed, node="node1"))).before(stopped, "AAAA") is not None

    @pytest.mark.parametrize(("node", "begins"), [("node0", "12:00:00"), ("node1", "11:44:00")])
    def test_a_later_attempt_stays_later(self, node: str, begins: str) -> None:
        """Files of one host have one clock; and hours between hosts that no time zone explains are hours."""
        checks = numbered(made("first", "AAAA"), made("second", "BBBB"))
        answer = explain(
            [
                (Origin("1.log", node=node), [f"2024-05-01 {begins} begins\n2024-05-01 {begins} BBBB\n".encode()]),
                (Origin("0.log", node="node0"), [b"2024-05-01 10:00:00 begins\n2024-05-01 11:20:00 AAAA\n"]),
            ],
            checks,
        )

        assert answer.cause is not None
        assert answer.cause.check.slug == "first"


TWO_FAILED = """\
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2024-05-01_10:00:09
  host      : n0
  rank      : 1 (local_rank: 1)
  exitcode  : 1 (pid: 22)
  error_file: /tmp/torchelastic_x/attempt_0/1/error.json
  traceback : Traceback (most recent call last):
    File "/w/train.py", line 31, in main
      raise LookupError("nobody answers")
  LookupError: nobody answers

------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2024-05-01_10:00:01
  host      : n0
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 21)
  error_file: /tmp/torchelastic_x/attempt_0/0/error.json
  traceback : Traceback (most recent call last):
    File "/w/train.py", line 30, in main
      x = rows[place]
  IndexError: list index out of range

============================================================
"""


class TestUnknownErrors:
    """Errors of the user's own: the exception of the rank that failed first, as it was raised."""

    def test_the_root_cause_of_a_summary_is_first(self) -> None:
        """Its tracebacks are of several ranks, the first to fail last; that the launcher failed, too, is no news."""
        answer = explain([(Origin("train.log"), [TWO_FAILED.encode()])], load_checks())

        assert answer.unknown is not None
        assert (answer.unknown.record.error, answer.unknown.record.rank) == ("IndexError", 0)
        assert [frame.line for frame in answer.unknown.frames] == [30]

    @pytest.mark.parametrize(
        ("log", "says"),
        [
            (
                (
                    'Traceback (most recent call last):\n  File "t.py", line 9, in f\n    g()\n'
                    "OddError: label 12 is out of range\nbatch 17 of epoch 3\n"
                ),
                "OddError: label 12 is out of range",
            ),
            (
                (
                    "  + Exception Group Traceback (most recent call last):\n"
                    '  |   File "t.py", line 9, in f\n  |     g()\n'
                    "  | ExceptionGroup: two failed (1 sub-exception)\n"
                    "  +-+---------------- 1 ----------------\n"
                    "    | Traceback (most recent call last):\n"
                    '    |   File "t.py", line 12, in g\n    |     h()\n'
                    "    | OddError: no row\n"
                    "    +------------------------------------\n"
                ),
                "| OddError: no row",
            ),
        ],
        ids=["with a note", "in a group"],
    )
    def test_what_was_raised_is_quoted(self, log: str, says: str) -> None:
        """Neither a note, which Python prints below the exception, nor the frame of a group."""
        answer = explain([(Origin("train.log"), [log.encode()])], load_checks())

        assert answer.unknown is not None
        assert answer.unknown.record.proof().seen == says


class TestPaths:
    """What the path of a log tells."""

    @pytest.mark.parametrize(
        ("path", "rank", "node"),
        [
            ("logs/none_x/attempt_0/3/stderr.log", 3, None),
            ("logs/rank12.log", 12, None),
            ("out/node1/rank_2.log", 2, "node1"),
            ("node-0.log", None, "node-0"),
            ("slurm-1234.out", None, None),
            ("train-123456-7.err", 7, None),
            ("nccl_trace_rank_5", 5, None),
            ("test_two_hosts_of_names0/train.log", None, None),
        ],
    )
    def test_rank_and_node(
        self, path: str, rank: int | None, node: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Layouts of torchrun and Slurm, and what people name files."""
        monkeypatch.chdir(tmp_path)
        file = Path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")

        (source,) = sources(path)

        assert (source.origin.rank, source.origin.node) == (rank, node)


class TestBlocks:
    """The log in pieces."""

    @given(st.integers(1, 400))
    def test_where_blocks_end_does_not_matter(self, size: int) -> None:
        """The same answer comes from any cut of the bytes."""
        answer = answered("x" * 90 + "\r\n" + INTERLEAVED + "AAAA\r\nAAAA", made("a", "AAAA"), size=size)

        assert answer.cause is not None
        assert (answer.cause.count, answer.cause.record.line) == (2, 12)

    def test_a_progress_bar_is_read(self) -> None:
        """What a bar that returns to its start writes over is there, in its line."""
        bar = "".join(f"\r{number}%| loss" for number in range(500))
        answer = answered(f"one\n{bar}\rAAAA\r99%\nAAAA\n", made("a", "AAAA"))

        assert answer.cause is not None
        assert (answer.cause.record.line, answer.cause.count, answer.lines) == (2, 2, 3)

    @given(st.lists(st.binary(max_size=200), max_size=8))
    def test_nothing_fails_on_any_bytes(self, blocks: list[bytes]) -> None:
        """No bytes raise an exception."""
        explain([(Origin("x"), blocks)], numbered(made("a", "AAAA")))


class TestNeedles:
    """Literal texts that patterns need."""

    @pytest.mark.parametrize(
        ("pattern", "expected"),
        [
            ("one longer text", {"one longer text"}),
            (r"errno: 98 - Address|code: -98", {"errno: 98 - Address", "code: -98"}),
            (r"(?:abcd)+x{2}", {"abcd"}),
            (r"^\s*short or (?:a|b) this is long", {" this is long"}),
            (r"(?i)anything", set()),
            (r"(?:optional text)?\d+", set()),
            (r"abcdef|x", set()),
            (r"first line\nmuch longer second", {"much longer second"}),
        ],
    )
    def test_the_best_text_is_found(self, pattern: str, expected: set[str]) -> None:
        """Each match of the pattern holds one of the texts."""
        assert literals(pattern) == expected

    def test_a_pattern_without_one_is_tried_on_each_line(self) -> None:
        """Slower, but nothing is missed."""
        answer = answered("boring\nABC 12\n", made("a", r"[A-C]+ \d+"))

        assert answer.cause is not None

    def test_a_pattern_is_compiled_where_its_text_occurs_only(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Else much of the start-up goes into patterns that are never searched for."""
        compiled: list[str] = []

        def noted(text: str) -> re.Pattern[str]:
            compiled.append(text)
            return re.compile(text)

        monkeypatch.setattr("ddpdoctor.facets._compiled", noted)
        answered("step 1\nstep 2\n", made("a", "abcd.efgh"))
        assert compiled == []

        answered("abcd efgh\n", made("a", "abcd.efgh"))
        assert set(compiled) == {"abcd.efgh"}

    def test_what_matches_is_what_a_plain_search_finds(self) -> None:
        """The search for literals leaves nothing out."""
        patterns = [Pattern(text) for text in ("abcd.efgh", "zzzz|efgh", r"\d{3}", "h.abcd")]
        found = finder(patterns)
        for text in ("abcd efgh", "zzzz", "123", "nothing", "efgh abcd efgh"):
            assert set(found.matching(text)) == {pattern for pattern in patterns if pattern.search(text)}


class TestShapes:
    """Lines of one kind, searched once."""

    def test_offsets_are_those_of_the_lines_that_hold_a_needle(self) -> None:
        """Dull lines are passed over, whatever their numbers."""
        block = b"".join(b"step %d loss 0.%d\n" % (number, number) for number in range(500)) + b"out of memory 7\n"

        assert list(Shapes([b"out of memory"]).offsets(block)) == [block.index(b"out of memory")]

    def test_of_lines_that_only_stand_beside_signs_a_few_are_looked_at(self) -> None:
        """A word that each line holds costs no more than a word that none does."""
        lines = b"".join(b"rank 0 step %d\n" % number for number in range(5000))

        assert len(list(Shapes([b"out of memory"], [b"rank"]).offsets(lines))) < 100
        assert len(list(Shapes([b"out of memory", b"rank"]).offsets(lines))) > 1000

    def test_a_log_is_answered_the_same_whatever_was_read_before_it(self) -> None:
        """What was prepared once serves many logs; how many lines of a kind were seen belongs to one of them."""
        prepared = examination(load_checks())
        log = (
            b"NCCL version 2.18.5+cuda12.1\nNCCL version 2.21.5+cuda12.4\n"
            b"ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\n"
        )
        seen = []
        for before in (b"", b"NCCL version 2.18.5+cuda12.1\n" * 100, b""):
            examined = prepared.anew()
            examined.read(Origin("train.log"), [before + log])
            seen.append(examined.answer().cause)

        assert seen[0] is not None
        assert seen[0].check.slug == "multiple-nccl"
        assert seen[2] == seen[0]


SUMMARY = """\
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2024-05-01_10:00:02
  host      : node7
  rank      : 9 (local_rank: 1)
  exitcode  : -15 (pid: 78)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 78
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2024-05-01_10:00:01
  host      : node8
  rank      : 12 (local_rank: 4)
  exitcode  : 1 (pid: 77)
  error_file: /tmp/x/attempt_0/4/error.json
  traceback : Traceback (most recent call last):
    File "/x/site-packages/torch/distributed/elastic/multiprocessing/errors/__init__.py", line 355, in wrapper
      return f(*args, **kwargs)
    File "/home/u/train.py", line 31, in main
      loss = step(batch)
  KeyError: 'weights'

============================================================
"""


class TestElastic:
    """What torchrun says at the end."""

    def test_each_line_of_a_failure_has_its_rank_and_host(self) -> None:
        """The exit code belongs to the rank that the entry names."""
        answer = answered(SUMMARY, made("term", r"exitcode  : -15"))

        named = next(each for each in answer.named if each.check.slug == "term")
        assert (named.record.rank, named.record.node, named.record.time) == (9, "node7", 1714557602)

    def test_the_traceback_in_a_summary_is_one(self) -> None:
        """What a rank wrote into its error file is a traceback like any other."""
        answer = answered(SUMMARY, made("none", "no such thing"))

        assert answer.unknown is not None
        assert answer.unknown.record.error == "KeyError"
        assert (answer.unknown.record.rank, answer.unknown.record.line) == (12, 20)
        assert [frame.line for frame in answer.unknown.frames] == [31]

    def test_without_times_the_rank_that_torchrun_saw_first_is_first(self) -> None:
        """Files of ranks have no common clock, but the agent's summary tells."""
        logs = [
            (Origin("0.log", rank=0), [b"RuntimeError: zero\n"]),
            (Origin("12.log", rank=12), [b"RuntimeError: twelve\n"]),
            (Origin("agent.log"), [SUMMARY.partition("  traceback : Traceback")[0].encode()]),
        ]

        answer = explain(logs, numbered(made("none", "no such thing")))

        assert answer.unknown is not None
        assert answer.unknown.record.rank == 12

    def test_an_error_file_is_a_traceback_with_its_time(self) -> None:
        """What ``@record`` writes."""
        stack = 'Traceback (most recent call last):\n  File "t.py", line 3, in main\nKeyError: 1\n'
        message = {"message": "KeyError: 1", "extraInfo": {"py_callstack": stack, "timestamp": "1714557600"}}

        text = error_file(json.dumps({"message": message}).encode())

        assert text is not None
        (record,) = records(text.decode())
        assert (record.error, record.time, record.users and record.users.line) == ("KeyError", 1714557600, 3)
        assert error_file(b'{"message": "a text"}') is None
