"""The watch of each host says where its ranks wait; the logs of all hosts together say why."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from helpers import Run, named

from ddpdoctor.checks.collectives.absent.rank_died_or_stuck import apart_from_other_hosts
from ddpdoctor.checks.collectives.hangs._hangs import hang_of
from ddpdoctor.checks.collectives.hangs._kinds import Hang
from ddpdoctor.cluster.lines import RANKS
from ddpdoctor.findings import Severity
from ddpdoctor.host.process.waits.wait import Awaited
from ddpdoctor.watch.events import Doing, Position, Site, Stalled
from ddpdoctor.watch.events.failures import Progress
from ddpdoctor.watch.events.hang import JOINING
from ddpdoctor.watch.events.hosts.read import stalled_from
from ddpdoctor.watch.events.hosts.written import as_line, end_line, goes_on, joining_line
from ddpdoctor.watch.events.process import Joining, Left
from ddpdoctor.watch.training import Training

if TYPE_CHECKING:
    from ddpdoctor.findings import Finding
    from ddpdoctor.watch.events import EpochStarted
    from ddpdoctor.watch.events.files import Loaded

SCRIPT = """
def main(rank, model, loader):
    for batch in loader:
        model(batch).backward()
        if rank == 0:
            dist.barrier()
        if batch.done:
            break
    dist.all_reduce(total)
"""
BACKWARD, GUARDED, AFTER = 4, 6, 9


def waits(rank: int, operation: str, line: int, file: str = "train.py") -> Stalled:
    """Return what one host of two sees, whose only rank waits at a line."""
    site = Site(file, line, "main")
    here = Position(
        rank=rank, pid=7, doing=Doing.WAITING, seconds=30.0, site=site, operation=operation, stack=(site,)
    )  # fmt: skip
    return Stalled(pid=0, time=0.0, ranks=(here,), world_size=2)


def logs(folder: Path, *events: Stalled) -> list[str]:
    """Write a log for each host."""
    found = []
    folder.mkdir(exist_ok=True)
    for host, event in zip("ab", events, strict=True):
        path = folder / f"{host}.log"
        path.write_text(f"step 1\n{as_line(event, host)}\n")
        found.append(str(path))
    return found


@pytest.mark.parametrize(
    ("operation", "line", "said"),
    [
        ("barrier", GUARDED, "DDP723 rank0-only-collective: rank 0 waits in dist.barrier"),
        ("all_reduce", AFTER, "DDP712 ranks-diverge: rank 0 has left the loop"),
    ],
)
def test_what_one_host_skipped_is_told(ddpdoctor: Run, tmp_path: Path, operation: str, line: int, said: str) -> None:
    """By the script, where it can be read."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    told = logs(tmp_path, waits(0, operation, line, str(script)), waits(1, "backward", BACKWARD, str(script)))
    explained = ddpdoctor("explain", *told)
    assert said in " ".join(explained.stdout.split())
    assert ("`break` at line 8, under `if batch.done`" in explained.stdout) is (line == AFTER)
    assert explained.returncode == 1
    assert ddpdoctor("explain", told[0]).returncode == 0


def test_ranks_at_different_places_are_told_without_the_script(ddpdoctor: Run, tmp_path: Path) -> None:
    """Which of them is wrong is open then."""
    told = logs(tmp_path, waits(0, "barrier", GUARDED), waits(1, "backward", BACKWARD))
    said = " ".join(ddpdoctor("explain", *told).stdout.split())
    assert "DDP712 ranks-diverge: the ranks wait for each other in different places: rank 0 in barrier" in said


def test_who_left_a_loop_is_told_where_the_script_lies_on_the_hosts_alone(ddpdoctor: Run, tmp_path: Path) -> None:
    """Each host's line has the loops that its ranks are in, and how many forwards they have begun."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)

    def of(rank: int, operation: str, line: int, forwards: int) -> Stalled:
        event = waits(rank, operation, line, str(script))
        return replace(event, ranks=tuple(replace(each, forwards=forwards, steps=30) for each in event.ranks))

    told = logs(tmp_path, of(0, "all_reduce", AFTER, 30), of(1, "backward", BACKWARD, 31))
    also = logs(tmp_path / "also", of(0, "barrier", GUARDED, 30), of(1, "backward", BACKWARD, 30))
    script.unlink()
    said = " ".join(ddpdoctor("explain", *told).stdout.split())
    assert "rank 0 waits behind the loop at train.py:3, in which rank 1 is" in said
    assert "rank 1 has begun forward 31, rank 0 came to 30" in said
    assert "30 forwards, 30 steps (rank 0)" in said
    assert "with Join([model])" in said
    said = " ".join(ddpdoctor("explain", *also).stdout.split())
    assert "DDP712" in said
    assert "behind the loop" not in said
    assert "has begun forward" not in said


def test_loaders_of_different_lengths_are_told(ddpdoctor: Run, tmp_path: Path) -> None:
    """Hosts that have other data: it is to be made the same, and no Join is to hide it."""
    names = ("all_reduce", AFTER), ("backward", BACKWARD)
    events = [waits(rank, *each) for rank, each in enumerate(names)]

    def explained(*lengths: int) -> str:
        told = []
        for event, host, length in zip(events, "ab", lengths, strict=True):
            epoch = SimpleNamespace(rank=event.ranks[0].rank, length=length, batches=length // 8, training=True)
            told.append(tmp_path / f"{host}.log")
            told[-1].write_text(as_line(event, host, cast("list[EpochStarted]", [epoch])))
        return " ".join(ddpdoctor("explain", *map(str, told)).stdout.split())

    assert "the loader of rank 0 has 15 batches of 120 samples in all, that of rank 1 20 batches of 160" in (
        said := explained(120, 160)
    )
    assert "--data DATA" in said
    assert "the loader of rank" not in explained(160, 160)


@pytest.mark.parametrize("loaded", [True, False])
def test_a_rank_that_came_to_its_end_on_another_host_is_told(ddpdoctor: Run, tmp_path: Path, *, loaded: bool) -> None:
    """With the checkpoint that one host alone had; a rank that ended by an error is no such one."""
    error = (
        '[rank1]: Traceback (most recent call last):\n[rank1]:   File "/w/train.py", line 9, in <module>\n'
        "[rank1]:     loss.backward()\n[rank1]: RuntimeError: [/pytorch/gloo/transport/tcp/pair.cc:553] "
        "Connection closed by peer [10.77.0.1]:7595.\n"
    )
    files = [SimpleNamespace(rank=0, path="last.pt")] if loaded else []

    def explained(*, whole: bool) -> str:
        ends = [Progress(rank=rank, forwards=20, recent=(), ended=whole and not rank, steps=20) for rank in (0, 1)]
        lines = [
            end_line("ab"[each.rank], [each], 2, cast("list[Loaded]", [] if each.rank else files)) for each in ends
        ]
        (tmp_path / "a.log").write_text(f"step 1\n{lines[0]}\n")
        (tmp_path / "b.log").write_text(f"{error}{lines[1]}\n")
        told = ddpdoctor("explain", str(tmp_path / "a.log"), str(tmp_path / "b.log"))
        return " ".join(told.stdout.split())

    said = explained(whole=True)
    assert "DDP740 rank-left-early: rank 0 has come to the end of its program on a, after 20 steps" in said
    assert ("rank 0 had loaded last.pt, and rank 1 no file" in said) is loaded
    assert ("broadcast_object_list" in said) is loaded
    assert "DDP740" not in explained(whole=False)
    (tmp_path / "b.log").write_text(error)
    (tmp_path / "a.log").write_text(
        end_line("a", [Progress(rank=0, forwards=2, recent=(), ended=True, steps=2)], 2, [])
    )
    cut = " ".join(ddpdoctor("explain", str(tmp_path / "a.log"), str(tmp_path / "b.log")).stdout.split())
    assert "rank 0 has come to the end of its program on a, after 2 steps; rank 1 was still to communicate" in cut


@pytest.mark.parametrize("whole", [True, False])
def test_a_log_that_breaks_off_is_that_of_a_host_that_is_gone(ddpdoctor: Run, tmp_path: Path, *, whole: bool) -> None:
    """Where the run of the other host has come to its end, with an error."""
    ends = [Progress(rank=rank, forwards=20, recent=(), ended=False, steps=20) for rank in (0, 1)]
    lines = [end_line("ab"[each.rank], [each], 2, []) for each in ends]
    (tmp_path / "a.log").write_text(
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/w/train.py", line 9, in <module>\n'
        "[rank0]:     loss.backward()\n[rank0]: RuntimeError: [/pytorch/gloo/transport/tcp/pair.cc:537] "
        f"Read error [10.77.0.2]:54180: Connection reset by peer\n{lines[0]}\n"
    )
    (tmp_path / "b.log").write_text(f"step 1\n{lines[1] if whole else ''}\n")
    said = " ".join(ddpdoctor("explain", str(tmp_path / "a.log"), str(tmp_path / "b.log")).stdout.split())
    assert "DDP343" in said
    assert ("b.log breaks off before the end of its ranks" in said) is not whole


def test_only_what_all_ranks_did_at_one_moment_counts() -> None:
    """A host that was slow before, a rank that is not seen, two that are one, and lines of others say nothing."""
    lines = [as_line(waits(rank, "barrier", GUARDED), "ab"[rank]).removeprefix(RANKS) for rank in (0, 1)]
    assert stalled_from(lines) is not None
    assert stalled_from(lines[:1]) is None
    assert stalled_from([lines[0], lines[0].replace('"a"', '"b"')]) is None
    later = json.loads(lines[1])
    assert stalled_from([lines[0], json.dumps({**later, "at": later["at"] + 60})]) is None
    for broken in ("{", "[]", '{"host": "b", "at": 0, "world": 2, "ranks": [[1, "x", 1, []]]}', '{"ranks": 3}'):
        assert stalled_from([lines[0], broken]) is None
    works = waits(0, "barrier", GUARDED)
    at_work = replace(works, ranks=(replace(works.ranks[0], doing=Doing.WORKING),))
    assert as_line(at_work, "a") == as_line(replace(works, world_size=1), "a") == ""


def test_a_rank_that_stands_on_one_host_is_told_while_the_other_waits(ddpdoctor: Run, tmp_path: Path) -> None:
    """Unless it went on after its line; that somebody ended the job where it stood, takes nothing back."""
    stands = waits(1, "", BACKWARD)
    pipe = Awaited("a process that opens the other end of /data/fifo", "start what writes into it")
    there = replace(stands.ranks[0], doing=Doing.STANDING, function="io.open", awaited=pipe)
    stands = replace(stands, ranks=(there,))
    told = logs(tmp_path, waits(0, "backward", BACKWARD), stands)
    explained = ddpdoctor("explain", *told)
    said = " ".join(explained.stdout.split())
    assert "DDP720 rank-died-or-stuck: rank 1 standing still in main at train.py:4" in said
    assert ", and waits for a process that opens the other end of /data/fifo; rank 0 waits for it in backward" in said
    assert "fix start what writes into it" in said
    assert explained.returncode == 1

    last = Progress(rank=1, forwards=3, recent=(), ended=True, steps=3)
    ended = [Left(pid=1, time=0.0, rank=1, ended=True, by="KeyboardInterrupt")]
    for line, status in (
        (end_line("b", [replace(last, ended=False)], 2, ()), 1),  # its launcher was ended
        (end_line("b", [last], 2, (), ended), 1),
        (end_line("b", [last], 2, ()), 0),
        (goes_on("b"), 0),
    ):
        (tmp_path / "end").write_text(f"{Path(told[1]).read_text()}{line}\n")
        assert ddpdoctor("explain", told[0], str(tmp_path / "end")).returncode == status, line


def test_a_host_whose_ranks_all_stand_is_a_note() -> None:
    """Whether the ranks of other hosts wait for them, is not seen there."""
    alone = replace(waits(1, "", BACKWARD), apart=True)
    alone = replace(alone, ranks=(replace(alone.ranks[0], doing=Doing.STANDING),))
    assert hang_of(alone, Training()) is Hang.APART
    (told,) = cast("list[Finding]", list(apart_from_other_hosts.examine(alone)))
    assert told.severity is Severity.NOTE
    assert told.message.startswith("rank 1 standing still in main at train.py:4, for 30 s: no fault")


@pytest.mark.parametrize(("address", "is_here"), [("127.0.0.1", True), ("10.0.0.7", False)])
def test_a_connection_of_this_host_has_no_network_that_can_break(address: str, *, is_here: bool) -> None:
    """Over loopback the other rank has ended; between hosts the network is a cause as well."""
    log = (
        '[rank1]: Traceback (most recent call last):\n[rank1]:   File "/w/train.py", line 9, in <module>\n'
        "[rank1]:     loss.backward()\n[rank1]: RuntimeError: [/pytorch/gloo/transport/tcp/pair.cc:537] "
        f"Read error [{address}]:54180: Connection reset by peer\n"
    )
    finding = named(log)["peer-connection-lost"].finding

    assert finding.ambiguity is not None
    assert ("network" in " ".join((finding.message, *finding.ambiguity.causes))) is not is_here


def test_a_rank_that_two_hosts_have_is_named(ddpdoctor: Run, tmp_path: Path) -> None:
    """Each host says which of its ranks wait in init_process_group, in one log; ranks of their own are well."""
    twice = [joining_line(waits(0, JOINING, BACKWARD), host, {}) for host in "ab"]
    apart = [twice[0], joining_line(waits(1, JOINING, BACKWARD), "b", {})]
    for lines in (twice, apart):
        (tmp_path / "log").write_text("\n".join(["ddpdoctor: no failure", *lines, ""]))
        said = ddpdoctor("explain", str(tmp_path / "log")).stdout
        assert ("a and b both have a rank 0 of 2 in init_process_group, and nobody is 1" in said) is (lines is twice), (
            said
        )
    again = [twice[0], joining_line(waits(1, JOINING, BACKWARD), "a", {}), twice[1]]
    (tmp_path / "log").write_text("\n".join([*again, ""]))
    assert "both have" not in ddpdoctor("explain", str(tmp_path / "log")).stdout, "a host's last line is its own"


def test_a_rank_that_left_by_its_status_is_told_by_it(ddpdoctor: Run, tmp_path: Path) -> None:
    """Not as one that came to the end of its program: os._exit and sys.exit leave no exception behind."""
    site = Site("train.py", 7, "main")
    left = Left(pid=1, time=0.0, rank=1, site=site, ended=True, by="os._exit(3)")
    ended = Progress(rank=1, forwards=3, recent=(), ended=True, steps=3)
    lost = Progress(rank=0, forwards=3, recent=(), ended=False, steps=3)
    (tmp_path / "b").write_text(end_line("b", [ended], 2, (), [left]) + "\n")
    broke = "[rank0]: RuntimeError: [gloo/transport/tcp/pair.cc:537] Read error [10.0.0.2]:5: Connection reset by peer."
    (tmp_path / "a").write_text(f"{broke}\n{end_line('a', [lost], 2, ())}\n")
    said = " ".join(ddpdoctor("explain", str(tmp_path / "a"), str(tmp_path / "b")).stdout.split())

    assert "rank 1 has left by os._exit(3) on b, after 3 steps" in said
    assert "where train.py:7, rank 1" in said


@pytest.mark.parametrize(
    ("port", "store", "is_named"), [(29501, "", True), (29500, "", False), (29501, "29501", False)]
)
def test_ranks_that_wait_at_different_ports_are_named(
    ddpdoctor: Run, tmp_path: Path, port: int, store: str, *, is_named: bool
) -> None:
    """Each host misses the ranks of the other alone. torchrun chooses a port anew with each start, for all hosts."""
    for rank, (host, at) in enumerate((("a", 29500), ("b", port))):
        told = Joining(
            pid=1, time=0.0, rank=rank, world_size=2, backend="gloo", address=f"10.0.0.1:{at}", store_port=store
        )
        line = joining_line(waits(rank, JOINING, BACKWARD), host, {rank: told})
        (tmp_path / host).write_text(f"begins\n{line}\n")
    said = " ".join(ddpdoctor("explain", str(tmp_path / "a"), str(tmp_path / "b")).stdout.split())

    wanted = "rank 1 on b waits in init_process_group at 10.0.0.1:29501, and rank 0 on a at 10.0.0.1:29500"
    assert (wanted in said) is is_named
    assert ("export MASTER_PORT=29500 # on b" in said) is is_named
