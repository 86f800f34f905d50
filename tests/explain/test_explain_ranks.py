# ruff: noqa: E501 - messages stand in one line, as they are printed
"""Logs of several ranks, one after the other: no common clock, and one rank that differs; several jobs in one file."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import pytest
from helpers import answered, named, wait
from hypothesis import given, settings, strategies as st

from ddpdoctor.logs.read.clock import find_moment, nearest
from ddpdoctor.report.answer.data import as_markdown
from ddpdoctor.report.answer.text import answer_text

RAISED = """\
[rank{rank}]: Traceback (most recent call last):
[rank{rank}]:   File "/home/u/train.py", line 31, in main
[rank{rank}]:     check(batch)
[rank{rank}]: acme.data.BrokenShard: shard 17 is empty
"""
HEARTBEAT = "[rank{rank}]:[E1012 04:10:20.831 ProcessGroupNCCL.cpp:616] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Heartbeat monitor timed out! Process will be terminated after dumping debug info. workMetaList_.size()=5\n"
BARRIER = "[rank0]: RuntimeError: Rank 0 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 3. Ranks 3 failed to pass monitoredBarrier in 30000 ms\n"
BEGUN = "W1121 09:36:23.908000 21420 torch/distributed/run.py:874] *****************************************\n"
FULL = "[rank0]: torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0\n"


def summary(*failures: tuple[int, int]) -> str:
    """Write torchrun's summary of ranks and their exit statuses, the root cause last."""
    told = [
        f"[{number}]:\n  time      : 2024-05-01_10:00:05\n  host      : node-a\n  rank      : {rank} (local_rank: {rank})\n"
        f"  exitcode  : {status} (pid: 1{rank})\n  error_file: <N/A>\n"
        "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html\n"
        for number, (rank, status) in enumerate(failures)
    ]
    return (
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n============\ntrain.py FAILED\n------------\n"
        f"Failures:\n{''.join(told[:-1])}------------\nRoot Cause (first observed failure):\n{told[-1]}============\n"
    )


WAITS = {
    "one time-out": wait(0, 17),
    "several": wait(0, 17) + wait(2, 17) + wait(3, 17),
    "one behind": wait(0, 17) + wait(2, 16),
    "different operations": wait(0, 17) + wait(2, 17, "BROADCAST", 4, 4),
    "one absent": "".join(wait(rank, 17, "_ALLGATHER_BASE", 10, 40) for rank in (0, 2, 3)),
    "a heartbeat": HEARTBEAT.format(rank=0),
    "a barrier": BARRIER,
}


class TestAnUnknownException:
    """One that no check knows, of a rank that the others waited for."""

    @pytest.mark.parametrize("rank", [1, 9])
    @pytest.mark.parametrize("waits", WAITS.values(), ids=WAITS)
    def test_it_is_told_before_the_time_outs_of_others(self, waits: str, rank: int) -> None:
        """Wherever it stands, since the logs of ranks one after the other have no common clock."""
        raised = RAISED.format(rank=rank)
        for log in (waits + raised, raised + waits):
            answer = answered(log)

            assert answer.unknown is not None
            assert (answer.unknown.record.error, answer.unknown.record.rank) == ("acme.data.BrokenShard", rank)
            assert answer.others or answer.followed

    @settings(max_examples=20)
    @given(st.permutations([*(wait(rank, 17) for rank in range(12)), RAISED.format(rank=12)]))
    def test_the_order_of_the_logs_changes_nothing(self, logs: list[str]) -> None:
        """Twelve ranks that waited, and one that did not."""
        unknown = answered("".join(logs)).unknown

        assert unknown is not None
        assert unknown.record.rank == 12

    def test_what_a_rank_raises_after_its_own_time_out_follows_from_it(self) -> None:
        """The watchdog of that very rank came first; the error is shown all the same."""
        answer = answered(wait(0, 17) + wait(1, 17) + RAISED.format(rank=1))

        assert answer.cause is not None
        assert answer.cause.check.slug == "collective-timeout"
        assert answer.also_unknown is not None
        assert "acme.data.BrokenShard" in answer_text(answer)
        assert "acme.data.BrokenShard" in as_markdown(answer)

    def test_without_ranks_the_exit_statuses_tell(self) -> None:
        """Python ended one rank (1), the watchdog another (-6): the exception is the one that the other waited for."""
        waits, raised = wait(0, 17).replace("[rank0]:", ""), RAISED.replace("[rank{rank}]: ", "")
        told, untold = answered(waits + raised + summary((1, 1), (0, -6))), answered(waits + raised)

        assert told.unknown is not None
        assert untold.unknown is None
        assert untold.also_unknown is not None

    def test_of_several_the_one_of_the_root_cause_is_told(self) -> None:
        """What torchrun saw failing first goes before what stands first in the file."""
        log = wait(0, 17) + RAISED.format(rank=1).replace("BrokenShard", "Late") + RAISED.format(rank=2)

        answer = answered(log + summary((1, 1), (2, 1)))

        assert answer.unknown is not None
        assert answer.unknown.record.error == "acme.data.BrokenShard"

    def test_one_that_the_rank_survived_is_no_answer(self) -> None:
        """The rank trained on after it, so the time-out has another cause."""
        went_on = "".join(f"[rank1]: 2024-05-01 10:00:0{step} INFO step {step} loss 2.0\n" for step in range(5))

        answer = answered(RAISED.format(rank=1) + went_on + wait(0, 17))

        assert answer.unknown is None

    @pytest.mark.parametrize(
        "last", ["gpu1:11:12 [1] NCCL INFO comm 0x55 rank 1 nranks 4 - Abort COMPLETE", "wandb: epoch 3", "cleaning up"]
    )
    def test_last_words_are_no_training(self, last: str) -> None:
        """However many lines a rank prints while it ends, its exception is told."""
        after = f"[rank1]: {last}\n" * 40

        answer = answered(RAISED.format(rank=1) + "[rank1]: [WARNING] ending\n" + after + wait(0, 17))

        assert answer.unknown is not None
        assert answer.unknown.record.rank == 1

    def test_lines_of_other_ranks_do_not_show_that_it_was_survived(self) -> None:
        """The log of a rank that did well, behind that of the one that failed, says nothing of it."""
        other = "".join(f"[rank2]: step {step}\n" for step in range(60))

        answer = answered(RAISED.format(rank=1) + other)

        assert answer.unknown is not None
        assert answered(RAISED.format(rank=1) + other.replace("rank2", "rank1")).unknown is None

    def test_one_of_a_later_time_is_no_answer(self) -> None:
        """Where both name a time of one clock, the time tells."""
        late = "".join(f"2024-05-01 11:00:00 {line}\n" for line in RAISED.format(rank=1).splitlines())
        early = f"2024-05-01 10:00:00 {BARRIER}"

        assert answered(early + late).unknown is None
        assert answered(early + late.replace("11:00", "09:00")).unknown is not None


@pytest.mark.parametrize("odd", [0, 5, 63])
@pytest.mark.parametrize("said", [("ALLREDUCE", 16), ("BROADCAST", 17)], ids=["number", "operation"])
def test_the_rank_that_differs_is_among_those_shown(odd: int, said: tuple[str, int]) -> None:
    """However many ranks there are, in whatever order."""
    log = "".join(wait(rank, *(said[::-1] if rank == odd else (17, "ALLREDUCE"))) for rank in range(64))

    finding = next(iter(named(log).values())).finding

    assert any(f"rank {odd}" in each.source for each in finding.evidence)


class TestSeveralJobs:
    """Jobs that were appended to one file."""

    def test_the_last_one_counts(self) -> None:
        """Its failure is told, and that there were others, with the command that reads them."""
        first = BEGUN + FULL * 100 + summary((0, 1))
        answer = answered(first + BEGUN + RAISED.format(rank=1) + summary((1, 1)))

        assert answer.unknown is not None
        assert answer.named == ()
        assert answer.notes[0].startswith("train.log: 2 jobs")
        assert f"head -n {first.count(chr(10))} train.log" in answer.notes[0]
        assert answer.notes[0].split()[0] in answer_text(answer)

    def test_a_failure_of_an_earlier_job_is_none_of_the_last(self) -> None:
        """The last one goes well so far."""
        answer = answered(BEGUN + FULL + summary((0, 1)) + BEGUN + "step 1\n")

        assert (answer.cause, answer.unknown, len(answer.notes)) == (None, None, 1)

    def test_the_same_failure_again_is_counted_in_the_last_job(self) -> None:
        """What was kept of the first job takes nobody's place."""
        answer = answered((BEGUN + FULL * 60 + summary((0, 1))) * 2)

        assert answer.cause is not None
        assert answer.cause.count == 60

    @pytest.mark.parametrize("prefixed", [True, False])
    def test_launchers_of_several_hosts_are_one_job(self, *, prefixed: bool) -> None:
        """One that begins late on another host, or while the first one runs, ends nothing."""
        log = BEGUN + FULL + summary((0, 1))
        hosts = "".join(f"0: {line}\n" for line in log.splitlines()) + f"1: {BEGUN}" if prefixed else BEGUN + log

        answer = answered(hosts)

        assert answer.notes == ()
        assert answer.cause is not None


@pytest.mark.parametrize("content", [b"", b"\n\n  \n"])
def test_empty_logs_are_nothing_to_read(content: bytes, tmp_path: Path) -> None:
    """Status 2 and one line, from a file and from a pipe; beside a log that holds something it is no matter."""
    (tmp_path / "empty.log").write_bytes(content)
    (tmp_path / "train.log").write_text("step 1\n")
    command = [sys.executable, "-m", "ddpdoctor", "explain"]

    for args in (["empty.log"], ["-"]):
        done = subprocess.run([*command, *args], input=content, capture_output=True, cwd=tmp_path, check=False)
        assert (done.returncode, done.stdout) == (2, b"")
        assert done.stderr.startswith(b"ddpdoctor: nothing to read: ")
        assert done.stderr.count(b"\n") == 1
    both = subprocess.run([*command, "empty.log", "train.log"], capture_output=True, cwd=tmp_path, check=False)
    assert (both.returncode, both.stderr) == (0, b"")


class TestLeapDays:
    """February 29 in lines that name no year."""

    @given(st.integers(1905, 2095), st.integers(1, 365))
    def test_a_day_without_a_year_is_put_into_a_year_that_has_it(self, year: int, day: int) -> None:
        """Whatever the year of the other lines."""
        found = find_moment("E0229 10:00:00.000 boom")
        assert found is not None
        near = datetime(year, 1, 1, tzinfo=timezone.utc).timestamp() + day * 86400

        put = datetime.fromtimestamp(nearest(found[0].seconds, near), timezone.utc)

        assert (put.month, put.day, put.hour) == (2, 29, 10)
        assert abs(put.timestamp() - near) <= 8 * 366 * 86400

    @pytest.mark.parametrize(
        "said", ["2023-02-29 10:00:00", "2024-02-30 10:00:00", "E0431 10:00:00.0", "0000-01-01 10:00:00"]
    )
    def test_a_day_that_no_year_has_is_no_date(self, said: str) -> None:
        """The line is read as it stands."""
        assert find_moment(f"{said} boom") is None


LATE = "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 20000ms for recv operation to complete"

LOST = "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:5864"


def waited(rank: int, handled: str = "") -> str:
    """Write the traceback of a rank that waited in vain, within `finally` where it had an exception."""
    lines = ["Traceback (most recent call last):"]
    if handled:
        lines += [
            '  File "/home/u/train.py", line 18, in train',
            "    use(batch)",
            handled,
            "",
            "During handling of the above exception, another exception occurred:",
            "",
            "Traceback (most recent call last):",
        ]
    lines += [
        '  File "/home/u/train.py", line 28, in main',
        "    dist.barrier()",
        '  File "/opt/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 5356, in barrier',
        "    work.wait()",
        LATE,
    ]
    return "".join(f"[rank{rank}]: {line}".rstrip() + "\n" for line in lines)


@pytest.mark.parametrize("handled", ["KeyError: 'label'", "acme.data.BrokenShard: shard 17 is empty"])
@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("turned", [False, True])
def test_what_a_rank_handled_when_it_began_to_wait(handled: str, *, turned: bool, lost: bool) -> None:
    """It comes before the time-outs and lost connections that followed, whichever rank stands first."""
    late = waited(1, handled)
    logs = [waited(0), late.replace(LATE, LOST) if lost else late]
    answer = answered("".join(reversed(logs) if turned else logs))

    assert answer.cause is None
    assert answer.unknown is not None
    assert answer.unknown.record.error == handled.partition(":")[0]
    assert (answer.unknown.ranks, answer.unknown.frames[-1].line) == ((1,), 18)


@pytest.mark.parametrize(
    "log",
    [
        waited(0, "KeyError: 'label'") + waited(1, "KeyError: 'label'"),
        waited(0) + waited(1),
        waited(1, "KeyError: 'label'"),
        waited(0) + waited(1, LATE),
    ],
    ids=["all ranks", "no rank", "one log", "a time-out"],
)
def test_what_is_handled_everywhere_is_no_cause(log: str) -> None:
    """Nor is it where no other rank waits without it."""
    answer = answered(log)

    assert answer.unknown is None
    assert answer.first is not None
    assert answer.first.check.slug == "collective-timeout"
