"""A rank that never calls init_process_group: who waits for it, and what it does instead."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from helpers import CHECKS, Command, Run, Script

from ddpdoctor.findings import Severity
from ddpdoctor.watch.dispatcher import Dispatcher
from ddpdoctor.watch.events import Doing, Joined, Joining, Left, Position, Sibling, Site, Stalled, Started
from ddpdoctor.watch.events.hang import JOINING
from ddpdoctor.watch.monitor.stands.unresolved import unresolved
from ddpdoctor.watch.training import Training

SLEEPS_FIRST = """
import os, sys, time
import torch.distributed as dist, torch.multiprocessing as mp

def worker(rank, file):
    open(f"{file}.{rank}", "w").close()
    while not os.path.exists(f"{file}.{1 - rank}"):
        time.sleep(0.1)  # one that still imports does not stand still, nor does one that has slept enough
    if rank == 1:
        time.sleep(10)
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    dist.barrier()  # one that ended here would close the connection that the other one still makes

if __name__ == "__main__":
    mp.spawn(worker, args=(sys.argv[1],), nprocs=2)
"""


def at(rank: int, doing: Doing) -> Position:
    """Make a rank that waits in init_process_group, or stands at line 9."""
    waits = doing is Doing.WAITING
    site = Site("train.py", 5 if waits else 9, "main")
    return Position(rank=rank, pid=rank + 1, doing=doing, seconds=9, site=site, operation=JOINING if waits else "")


def judged(  # noqa: PLR0913 - what ranks tell
    *doings: Doing,
    world: int,
    address: str = "localhost:29500",
    local: int | None = None,
    busy: bool | None = None,
    spawned: int | None = None,
    left: str = "",
) -> list[tuple[str, str, Severity | None, int | None]]:
    """Ask all checks about a training in which those that wait have called init_process_group."""
    judge = Dispatcher(CHECKS)
    ranks = tuple(at(rank, doing) for rank, doing in enumerate(doings))
    for each in ranks:
        if each.doing is Doing.WAITING:
            told = Joining(
                pid=each.pid, time=1.0, rank=each.rank, world_size=world, backend="gloo",
                address=address, local_size=local, spawned=spawned,
            )  # fmt: skip
            list(judge.see(told))
        if each.doing is Doing.ENDED:
            site = Site("train.py", 4, "main")
            list(judge.see(Left(pid=each.pid, time=1.5, rank=each.rank, ended=True, by=left, site=site)))
    siblings = () if busy is None else (Sibling(77, busy),)
    event = Stalled(pid=0, time=2.0, ranks=ranks, world_size=world, siblings=siblings)
    return [
        (found.check.slug, found.finding.message, found.finding.severity, found.finding.place.line)
        for found in judge.see(event)
    ]


SLUG = "missing-ranks-at-init"


def test_a_rank_that_stands_elsewhere_is_named_with_its_line() -> None:
    """The guilty line is that of the missing rank, not of the one that waits."""
    [(slug, message, severity, line)] = judged(Doing.WAITING, Doing.STANDING, world=2)

    assert (slug, severity, line) == (SLUG, Severity.ERROR, 9)
    assert message.startswith("rank 1 of 2 did not come to init_process_group; rank 0 waits")


@pytest.mark.parametrize("by", ["", "sys.exit(0)"])
def test_a_rank_that_has_left_before_is_named_with_the_line_of_its_end(by: str) -> None:
    """Where it told how it was ended; one that came to the end of its script has none."""
    [(slug, message, severity, line)] = judged(Doing.WAITING, Doing.ENDED, world=2, left=by)

    assert (slug, severity, line) == (SLUG, Severity.ERROR, 4 if by else 9)
    assert message.endswith("; rank 1 has left by sys.exit(0) at train.py:4 before") is bool(by)


def test_a_rank_that_came_to_its_end_without_joining_is_named() -> None:
    """It called nothing and failed of nothing."""
    assert [each[0] for each in judged(Doing.WAITING, Doing.ENDED, world=2)] == [SLUG]


def test_a_rank_that_is_at_work_makes_no_fault_of_it() -> None:
    """It will come."""
    found = judged(Doing.WAITING, Doing.WORKING, world=2)

    assert [(each[0], each[2]) for each in found] == [("slow-rank", Severity.NOTE)]


def test_a_rank_that_died_is_told_as_such() -> None:
    """One check speaks of a hang."""
    assert [each[0] for each in judged(Doing.WAITING, Doing.DIED, world=2)] == ["rank-died-or-stuck"]


@pytest.mark.parametrize(
    ("address", "local", "busy", "severity"),
    [
        ("localhost:29500", None, None, Severity.ERROR),
        ("tcp://127.0.0.1:29500", None, None, Severity.ERROR),
        ("10.0.0.7:29500", 4, None, Severity.ERROR),
        ("10.0.0.7:29500", 2, None, Severity.NOTE),
        ("10.0.0.7:29500", None, None, Severity.NOTE),
        ("localhost:29500", None, True, Severity.NOTE),
        ("localhost:29500", None, False, Severity.NOTE),
    ],
)
def test_ranks_that_can_be_on_another_host_or_at_work_are_a_note(
    address: str, local: int | None, severity: Severity, *, busy: bool | None
) -> None:
    """What this host cannot see is no error: other hosts start when they can."""
    found = judged(Doing.WAITING, Doing.WAITING, world=4, address=address, local=local, busy=busy)

    assert [(each[0], each[2]) for each in found] == [(SLUG, severity)]
    assert "ranks 2, 3 of 4 did not come" in found[0][1]


@pytest.mark.parametrize(
    ("address", "spawned", "is_known"),
    [("localhost:29500", 2, True), ("localhost:29500", 4, False), ("10.0.0.7:29500", 2, False)],
)
def test_fewer_processes_than_the_world_size_are_named_where_mp_spawn_started_them(
    address: str, spawned: int, *, is_known: bool
) -> None:
    """Its number is known, and on one host nobody else starts the others; the process that spawned them is no rank."""
    [(slug, message, severity, _)] = judged(
        Doing.WAITING, Doing.WAITING, world=4, address=address, busy=False, spawned=spawned
    )

    assert slug == SLUG
    assert ("mp.spawn has started 2 processes" in message) is is_known
    assert severity is (Severity.ERROR if is_known else Severity.NOTE)


@pytest.mark.usefixtures("no_process_left")
def test_a_spawned_rank_that_told_nothing_is_found_as_a_process(ddpdoctor: Run, script: Script, tmp_path: Path) -> None:
    """mp.spawn gives no variables: known is the process beside the one that waits, and that it can still come."""
    # No warm processes: they are no children of the one that calls mp.spawn.
    store = str(tmp_path / "store")
    done = ddpdoctor("run", "--hang-after", "3", "--", sys.executable, script(SLEEPS_FIRST), store)

    assert done.returncode == 0
    assert f"DDP363 {SLUG}: rank 1 of 2 did not come to init_process_group" in done.stderr
    assert f"file://{store}" in done.stderr
    told = re.findall(r"process \d+ (works|stands still), and has told no rank", done.stderr)
    assert len(told) == 1, done.stderr  # the one that called mp.spawn is none; a loaded machine keeps one at work


@pytest.mark.parametrize("launcher", [True, False])
def test_the_process_that_started_the_ranks_is_no_rank_on_its_way(*, launcher: bool) -> None:
    """On one of several hosts: nothing is to be seen in it, and the other host's numbers are the question."""
    judge = Dispatcher(CHECKS)
    list(
        judge.see(
            Joining(
                pid=1, time=1.0, rank=0, world_size=2, backend="gloo", address="tcp://10.0.0.7:29500", spawned=1,
            )
        )
    )  # fmt: skip
    beside = Sibling(77, busy=False, launcher=launcher)
    stalled = Stalled(pid=0, time=2.0, ranks=(at(0, Doing.WAITING),), world_size=2, siblings=(beside,))
    [found] = judge.see(stalled)

    assert found.finding.severity is Severity.NOTE
    assert any("process 77" in each.seen for each in found.finding.evidence) is not launcher
    assert ("py-spy" in found.finding.fix.command) is not launcher
    assert any("mp.spawn has started 1 here" in each.seen for each in found.finding.evidence)
    assert found.finding.ambiguity is not None
    assert any("with another number of ranks" in each for each in found.finding.ambiguity.causes)


MEETS = """
import sys
from datetime import timedelta
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=8))
dist.destroy_process_group()
"""


@pytest.mark.parametrize(
    ("address", "world", "said"),
    [
        ("127.0.0.1:0", 2, True),
        ("tcp://[::1]:0", 2, True),
        ("127.0.0.1:0", 1, False),
        ("127.0.0.1:40", 2, False),
        ("file:///tmp/store", 2, False),
        ("", 2, False),
    ],
)
def test_several_ranks_that_are_to_meet_on_port_0_are_told_at_once(address: str, world: int, *, said: bool) -> None:
    """Once for all ranks, and no other check makes a hang of its own of it; a single rank reaches itself."""
    judge = Dispatcher(CHECKS)
    slugs = []
    for rank in range(world):
        event = Joining(pid=rank + 1, time=1.0, rank=rank, world_size=world, backend="gloo", address=address)
        slugs += [found.check.slug for found in judge.see(event)]
    ranks = tuple(at(rank, Doing.WAITING) for rank in range(world))
    hang = list(judge.see(Stalled(pid=0, time=2.0, ranks=ranks, world_size=world)))

    assert slugs == ["rendezvous-variable-malformed"] * said
    assert not said or not hang
    assert said or hang or world == 1


@pytest.mark.usefixtures("no_process_left")
@pytest.mark.parametrize(
    ("options", "codes"),
    [(["--master_port=0"], {"DDP352"}), (["--rdzv_backend=c10d", "--rdzv_endpoint=localhost:0"], set())],
    ids=["broken", "healthy"],
)
def test_torchruns_port_0_is_told_before_the_time_out(
    torchrun: Command, ddpdoctor: Run, script: Script, options: list[str], codes: set[str]
) -> None:
    """The static rendezvous hands port 0 to the ranks as it is; c10d tells them the port that it got."""
    launcher = [*(each for each in torchrun if each != "--standalone"), *options]
    done = ddpdoctor("run", "--hang-after", "3", "--", *launcher, script(MEETS))

    assert done.returncode == len(codes)
    assert set(re.findall(r"DDP\d{3}", done.stderr)) == codes
    assert done.stderr.find("DDP352") <= done.stderr.find("time-out")


def test_ranks_that_were_each_told_another_port_are_named() -> None:
    """Each process chose a port of its own: neither is late, and they never meet."""
    judge = Dispatcher(CHECKS)
    site = Site("train.py", 5, "main")
    for rank in (1, 0):
        address = f"localhost:{40000 + rank}"
        told = Joining(pid=rank + 1, time=1.0, rank=rank, world_size=2, backend="gloo", address=address, site=site)
        list(judge.see(told))
    ranks = (at(0, Doing.WAITING),)
    stalled = Stalled(pid=0, time=2.0, ranks=ranks, world_size=2, siblings=(Sibling(2, busy=False),))
    (found,) = judge.see(stalled)

    assert found.check.slug == SLUG
    assert found.finding.message == "rank 0 waits at localhost:40000 and rank 1 at localhost:40001: they never meet"
    assert found.finding.severity is Severity.ERROR


@pytest.mark.parametrize(
    ("addresses", "apart"),
    [
        (("file:///tmp/sync_11", "file:///tmp/sync_12"), True),
        (("file:///tmp/sync", "file:///tmp/../tmp/sync"), False),
        (("tcp://127.0.0.1:29501", "tcp://127.0.0.1:29502"), True),
        (("tcp://127.0.0.1:29501", "tcp://n0:29501"), False),  # one host, by two names
        (("", "tcp://n0:29501"), False),  # a store that the script has made
    ],
)
def test_ranks_of_one_launch_that_meet_nowhere_are_named(addresses: tuple[str, str], *, apart: bool) -> None:
    """All have come, each to a file or a port of its own."""
    judge = Dispatcher(CHECKS)
    for rank, address in enumerate(addresses):
        list(judge.see(Started(pid=rank + 1, time=0.5, rank=rank, program="train.py", launch="job.0", world_size=2)))
        told = Joining(pid=rank + 1, time=1.0, rank=rank, world_size=2, backend="gloo", address=address)
        list(judge.see(told))
    event = Stalled(pid=0, time=2.0, ranks=tuple(at(rank, Doing.WAITING) for rank in (0, 1)), world_size=2)
    (found,) = judge.see(event)

    said = f"rank 0 waits at {addresses[0]} and rank 1 at {addresses[1]}: they never meet"
    assert (found.finding.message == said) is apart
    assert (found.check.slug == SLUG) is apart


def test_a_rank_that_has_joined_elsewhere_is_no_rival() -> None:
    """It is at work in a group of its own, as where trainings follow each other at new ports."""
    judge = Dispatcher(CHECKS)
    site = Site("train.py", 5, "main")
    first = Joining(pid=2, time=0.5, rank=1, world_size=2, backend="gloo", address="localhost:40001", site=site)
    second = Joining(pid=1, time=1.0, rank=0, world_size=2, backend="gloo", address="localhost:40000", site=site)
    for told in (first, Joined(pid=2, time=0.6, rank=1, world_size=2, backend="gloo"), second):
        list(judge.see(told))
    stalled = Stalled(pid=0, time=2.0, ranks=(at(0, Doing.WAITING),), world_size=2, siblings=(Sibling(2, busy=False),))

    assert not any("never meet" in found.finding.message for found in judge.see(stalled))


def test_a_name_that_this_host_cannot_look_up_is_what_the_ranks_wait_for() -> None:
    """Whoever has come or not: nobody finds the store."""
    ranks = (at(0, Doing.WAITING),)
    event = Stalled(
        pid=0, time=2.0, ranks=ranks, world_size=2, unresolved=("node0.invalid", "Name or service not known")
    )
    [(check, finding)] = Dispatcher(CHECKS).see(event)

    assert (check.slug, finding.place.line) == ("master-unresolvable", 5)
    assert "node0.invalid, which does not resolve" in finding.message
    assert "--local-addr=10.0.0.2 on each host" in finding.fix.command  # torchrun hands on the name of the host itself


@pytest.mark.parametrize(
    ("address", "expected"),
    [("tcp://node0.invalid:29500", True), ("tcp://127.0.0.1:29500", False), ("file:///tmp/store", False)],
)
def test_the_place_where_ranks_meet_is_looked_up(address: str, *, expected: bool) -> None:
    """RFC 6761 keeps .invalid free of hosts."""
    training = Training()
    training.add(Joining(pid=1, time=1.0, rank=0, world_size=2, backend="gloo", address=address))

    assert bool(unresolved([1], training)) is expected


@pytest.mark.parametrize(("local", "expected"), [(2, ["launcher-and-spawn-both"]), (1, [])])
def test_ranks_of_a_launcher_that_each_spawn_the_ranks_are_told_at_once(local: int, expected: list[str]) -> None:
    """Two processes of mp.spawn are one rank; where the launcher has started one process, an earlier run is left."""
    judge = Dispatcher(CHECKS)
    told = [
        Joining(
            pid=pid, time=1.0, rank=0, world_size=2, backend="gloo", address="127.0.0.1:29500", local_size=local,
            spawned=2,
        )
        for pid in (11, 21)
    ]  # fmt: skip
    slugs = [found.check.slug for event in told for found in judge.see(event)]

    assert slugs == expected


def test_a_process_that_a_rank_has_started_and_that_waits_as_that_rank_is_told_as_such() -> None:
    """Whichever of the two waits, and where a shell is between them; two that are no relatives are two of one rank."""
    for above, expected in (((7, 1), "which has started it"), ((7,), "both join as rank 0")):
        judge = Dispatcher(CHECKS)
        for pid, descends in ((1, ()), (9, above)):
            started = Started(pid=pid, time=1.0, rank=0, program="train.py", launch="a", world_size=2)
            told = Joining(
                pid=pid, time=pid, rank=0, world_size=2, backend="gloo", address="localhost:2", above=descends,
            )  # fmt: skip
            for event in (
                started,
                told,
                *([Joined(pid=1, time=2.0, rank=0, world_size=2, backend="gloo")] * (pid == 1)),
            ):
                list(judge.see(event))
        waiting = replace(at(0, Doing.WAITING), pid=9)
        siblings = (Sibling(1, busy=False),)
        [found] = judge.see(Stalled(pid=0, time=12.0, ranks=(waiting,), world_size=2, siblings=siblings))

        assert found.check.slug == SLUG
        assert expected in found.finding.message


STARTS = """
import os, socket, subprocess, sys
from datetime import timedelta
import torch.distributed as dist

if "RANK" not in os.environ:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    given = dict(os.environ, WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    ranks = [subprocess.Popen([sys.executable, __file__], env=dict(given, RANK=str(rank))) for rank in range(2)]
    sys.exit(max([rank.wait() for rank in ranks]))
dist.init_process_group("gloo")
if "--evaluate" not in sys.argv and dist.get_rank() == 0:
    env = dict(os.environ, {own})
    subprocess.run(f'"{{sys.executable}}" "{{__file__}}" --evaluate; true', shell=True, env=env)
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.usefixtures("no_process_left")
@pytest.mark.parametrize("own", ["", 'WORLD_SIZE="1", MASTER_PORT="0"'], ids=["broken", "healthy"])
def test_a_process_with_the_variables_of_its_rank_is_told_as_one_that_the_rank_has_started(
    ddpdoctor: Run, script: Script, own: str
) -> None:
    """It fails where the rank has opened its store; nothing is said of a process that makes a group of its own."""
    done = ddpdoctor("run", "--", sys.executable, script(STARTS.format(own=own)))

    assert set(re.findall(r"DDP\d{3}", done.stderr)) == (set() if own else {"DDP363"}), done.stderr
    assert bool(own) != ("could not join as rank 0: it has the variables of process" in " ".join(done.stderr.split()))
