"""``ddpdoctor explain DUMPS``: what the flight recorders of several ranks say together. The dumps are of real ranks."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from helpers import PREPARED, Run

from ddpdoctor.facets import BadTarget
from ddpdoctor.logs.flight.dumps import read_dump
from ddpdoctor.logs.read.sources import Origin

if TYPE_CHECKING:
    from ddpdoctor.logs.answer import Answer
    from ddpdoctor.logs.flight.dumps import Dump

SCRIPT = """\
import os, sys, threading, time
import torch
import torch.distributed as dist
import torch._C._distributed_c10d as c10d

mode, rank, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
x = torch.ones(4)


def train():
    dist.all_reduce(x)
    if mode == "late" and rank == 0:
        dist.all_reduce(x)
    elif mode == "order":
        dist.broadcast(x, 0) if rank else dist.all_reduce(x)
        dist.barrier()
    time.sleep(60)


threading.Thread(target=train, daemon=True).start()
time.sleep(2)
with open(f"{folder}/some_prefix_{rank}", "wb") as file:
    file.write(c10d._dump_fr_trace())
with open(f"{folder}/json_{rank}.json", "w") as file:
    text = c10d._dump_fr_trace_json()
    file.write(text.decode() if isinstance(text, bytes) else text)
time.sleep(1)
os._exit(0)
"""
LINE = SCRIPT.splitlines().index("        dist.all_reduce(x)") + 1


def hang(python: str, mode: str, folder: Path) -> Path:
    """Have two gloo ranks hang, and write their dumps."""
    c10d = pytest.importorskip("torch._C._distributed_c10d")
    if not hasattr(c10d, "_dump_fr_trace_json"):
        pytest.skip("this torch records no collectives of gloo")
    (folder / "hang.py").write_text(SCRIPT)
    command = [python, str(folder / "hang.py"), mode]
    ranks = [subprocess.Popen([*command, str(rank), str(folder)], stderr=subprocess.DEVNULL) for rank in range(2)]
    for each in ranks:
        each.wait(60)
    if not (folder / "json_1.json").is_file() or not json.loads((folder / "json_1.json").read_text())["entries"]:
        pytest.skip("this torch records no collectives of gloo")
    return folder


@pytest.fixture(scope="module")
def late(python: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return dumps of two ranks, the second of which does not come to the second collective."""
    return hang(python, "late", tmp_path_factory.mktemp("late"))


def call(number: int, operation: str = "all_reduce", **other: Any) -> dict[str, Any]:
    """Return an entry as torch 2.13 writes it."""
    frames = [
        {"name": "all_reduce", "filename": "/x/site-packages/torch/distributed/distributed_c10d.py", "line": 9},
        {"name": "main", "filename": "/home/u/train.py", "line": 10 + number},
    ]
    return {
        "frames": frames,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "profiling_name": f"nccl:{operation}",
        "time_created_ns": 1_700_000_000_000_000_000 + number,
        "input_sizes": [[4]],
        "input_dtypes": ["Float"],
        "state": "completed",
        "retired": True,
        "is_p2p": False,
    } | other


def waiting(number: int, operation: str = "all_reduce", **other: Any) -> dict[str, Any]:
    """Return an entry that is not complete."""
    return call(number, operation, **({"state": "started", "retired": False} | other))


def pickled(entries: list[dict[str, Any]], members: str = "[0, 1]") -> bytes:
    """Return a dump with these entries."""
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": members}}
    return pickle.dumps({"version": "2.10", "pg_config": config, "entries": entries}, protocol=2)


def dumps(*ranks: list[dict[str, Any]], members: str = "[0, 1]") -> list[Dump]:
    """Return the dumps of ranks 0, 1, ... with these entries."""
    read = [read_dump(f"nccl_trace_rank_{rank}", pickled(entries, members)) for rank, entries in enumerate(ranks)]
    return [dump for dump in read if dump is not None]


def answered(*ranks: list[dict[str, Any]], members: str = "[0, 1]") -> Answer:
    """Explain the dumps of ranks 0, 1, ... with these entries."""
    examined = PREPARED.anew()
    examined.compare(dumps(*ranks, members=members))
    return examined.answer()


def said(answer: Answer) -> tuple[str, str]:
    """Return the check that is named first, and its message."""
    return (answer.cause.check.slug, answer.cause.finding.message) if answer.cause else ("", "")


def test_real_dumps_name_the_rank_that_did_not_come(ddpdoctor: Run, late: Path) -> None:
    """Pickles of any prefix and a rank number are found in a folder; both ranks' lines are told."""
    done = ddpdoctor("explain", *(str(late / f"some_prefix_{rank}") for rank in range(2)))

    assert done.returncode == 1
    assert "ranks-diverge: rank 1 did not call collective 2 (all_reduce) of group 0" in done.stdout
    assert f"rank 0 waits in collective 2 (all_reduce, [4] Float) at hang.py:{LINE}" in done.stdout
    assert "rank 1 is through collective 1" in done.stdout


def test_real_dumps_in_json_name_it_too(ddpdoctor: Run, late: Path) -> None:
    """The form without stacks tells the same."""
    done = ddpdoctor("explain", *(str(late / f"json_{rank}.json") for rank in range(2)))

    assert done.returncode == 1
    assert "rank 1 did not call collective 2 (all_reduce)" in done.stdout


def test_a_folder_of_dumps_and_logs_is_read_together(ddpdoctor: Run, late: Path, tmp_path: Path) -> None:
    """An error of the rank that did not come is the cause; what the dumps show follows from it."""
    for rank in range(2):
        (tmp_path / f"fr{rank}").write_bytes((late / f"some_prefix_{rank}").read_bytes())
    (tmp_path / "rank1.log").write_text(
        'Traceback (most recent call last):\n  File "/home/u/train.py", line 3, in main\nValueError: bad label\n'
    )

    done = ddpdoctor("explain", str(tmp_path))

    assert done.stdout.startswith("first error, which ddpdoctor does not know, rank 1\nValueError: bad label")
    assert "rank 1 did not call collective 2" in done.stdout


def test_dumps_that_appear_are_read_while_following(tmp_path: Path) -> None:
    """A dump that comes later replaces what those before it left open."""
    (tmp_path / "train.log").write_text("step 1\n")
    command = [sys.executable, "-m", "ddpdoctor", "explain", "-f", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        watchdog = threading.Timer(60, process.kill)
        watchdog.start()
        try:
            for rank, entries in enumerate(([call(1), waiting(2)], [call(1)])):
                (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(pickled(entries))
                until = "no other dump was read" if rank == 0 else "rank 1 did not call collective 2 (all_reduce)"
                assert any(until in line for line in iter(process.stdout.readline, ""))
        finally:
            watchdog.cancel()
            process.terminate()
            process.wait(20)


def test_what_dumps_show_is_not_counted_twice() -> None:
    """Comparing again, with one more dump, leaves what comparing once would have found."""
    known = dumps([call(1), waiting(2)], [call(1)])
    again, once = PREPARED.anew(), PREPARED.anew()
    again.compare(known[:1])
    again.compare(known)
    once.compare(known)

    assert again.answer() == once.answer()


def test_real_dumps_name_the_two_operations(python: str, ddpdoctor: Run, tmp_path: Path) -> None:
    """Rank 0 reduces where rank 1 broadcasts."""
    folder = hang(python, "order", tmp_path)

    done = ddpdoctor("explain", *(str(folder / f"some_prefix_{rank}") for rank in range(2)))

    assert "first cause: certain" in done.stdout
    assert "collective-order-mismatch: ranks differ in operation at collective 2" in done.stdout
    assert "rank 1 waits in collective 2 (broadcast" in done.stdout


def test_dumps_of_ranks_that_do_not_wait_show_nothing() -> None:
    """Complete collectives are no failure, although one rank has called one more."""
    assert said(answered([call(1), call(2)], [call(1)])) == ("", "")


def test_tensors_of_other_sizes_are_named() -> None:
    """The first number that differs counts, not where the ranks wait."""
    slug, message = said(answered([call(1), waiting(2)], [call(1), waiting(2, input_sizes=[[5]])]))

    assert (slug, message) == (
        "collective-shape-mismatch",
        "ranks differ in tensors at collective 2 of group 0 (default_pg)",
    )


@pytest.mark.parametrize(
    "given",
    [
        {"operation": "all_gather", "input_sizes": [[5]]},  # NCCL sends uneven parts as broadcasts
        {"operation": "all_reduce", "input_sizes": [[2, 2]]},  # as many elements
    ],
)
def test_what_rightly_differs_is_no_mismatch(given: dict[str, Any]) -> None:
    """Operations that take parts of any size, and shapes of as many elements, are no difference."""
    slug, _ = said(answered([waiting(1, given["operation"])], [waiting(1, **given)]))

    assert slug == "collective-timeout"


def test_coalesced_calls_of_one_number_are_not_compared() -> None:
    """Several calls share a number within a coalescing manager: none of them stands for it."""
    slug, _ = said(answered([call(1), call(1, "broadcast"), waiting(2)], [call(1, "broadcast"), waiting(2)]))

    assert slug == "collective-timeout"


def test_ranks_that_all_wait_in_one_collective_are_told_so() -> None:
    """Nobody is missing: what is below the collective is left."""
    slug, message = said(answered([waiting(1)], [waiting(1)]))

    assert (slug, message) == ("collective-timeout", "the ranks wait in one collective, and it does not end")


def test_a_rank_without_a_dump_is_gone_or_elsewhere() -> None:
    """The group's own list says which ranks there are."""
    slug, message = said(answered([waiting(1)], [waiting(1)], members="[0, 1, 2]"))

    assert slug == "rank-died-or-stuck"
    assert message.startswith("rank 2 left no dump; the others wait in collective 1")


@pytest.mark.parametrize("second", [[call(1)], [waiting(1, process_group=("1", "data"), pg_id=1)]])
def test_dumps_say_more_of_a_rank_than_the_report_that_it_did_not_come(second: list[dict[str, Any]]) -> None:
    """A rank that wrote a dump lives: torch's report of a lagging rank, earlier in a log, leaves that open."""
    report = b"[1] finished collective #1, but didn't join collective #2 (count from 1)\n"
    examined = PREPARED.anew()
    examined.read(Origin("train.log"), [report])
    examined.compare(dumps([call(1), waiting(2)], second))
    answer = examined.answer()

    assert said(answer)[0] == "ranks-diverge"
    assert [each.check.slug for each in answer.followed] == ["rank-died-or-stuck"]


def test_a_rank_that_waits_in_another_group_is_not_blamed() -> None:
    """Rank 1 is behind in one group since it waits in another, in which rank 2 has not come."""
    other: dict[str, Any] = {"process_group": ("1", "data"), "pg_id": 1}

    first = [waiting(1)]
    second = [waiting(1, **other)]
    third = [call(1), call(3, **other | {"collective_seq_id": 0})]
    slug, message = said(answered(first, second, third, members="[0, 1]"))

    assert slug == "ranks-diverge"
    assert message.startswith("rank 2 did not call collective 1 (all_reduce) of group 1 (data)")


def test_ranks_that_wait_for_each_other_in_two_groups() -> None:
    """Each is behind where the other waits."""
    other: dict[str, Any] = {"process_group": ("1", "data"), "pg_id": 1}

    slug, message = said(answered([waiting(1), call(0, **other)], [waiting(1, **other)]))

    assert (slug, message) == ("ranks-diverge", "the ranks wait in different collectives, each for another one")


def test_a_rank_that_waits_to_receive_is_not_taken_for_one_that_works() -> None:
    """A receive has a number of its own, and keeps its rank from coming."""
    receive = waiting(0, "recv 1<-0", is_p2p=True, p2p_seq_id=1)

    _, message = said(answered([waiting(1)], [receive]))

    assert message.startswith("the ranks wait in different collectives")


def test_one_dump_alone_leaves_the_cause_open() -> None:
    """It tells where its rank waits, and nothing about the others."""
    answer = answered([waiting(1)])

    assert said(answer)[0] == "collective-timeout"
    assert answer.cause is not None
    assert answer.cause.finding.ambiguity is not None


class Evil:
    """Would run a command when it is unpickled."""

    def __init__(self, path: Path) -> None:
        """Take the file that the command makes."""
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        """Call Path.touch."""
        return Path.touch, (self.path,)


def test_a_malicious_dump_runs_nothing(ddpdoctor: Run, tmp_path: Path) -> None:
    """A call in the pickle is refused in one line, with exit status 2."""
    made = tmp_path / "made"
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(pickle.dumps({"version": "2.10", "entries": [Evil(made)]}, protocol=2))

    done = ddpdoctor("explain", str(path))

    assert (done.returncode, made.exists()) == (2, False)
    assert len(done.stderr.splitlines()) == 1
    assert "more than plain data" in done.stderr


def test_a_dump_that_is_cut_off_anywhere_is_one_clear_line() -> None:
    """No cut makes anything but a refusal, or what is taken for no dump."""
    data = pickle.dumps({"version": "2.10", "entries": [call(1), waiting(2)]}, protocol=2)

    for end in range(2, len(data)):
        with pytest.raises(BadTarget, match="nccl_trace_rank_0: not read as a flight recorder's dump"):
            read_dump("nccl_trace_rank_0", data[:end])


@pytest.mark.parametrize(
    "wrong",
    [
        {"frames": 3},
        {"input_sizes": None},
        {"time_created_ns": "soon"},
        {"process_group": 7},
        {"collective_seq_id": [1]},
        {"input_sizes": [[4, {}]]},
    ],
)
def test_a_dump_of_wrong_values_is_one_clear_line(wrong: dict[str, Any]) -> None:
    """Other types than torch writes are refused."""
    data = pickle.dumps({"version": "2.10", "entries": [call(1, **wrong)]}, protocol=2)

    with pytest.raises(BadTarget, match="nccl_trace_rank_0: a flight recorder's dump that is not understood"):
        read_dump("nccl_trace_rank_0", data)


def test_a_damaged_dump_beside_good_ones_is_told_and_passed_over(ddpdoctor: Run, tmp_path: Path) -> None:
    """What can be compared is compared."""
    for rank, entries in enumerate(([waiting(2)], [call(1)], [call(1)])):
        data = pickle.dumps({"version": "2.10", "entries": entries}, protocol=2)
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(data[: -20 if rank == 2 else None])

    done = ddpdoctor("explain", str(tmp_path))

    assert done.returncode == 1
    assert "rank 1 did not call collective 2" in done.stdout
    assert done.stderr.count("\n") == 1


def test_a_log_in_json_is_no_dump(ddpdoctor: Run, tmp_path: Path) -> None:
    """A line that holds the words is read as a log."""
    (tmp_path / "train.json").write_text('{"entries": 3}\n{"entries": 4}\n')

    assert ddpdoctor("explain", str(tmp_path / "train.json")).stdout == "no failure in 2 lines\n"
