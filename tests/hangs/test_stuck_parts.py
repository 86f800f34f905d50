"""What ``ddpdoctor stuck`` makes of environments, of py-spy's answers and of reports: without a process."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from helpers import CHECKS, Run
from hypothesis import given, strategies as st

from ddpdoctor.cli.explaining.looks import compared
from ddpdoctor.cluster.command import Rendezvous
from ddpdoctor.cluster.host import Host, host_line
from ddpdoctor.facets import BadTarget
from ddpdoctor.host.process.connections import Peer
from ddpdoctor.host.stack import Frame
from ddpdoctor.source.training.iterations import loop_counters
from ddpdoctor.stuck import examine
from ddpdoctor.stuck.looks import look, spy
from ddpdoctor.stuck.looks.look import Seen
from ddpdoctor.stuck.ranks import jobs as jobs_module, launchers as launchers_here, self_told, spawned
from ddpdoctor.stuck.ranks.identity import Identity, identity
from ddpdoctor.stuck.ranks.own_launcher import with_children
from ddpdoctor.stuck.ranks.processes import Python, is_own
from ddpdoctor.stuck.told import flight, launchers
from ddpdoctor.stuck.told.sighting import Sighted, Sighting, apart, merged
from ddpdoctor.stuck.told.sighting_file import as_data, read_sighting
from ddpdoctor.stuck.told.verdict import of_launcher, verdict
from ddpdoctor.watch.events import Communication, Doing, LauncherWaits, Position, Site, Worker
from ddpdoctor.watch.events.hang import UnderWay
from ddpdoctor.watch.monitor import launcher, waiting

TORCHRUN = {
    "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "n0",
    "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "job", "TORCHELASTIC_RESTART_COUNT": "0",
}  # fmt: skip
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "PMIX_NAMESPACE": "prterun-n0-77@1",
}  # fmt: skip
SLURM = {"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_LOCALID": "1", "SLURM_JOB_ID": "12", "SLURM_STEP_ID": "0"}
HYDRA = {"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}

LARGEST_PID = 1 << 22  # that Linux gives a process: of larger ones there is none


def at(rank: int, doing: Doing = Doing.WAITING, operation: str = "barrier", line: int = 7) -> Position:
    """Return where a rank is."""
    site = Site("/work/train.py", line, "train")
    waits = doing is Doing.WAITING
    return Position(
        rank=rank, pid=100 + rank, doing=doing, seconds=9.0, site=site, operation=operation if waits else "",
        recent=(Communication(0, 0.0, operation, "", "", site),) if waits else (), stack=(site,),
        counters=(("train.epoch", 1),), workers=(Worker(5, site),) if doing is Doing.STANDING else (),
    )  # fmt: skip


def seen(*positions: Position, host: str = "n0", world_size: int = 2) -> Sighting:
    """Return what was seen of ranks that have joined a gloo group."""
    ranks = tuple(Sighted(each, host, ("gloo",), 1) for each in positions)
    return Sighting(ranks, world_size, "n0:29500", "job.0", 1000.0)


def test_what_handlers_caught_comes_to_the_report_for_the_other_hosts() -> None:
    """How often, and what is under way; files by the names that they have in the container."""
    inside, outside = (Site(f"{root}/work/train.py", 7, "train") for root in ("/proc/7/root", ""))
    position = replace(at(0), site=inside, stack=(inside,), caught=((inside, 2),), raised=UnderWay("OSError", inside))
    data = json.loads(json.dumps(as_data(seen(position))))
    again = read_sighting("report", {"facts": {"stuck": data}})
    assert again is not None
    (read,) = again.positions

    assert (read.site, read.stack, read.caught) == (outside, (outside,), ((outside, 2),))
    assert read.raised == UnderWay("OSError", outside)


class TestIdentity:
    """What launchers tell a rank."""

    @pytest.mark.parametrize("environ", [TORCHRUN, OPEN_MPI, SLURM, HYDRA])
    def test_each_launcher_is_read(self, environ: dict[str, str]) -> None:
        """Rank, world and rank on this host are read of each; where the ranks meet only of those that say it."""
        told = identity(environ)
        assert told is not None
        assert (told.rank, told.world_size, told.local_rank) == (3, 4, 1)

    def test_torchs_own_variables_win(self) -> None:
        """Under srun torchrun has the variables of both: the ranks are torchrun's."""
        assert identity({**SLURM, "SLURM_PROCID": "0", "SLURM_NTASKS": "1", **TORCHRUN}) == identity(TORCHRUN)

    @pytest.mark.parametrize("environ", [{}, {"RANK": "1"}, {**TORCHRUN, "RANK": "4"}, {**TORCHRUN, "RANK": "x"}])
    def test_what_is_no_rank_is_none(self, environ: dict[str, str]) -> None:
        """Variables that are missing, that are no numbers, or a rank outside of the world, tell nothing."""
        assert identity(environ) is None

    @given(st.dictionaries(st.sampled_from(sorted(TORCHRUN)), st.text(max_size=5)))
    def test_any_text_can_stand_there(self, environ: dict[str, str]) -> None:
        """Whatever variables hold, the answer is a rank within its world, or none."""
        told = identity(environ)
        assert told is None or 0 <= told.rank < told.world_size


def python(pid: int, parent: int, told: Identity | None, **environ: str) -> Python:
    """Return a process that is not there."""
    return Python(pid, parent, "python train.py", environ, told, 0.0)


class TestJobs:
    """Which processes are ranks of which training."""

    @staticmethod
    def ranks(*processes: Python) -> list[list[int]]:
        """Return the ranks' processes by training."""
        there = {each.pid: each for each in processes}
        return [[rank.pid for rank in job.ranks] for job in jobs_module.jobs(there, {})]

    def test_what_a_rank_has_started_is_none(self) -> None:
        """A loader's worker inherits the variables of its rank."""
        told = Identity(0, 1, address="n0:1")
        assert self.ranks(python(900_001, 1, told), python(900_002, 900_001, told)) == [[900_001]]

    def test_a_launcher_that_was_told_a_rank_is_none(self) -> None:
        """In a pod, torchrun has a RANK: that of its node."""
        agent = python(900_001, 1, Identity(1, 2, address="n0:1"))
        ranks = [python(900_002 + each, 900_001, Identity(2 + each, 4, each, 2, "n0:2", "job.0")) for each in range(2)]
        assert self.ranks(agent, *ranks) == [[900_002, 900_003]]

    def test_trainings_are_told_apart_by_where_they_meet(self) -> None:
        """Two trainings of one host have other ports."""
        told = [Identity(rank, 2, address=f"localhost:{port}") for port in (1, 2) for rank in (1, 0)]
        found = self.ranks(*(python(900_000 + each, 1, told[each]) for each in range(4)))
        assert found == [[900_001, 900_000], [900_003, 900_002]]

    def test_equal_addresses_in_containers_are_two_trainings(self) -> None:
        """A rank that is there twice has another launcher."""
        found = self.ranks(
            *(python(900_010 + each, 900_000 + each, Identity(0, 1, address="n:1")) for each in range(2))
        )
        assert found == [[900_010], [900_011]]

    def test_a_missing_rank_has_ended_only_where_its_launcher_would_have_ended_all(self) -> None:
        """By hand, or under srun, nobody knows how a rank went; and a process that is no Python yet is still there."""
        told = Identity(0, 2, 0, 2, "n:1", "job.0")
        torchrun = python(900_001, 900_000, told, TORCHELASTIC_RUN_ID="job")
        (job,) = jobs_module.jobs({900_001: torchrun}, {})
        (by_hand,) = jobs_module.jobs({900_001: python(900_001, 900_000, told)}, {})
        assert job.ended_here([told]) == (1,)
        assert job.ended_here([told, replace(told, rank=1, local_rank=1)]) == ()
        assert by_hand.ended_here([told]) == ()


class TestRanksThatSetTheirNumber:
    """No launcher has told them any: they meet at the store of one of them."""

    STORE = 29500

    def found(
        self,
        monkeypatch: pytest.MonkeyPatch,
        commands: dict[int, str],
        variables: dict[int, dict[str, int]] | None = None,
        workers: dict[int, int] | None = None,
        listens: Iterable[int] = (),
    ) -> dict[int, tuple[int, int]]:
        """Return rank and world size by process; the first one has the store, and all have gloo's ports besides."""
        first = min(commands)
        at_store = {first, *listens}

        def ends(pid: int) -> self_told.Ends:
            listens = {40000 + pid} | ({self.STORE} if pid in at_store else set())
            return self_told.Ends(
                frozenset(listens), frozenset({("127.0.0.1", self.STORE), ("127.0.0.1", 40000 + first)})
            )

        def stacks(pids: Iterable[int]) -> spy.Stacks:
            said = variables or {}
            frame = Frame("/work/train.py", 3, "train")
            return spy.Stacks({pid: spy.Stack((frame,), (tuple(said.get(pid, {}).items()),)) for pid in pids})

        monkeypatch.setattr(self_told, "ends_of", ends)
        monkeypatch.setattr(self_told, "stacks", stacks)
        monkeypatch.setattr(Python, "has_torch", property(lambda _: True))
        above = workers or {}
        there = {pid: Python(pid, above.get(pid, 1), each, {}, None, 0.0) for pid, each in commands.items()}
        return {pid: (each.rank, each.world_size) for pid, each in self_told.self_told(there).items()}

    def test_of_two_the_one_with_the_store_is_rank_0(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """And a loader's worker, which has the sockets of its parent, is none."""
        found = self.found(monkeypatch, {7: "python a.py", 8: "python a.py", 9: "python a.py"}, workers={9: 8})
        assert found == {7: (0, 2), 8: (1, 2)}

    def test_no_worker_is_taken_for_rank_0(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """That of rank 0 listens at the store as well, and is told the same options."""
        options = {7: "python a.py --rank 0", 8: "python a.py --rank 1", 9: "python a.py --rank 0"}
        assert self.found(monkeypatch, options, workers={9: 7}, listens={7, 9}) == {7: (0, 2), 8: (1, 2)}

    def test_options_and_variables_tell_of_more(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """``--rank``, or what the script calls rank; the size of the world, as far as it is told."""
        options = {7 + each: f"python a.py --rank {each} --world-size=4" for each in range(3)}
        assert self.found(monkeypatch, options) == {7: (0, 4), 8: (1, 4), 9: (2, 4)}
        plain = dict.fromkeys(options, "python a.py")
        variables = {pid: {"rank": pid - 7, "batch": 3} for pid in plain}
        assert self.found(monkeypatch, plain, variables) == {7: (0, 3), 8: (1, 3), 9: (2, 3)}

    def test_a_number_that_is_none_of_the_job_is_not_taken(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The rank of an adapter is equal on all; that of the store's process is 0."""
        plain = dict.fromkeys((7, 8, 9), "python a.py")
        assert self.found(monkeypatch, plain, {pid: {"rank": 8} for pid in plain}) == {}
        assert self.found(monkeypatch, plain, {pid: {"rank": 10 - pid} for pid in plain}) == {}


OVER_STORE = self_told.Ends(frozenset(), frozenset(), frozenset({(40001, "10.0.0.1", 29500)}))
SERVES = self_told.Ends(frozenset({29500}), frozenset(), frozenset({(29500, "10.0.0.2", 40001)}))
ALONE = self_told.Ends(frozenset({29500}), frozenset(), frozenset({(51000, "10.0.0.9", 443)}))


@pytest.mark.parametrize(
    "known",
    [
        ("", {}, {}, ALONE, (0, 1)),
        ("", {}, {"rank": 1, "world_size": 2}, ALONE, (0, 1)),
        ("--nodes 2 --nr 1", {}, {}, ALONE, (1, 2)),
        ("", {"NNODES": "2", "NODE_RANK": "1"}, {"rank": 1}, OVER_STORE, (1, 2)),  # its rank on this host
        ("", {}, {"rank": 3, "world_size": 6}, OVER_STORE, (1, 3)),
        ("", {}, {}, SERVES, (0, 2)),
        ("", {}, {}, OVER_STORE, (1, 2)),
        ("--world-size 2 --rank 1", {}, {"rank": 3}, OVER_STORE, (1, 2)),
    ],
)
def test_the_node_of_spawned_ranks(
    monkeypatch: pytest.MonkeyPatch, known: tuple[str, dict[str, str], dict[str, int], self_told.Ends, tuple[int, int]]
) -> None:
    """By an option, a variable, what a function holds, or who else is at the store; else they are all there are."""
    options, environ, held, ends, expected = known
    monkeypatch.setattr(spawned, "ends_of", lambda _: ends)
    parent = Python(1, 0, f"python train.py {options}", {}, None, 0.0)
    rank = Python(2, 1, "python -c spawn_main", {"MASTER_PORT": "29500", **environ}, None, 0.0)
    assert spawned._node_of(rank, parent, held, (1, 2)) == expected


def test_a_py_spy_that_the_system_does_not_start_is_told_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As one that is damaged, or built for another processor: what the kernel knows is told without Python's lines."""
    (tmp_path / "py-spy").write_bytes(b"\x7fELF")
    (tmp_path / "py-spy").chmod(0o755)
    monkeypatch.setattr(spy, "py_spy", lambda: str(tmp_path / "py-spy"))

    looked = spy.stacks([os.getpid()])

    assert looked.read == {}
    assert looked.refused.startswith(f"{tmp_path}/py-spy: Exec format error, so no Python line is known: pip install ")


def test_a_launcher_that_waits_for_other_nodes_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no rank to look at yet; of two such launchers one is to be named."""
    no_rank, one, other = (LARGEST_PID + number for number in (1, 2, 3))
    events = {
        pid: LauncherWaits(pid=pid, time=0.0, nodes=2, seconds=40.0, host="n0", port=29500, answer="unknown name")
        for pid in (one, other)
    }
    there = {pid: python(pid, 1, None) for pid in (no_rank, one, other)}
    monkeypatch.setattr(examine, "pythons", lambda: (there, 0))
    monkeypatch.setattr(examine, "launcher_waits", lambda pid, _: events.get(pid))
    named = examine.waiting_launcher([other])
    assert examine.waiting_launcher([]) is None
    assert examine.waiting_launcher([no_rank]) is None
    assert named is events[other]
    said = of_launcher(events[other], CHECKS, 1.0)

    assert "torchrun has waited 40 s for 2 nodes" in said.report.findings()[0].message
    assert said.said == "This training has not begun: torchrun has started no rank."
    by_accelerate = of_launcher(replace(events[other], launcher="accelerate"), CHECKS, 1.0)
    found = by_accelerate.report.findings()[0]
    assert "accelerate launch has waited 40 s for 2 nodes" in found.message
    assert "torchrun" not in f"{found} {by_accelerate.said}"


def waits_at_localhost(monkeypatch: pytest.MonkeyPatch, folder: Path, node: int, **more: Any) -> Path:
    """Return the report of a host whose torchrun waits for the other one at localhost."""
    host = Host(
        f"n{node}", launcher="torchrun", by="--nnodes=2", nodes=2, node=node, master="localhost", port=29500,
        master_at="127.0.0.1", addresses={f"10.0.0.{node + 1}": "eth0", "127.0.0.1": "lo"},
    )  # fmt: skip
    event = LauncherWaits(
        pid=7, time=0.0, nodes=2, seconds=40.0, node=node, host="localhost", port=29500, answer="loopback",
        line=host_line(host, []),
    )  # fmt: skip
    monkeypatch.setattr("socket.gethostname", lambda: f"n{node}")
    data = {"schema": "ddpdoctor-report/1", "facts": {"stuck": launchers.as_data(replace(event, **more))}}
    (folder / f"{node}.json").write_text(json.dumps(data, indent=2))
    return folder / f"{node}.json"


def test_reports_of_launchers_that_wait_are_put_together(
    monkeypatch: pytest.MonkeyPatch, ddpdoctor: Run, tmp_path: Path
) -> None:
    """Each host alone cannot tell that the other one waits as well; both together name an address that can be used."""
    files = [str(waits_at_localhost(monkeypatch, tmp_path, node)) for node in (0, 1)]
    done = ddpdoctor("stuck", *files)

    assert "DDP368" in done.stdout
    assert "--rdzv_endpoint=10.0.0.1:29500" in done.stdout
    assert "torchrun has started no rank on n0, n1." in done.stdout
    assert done.returncode == 1
    assert ddpdoctor("explain", *files).stdout == done.stdout
    alone = ddpdoctor("stuck", files[0])
    assert alone.returncode == 0
    assert "DDP363" in alone.stdout


def test_a_report_of_a_launcher_and_one_of_ranks_are_put_together(
    monkeypatch: pytest.MonkeyPatch, ddpdoctor: Run, tmp_path: Path
) -> None:
    """All ranks are on one host: the other host's launcher came too late."""
    late = waits_at_localhost(monkeypatch, tmp_path, 1)
    ranks = tmp_path / "ranks.json"
    data = {"schema": "ddpdoctor-report/1", "facts": {"stuck": as_data(seen(at(0), at(1), host="n0"))}}
    ranks.write_text(json.dumps(data, indent=2))
    done = ddpdoctor("stuck", str(late), str(ranks))

    assert "All 2 ranks of the training run on n0, without n1" in " ".join(done.stdout.split())
    damaged = {"schema": "ddpdoctor-report/1", "facts": {"stuck": {"kind": launchers.KIND, "launcher": {}}}}
    ranks.write_text(json.dumps(damaged, indent=2))
    assert "is damaged (KeyError)" in ddpdoctor("stuck", str(ranks)).stderr


def test_two_launchers_are_no_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one has the store of both, as rank 0 has."""
    command = "python /opt/bin/torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=n0:29500 train.py"
    there = {pid: Python(pid, 1, command, {}, None, 0.0) for pid in (7, 8)}
    monkeypatch.setattr(examine, "pythons", lambda: (there, 0))
    asked: list[dict[int, Python]] = []

    def told(others: dict[int, Python]) -> dict[int, Identity]:
        asked.append(others)
        return {}

    monkeypatch.setattr(examine, "self_told", told)
    with pytest.raises(BadTarget, match="no training runs on this host"):
        examine.find([])

    assert asked == [{}]


@pytest.mark.parametrize(
    ("seconds", "function", "again"),
    [
        (0.2, "", False),
        (5.0, "DynamicRendezvousHandler.next_rendezvous", True),
        (5.0, "SimpleElasticAgent._exit_barrier", None),
        (5.0, "", None),
    ],
)
def test_a_launcher_whose_ranks_have_ended_waits_anew_or_for_the_others_end(
    monkeypatch: pytest.MonkeyPatch, seconds: float, function: str, *, again: bool | None
) -> None:
    """What its children took of the processor tells that it has had ranks, and its stack what it waits for."""
    event = LauncherWaits(pid=7, time=0.0, nodes=2, seconds=40.0, host="n0", port=29500, answer="own")
    stack = spy.Stack((Frame("torch/distributed/elastic/x.py", 3, function),), ((),))
    monkeypatch.setattr(launchers_here, "_time_of_children", lambda _: seconds)
    monkeypatch.setattr(launchers_here, "stacks", lambda pids: spy.Stacks(dict.fromkeys(pids, stack)))
    told = launchers_here.with_past(event)
    assert (told.again if told is not None else None) is again
    if told is not None and told.again:
        said = of_launcher(told, CHECKS, 1.0)
        assert "the ranks of this host have ended, and torchrun waits" in said.report.findings()[0].message
        assert "has not begun" not in said.said


class TestTheLauncherOfARun:
    """The monitor looks at it while no rank is there: before the first, and after one of the last has failed."""

    @staticmethod
    def looked(monkeypatch: pytest.MonkeyPatch, *, alive: bool, failed: bool, created: float) -> LauncherWaits | None:
        """Return what is told 40 s after ranks were there."""
        now = 1000.0
        monkeypatch.setattr("time.monotonic", lambda: now)
        monkeypatch.setattr("time.time", lambda: now)
        event = LauncherWaits(pid=7, time=0.0, nodes=2, seconds=400.0, host="n0", port=29500, line="a line")
        monkeypatch.setattr(waiting, "launcher_waits", lambda *_: event)
        monkeypatch.setattr("psutil.Process", lambda _: SimpleNamespace(create_time=lambda: created))
        looked_at = waiting.Launcher(30.0)
        ranks: Any = SimpleNamespace(alive=lambda: True)
        assert looked_at.look(7, ranks, failed=False) is None
        now = 1040.0
        return looked_at.look(7, SimpleNamespace(alive=lambda: alive), failed=failed)  # type: ignore[arg-type]

    def test_one_that_waits_anew_is_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The seconds are those since its last rank ended."""
        told = self.looked(monkeypatch, alive=False, failed=True, created=500.0)
        assert told is not None
        assert (told.again, told.seconds, told.line) == (True, 40.0, "")

    def test_one_whose_ranks_came_to_their_end_is_not(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It waits for those of the other nodes; nor is one that has ranks, nor another one that has just begun."""
        assert self.looked(monkeypatch, alive=False, failed=False, created=500.0) is None
        assert self.looked(monkeypatch, alive=True, failed=True, created=500.0) is None
        assert self.looked(monkeypatch, alive=False, failed=True, created=1020.0) is None


@pytest.mark.parametrize(("node", "told"), [(1, True), (0, False), (None, False)])
def test_a_node_that_takes_itself_for_the_master_is_told(
    monkeypatch: pytest.MonkeyPatch, node: int | None, *, told: bool
) -> None:
    """It has no socket between two tries; one that is to open the store has none while it imports torch."""
    monkeypatch.setattr(launcher, "_answer", lambda *_: launcher.OWN)
    monkeypatch.setattr(launcher, "_holder", lambda *_: "")
    meeting = Rendezvous("torchrun", 2, node, "127.0.0.1", 29500)
    event = launcher._seen(77, meeting, 40.0, connected=False)
    assert (event is not None) == told
    if event is not None:
        said = of_launcher(event, CHECKS, 1.0).report.findings()[0].message
        assert "which is this host, and this is node 1: node 0 alone opens a port there" in said


def test_a_launcher_of_the_check_is_a_launcher() -> None:
    """It starts nothing before its nodes have met, and is then looked at; what it starts is no rank of a training."""
    check = ["--no-python", "/opt/bin/ddpdoctor", "check"]
    assert not is_own(["/opt/bin/python", "/opt/bin/torchrun", "--nnodes=2", *check])
    assert is_own(["/opt/bin/python", "/opt/bin/ddpdoctor", "check"])
    assert not is_own(["/opt/bin/python"])


def test_ranks_that_have_met_nobody_are_told_by_what_torch_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two scripts that were started by hand, with two ports: each is a rank of a training of two."""
    pythons = {pid: Python(pid, 1, "python train.py", {}, None, 0.0) for pid in (7, 8)}
    monkeypatch.setattr(Python, "has_torch", property(lambda _: True))
    monkeypatch.setattr(self_told, "ends_of", lambda _: self_told.Ends(frozenset(), frozenset()))
    meets = Frame("/venv/torch/distributed/rendezvous.py", 190, "_create_c10d_store")
    told = {
        7: spy.Stack((meets,), ((("port", 29500), ("rank", 0), ("world_size", 2)),)),
        8: spy.Stack((meets,), ((("port", 29501), ("rank", 1), ("world_size", 2)),)),
    }
    monkeypatch.setattr(self_told, "stacks", lambda pids: spy.Stacks({pid: told[pid] for pid in pids}))
    found = self_told.self_told(pythons)
    assert {pid: (each.rank, each.world_size, each.address) for pid, each in found.items()} == {
        7: (0, 2, "port :29500"), 8: (1, 2, "port :29501")
    }  # fmt: skip


def test_a_process_of_another_name_space_is_no_process_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container's numbers mean nothing outside of it."""
    monkeypatch.setattr(examine, "pythons", lambda: ({}, 0))
    with pytest.raises(BadTarget, match="there is no process 99999999 here: a container numbers its processes"):
        examine.find([99999999])


THREAD: dict[str, Any] = {
    "pid": 7, "thread_name": "MainThread", "os_thread_id": 7,
    "frames": [
        {"name": "train", "filename": "/work/train.py", "line": 3,
         "locals": [{"name": "epoch", "repr": "12"}, {"name": "password", "repr": '"12"'}]},
    ],
}  # fmt: skip


class TestPySpy:
    """What py-spy prints."""

    def test_the_main_thread_is_taken(self) -> None:
        """Other threads come first, and of variables only the integers are taken."""
        other = {**THREAD, "os_thread_id": 8, "thread_name": "Thread-1", "frames": []}
        stack = spy.parse(json.dumps([other, THREAD]), 7)
        assert stack == spy.Stack((Frame("/work/train.py", 3, "train"),), ((("epoch", 12),),))

    def test_another_thread_is_taken_where_it_alone_trains(self) -> None:
        """As in a worker of Ray Train, whose main thread runs nothing of the user's."""
        frames = [{"name": "main_loop", "filename": "/venv/lib/python3.11/site-packages/ray/worker.py", "line": 9}]
        main = {**THREAD, "frames": frames}
        other = {**THREAD, "os_thread_id": 8, "thread_name": "TrainingThread(train_func)"}
        assert spy.parse(json.dumps([main, other]), 7) == spy.parse(json.dumps([THREAD]), 7)
        assert spy.parse(json.dumps([main, other, {**other, "os_thread_id": 9}]), 7) != spy.parse(
            json.dumps([THREAD]), 7
        ), "of two it cannot be told"

    def test_the_thread_that_a_main_thread_waits_for_is_taken(self) -> None:
        """Of two, that which is inside of torch; where that is not known, what moves in any of them counts."""
        frames = [
            {"name": "Thread.join", "filename": "/usr/lib/python3.11/threading.py", "line": 9},
            {"name": "<module>", "filename": "/work/train.py", "line": 20},
        ]
        main = {**THREAD, "frames": frames}
        trains = {**THREAD, "os_thread_id": 8, "thread_name": "trainer"}
        torch_frame = {"name": "linear", "filename": "/venv/lib/site-packages/torch/nn/functional.py", "line": 2}
        inside = {**trains, "frames": [torch_frame, *trains["frames"]]}
        beats = {**trains, "os_thread_id": 9, "frames": [{"name": "beat", "filename": "/work/log.py", "line": 5}]}
        alone, both, unknown = (
            spy.parse(json.dumps(threads), 7)
            for threads in ([main, trains], [main, inside, beats], [main, trains, beats])
        )
        assert alone is not None
        assert both is not None
        assert unknown is not None

        assert alone.frames[0].function == "train"
        assert both.frames[0].function == "linear"
        assert unknown.frames[0].function == "Thread.join"
        future = {"filename": "/usr/lib/python3.12/concurrent/futures/_base.py", "name": "Future.result", "line": 451}
        waits = {**main, "frames": [future, *main["frames"][-1:]]}
        asked, idle = (spy.parse(json.dumps(threads), 7) for threads in ([waits, inside], [waits, beats]))
        assert asked is not None
        assert idle is not None
        assert asked.frames[0].function == "linear"
        assert (idle.frames[0].function, len(idle.others)) == ("Future.result", 1)
        moved = replace(unknown, others=(("trainer", (Frame("/work/train.py", 4, "train"),)),))
        assert not Seen(7, None, looks=[unknown, unknown]).moves
        assert Seen(7, None, looks=[unknown, moved]).moves

    def test_a_process_that_was_seen_once_is_looked_at_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """On a busy host looks fail: one alone tells of no rank that it stands."""
        thread = spy.parse(json.dumps([THREAD]), 7)
        assert thread is not None
        answers = iter([{7: thread}, {}, {}, {}, {7: thread}])
        seconds = itertools.count()
        monkeypatch.setattr(look, "stacks", lambda _: spy.Stacks(next(answers, {})))
        monkeypatch.setattr(look, "time", SimpleNamespace(monotonic=lambda: next(seconds), sleep=lambda _: None))
        found, _ = look.look([7], 2.0)
        assert len(found[7].looks) == 2
        assert Seen(7, None, looks=[thread]).moves

    @given(st.recursive(st.none() | st.integers() | st.text(max_size=3), lambda each: st.lists(each) | st.dictionaries(
        st.sampled_from(["pid", "frames", "os_thread_id", "locals", "name"]), each)))  # fmt: skip
    def test_any_json_is_an_answer(self, answer: object) -> None:
        """Another version of py-spy ends nothing."""
        spy.parse(json.dumps(answer), 7)

    def test_a_missing_program_is_said_with_the_way_to_get_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without py-spy no line is known, and the rest goes on."""
        monkeypatch.setattr(spy, "py_spy", lambda: None)
        assert "pip install 'ddpdoctor[stuck]'" in spy.stacks([1]).refused

    def test_missing_rights_are_said_with_the_way_to_get_them(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """py-spy's complaint becomes a line with a command."""
        program = tmp_path / "py-spy"
        program.write_text("#!/bin/sh\necho 'Error: Permission Denied: Try running again with sudo' >&2\nexit 1\n")
        program.chmod(0o755)
        monkeypatch.setattr(spy, "py_spy", lambda: str(program))
        for user, advice in ((0, "--cap-add=SYS_PTRACE"), (1000, "sudo ")):
            monkeypatch.setattr("os.geteuid", lambda user=user: user)
            assert advice in spy.stacks([1]).refused


def test_ranks_whose_stacks_nobody_has_read_are_not_blamed() -> None:
    """All stand still, and each can wait for any other: that is said, and what reads the stacks."""
    stand = [replace(at(rank, Doing.STANDING), site=None, stack=(), workers=()) for rank in range(2)]
    (found,) = verdict(seen(*stand), CHECKS, 0.0).report.findings()

    assert found.message == "all 2 ranks stand still, and where is not known: each can wait for any other"
    assert found.fix.command.startswith("pip install py-spy")
    assert found.place.rank is None


class TestReports:
    """What one host has written, and another reads."""

    def test_what_is_written_is_read(self) -> None:
        """Nothing is lost."""
        told = seen(at(0), at(1, Doing.STANDING))
        told = replace(told, peers=(Peer("10.0.0.1", "10.0.0.2", 512, 6, "eth0"),))
        data = json.loads(json.dumps({"facts": {"stuck": as_data(told)}}))
        assert read_sighting("a.json", data) == told

    @pytest.mark.parametrize("data", [None, [], {}, {"facts": []}, {"facts": {}}, {"facts": {"stuck": None}}])
    def test_another_report_is_none(self, data: object) -> None:
        """A report of another command has nothing of it."""
        assert read_sighting("a.json", data) is None

    @given(st.data())
    def test_a_damaged_report_is_refused_in_a_line(self, data: st.DataObject) -> None:
        """Whatever is left out or replaced: a line, no traceback."""
        whole = json.loads(json.dumps(as_data(seen(at(0), at(1, Doing.STANDING)))))
        node = whole
        for _ in range(data.draw(st.integers(0, 3))):
            each = node.values() if isinstance(node, dict) else node
            inner = [item for item in each if isinstance(item, (dict, list))]
            if not inner:
                break
            node = data.draw(st.sampled_from(inner))
        junk: object = data.draw(st.none() | st.integers() | st.text(max_size=3) | st.just([]) | st.just({}))
        if isinstance(node, dict) and node:
            node[data.draw(st.sampled_from(sorted(node)))] = junk
        elif isinstance(node, list) and node:
            node[0] = junk
        with suppress(BadTarget):
            read_sighting("a.json", {"facts": {"stuck": whole}})

    def test_hosts_are_put_together(self) -> None:
        """Each alone does not know whom it waits for."""
        both = merged([("1.json", seen(at(1, Doing.STANDING, line=9), host="n1")), ("0.json", seen(at(0)))])
        assert both.hosts == ("n0", "n1")
        (found,) = verdict(both, CHECKS, 0.0).report.findings()
        assert found.message.startswith("rank 1 standing still in train at train.py:9")
        assert verdict(seen(at(0)), CHECKS, 0.0).report.exit_status(fail_on=found.severity) == 0  # type: ignore[arg-type]

    def test_two_processes_of_one_rank_are_refused(self) -> None:
        """A file that is named twice, or two hosts with one NODE_RANK."""
        with pytest.raises(
            BadTarget, match=r"rank 0 is in a\.json and in b\.json.*each host needs a node rank of its own"
        ):
            merged([("a.json", seen(at(0))), ("b.json", seen(at(0), host="n1"))])
        with pytest.raises(BadTarget, match=r"two processes are one rank$"):
            merged([("a.json", seen(at(0))), ("b.json", seen(at(0)))])

    def test_reports_of_two_trainings_are_refused(self) -> None:
        """They meet at other ports."""
        other = replace(seen(at(1)), address="n0:29501")
        with pytest.raises(BadTarget, match=r"MASTER_PORT is 29500 and 29501$"):
            merged([("a.json", seen(at(0))), ("b.json", other)])
        alone = [replace(each, world_size=1) for each in (seen(at(0)), replace(seen(at(0)), address="n1:29501"))]
        with pytest.raises(BadTarget, match="where they should be one, torchrun is to be told --nnodes"):
            merged([("a.json", alone[0]), ("b.json", alone[1])])

    def test_looks_that_lie_apart_are_told(self) -> None:
        """Minutes between the hosts can make a training that moves look as if it stood."""
        assert "90 s apart" in apart([1000.0, 1090.0])
        assert not apart([1000.0, 1000.0])

    def test_bad_arguments_are_a_line(self, ddpdoctor: Run, tmp_path: Path) -> None:
        """Status 2, and no traceback."""
        (tmp_path / "x.json").write_text("{")
        for argument in ("999999999", "nothing.json", str(tmp_path / "x.json")):
            done = ddpdoctor("stuck", argument)
            assert (done.returncode, done.stdout) == (2, "")
            assert done.stderr.startswith("ddpdoctor: ")
            assert done.stderr.count("\n") == 1


class TestFlightRecorder:
    """Dumps that lie there, and pipes."""

    @staticmethod
    def job(**environ: str) -> jobs_module.Job:
        """Return a job of one rank, number 0."""
        process = python(900_001, 1, Identity(0, 1, address="n:1"), **environ)
        return jobs_module.jobs({900_001: process}, {})[0]

    def test_dumps_are_found_where_torch_writes_them(self, tmp_path: Path) -> None:
        """Where the training was told, else in the user's cache; not those of an earlier training."""
        (tmp_path / "torch").mkdir()
        (tmp_path / "torch/comm_lib_trace_rank_0").touch()
        (tmp_path / "mine_0").touch()
        cache = {"XDG_CACHE_HOME": str(tmp_path)}
        assert flight.dumps(self.job(**cache)) == (tmp_path / "torch/comm_lib_trace_rank_0",)
        assert flight.dumps(self.job(**cache, TORCH_FR_DUMP_TEMP_FILE=f"{tmp_path}/mine_")) == (tmp_path / "mine_0",)
        os.utime(tmp_path / "mine_0", (-1, -1))
        assert flight.dumps(self.job(**cache, TORCH_FR_DUMP_TEMP_FILE=f"{tmp_path}/mine_")) == ()

    def test_a_pipe_is_named_where_there_is_one(self, tmp_path: Path) -> None:
        """Torch makes it where the variable is set, as ProcessGroupNCCL.hpp says."""
        os.mkfifo(tmp_path / "p0.pipe")
        job = self.job(TORCH_NCCL_DEBUG_INFO_PIPE_FILE=f"{tmp_path}/p")
        assert list(flight.pipes(job)) == [f"echo 1 > {tmp_path}/p0.pipe"]
        assert list(flight.pipes(self.job())) == []

    def test_a_file_that_is_no_dump_ends_nothing(self, tmp_path: Path) -> None:
        """It is said, and the verdict follows."""
        (tmp_path / "mine_0").write_bytes(b"\x80\x02damaged")
        assert "no dump" in compared((tmp_path / "mine_0",))


class TestSource:
    """Loops around a line, as the source has them."""

    TEXT = """\
def train(loader):
    total = 0
    for epoch in range(3):
        for step, batch in enumerate(loader):
            total += 1
            if batch is None:
                break
            work(batch)
        barrier()
"""

    @pytest.fixture
    def file(self, tmp_path: Path) -> str:
        """Return a file with that text."""
        (tmp_path / "train.py").write_text(self.TEXT)
        return str(tmp_path / "train.py")

    def test_what_counts_the_loops_is_known(self, file: str) -> None:
        """Targets of the loops around a line, and what is counted up in them."""
        assert loop_counters(file, 8) == {"epoch", "step", "batch", "total"}
        assert loop_counters(file, 4) == {"epoch", "step", "batch", "total"}  # where it waits for the next item
        assert loop_counters(file, 9) == {"epoch", "total"}
        assert loop_counters(file, 2) == set()


class TestOwnLauncher:
    """The first rank of Lightning starts the others, which alone are told who they are."""

    TOLD: ClassVar = {"MASTER_ADDR": "n0", "MASTER_PORT": "1", "NODE_RANK": "1", "WORLD_SIZE": "4"}

    def test_the_first_rank_is_what_started_the_others(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """On the second of two hosts, too."""
        monkeypatch.setattr(Python, "has_torch", property(lambda _: True))
        processes = [python(900_001, 1, None), python(900_002, 900_001, None, LOCAL_RANK="1", **self.TOLD)]
        found = with_children({each.pid: each for each in processes})

        assert {pid: each.rank for pid, each in found.items()} == {900_001: 2, 900_002: 3}
        [job] = jobs_module.jobs({each.pid: each for each in processes}, found)
        assert [rank.pid for rank in job.ranks] == [900_001, 900_002]

    def test_workers_of_the_ranks_are_no_training(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """One of each rank: a pair with the sockets of the two ranks, of which one listens at the store."""
        monkeypatch.setattr(Python, "has_torch", property(lambda _: True))
        second = {"LOCAL_RANK": "1", **self.TOLD, "NODE_RANK": "0", "WORLD_SIZE": "2"}
        processes = [
            python(900_001, 1, None), python(900_002, 900_001, None, **second), python(900_003, 900_001, None),
            python(900_004, 900_002, None, **second),
        ]  # fmt: skip
        store = frozenset({("127.0.0.1", 1)})
        monkeypatch.setattr(examine, "pythons", lambda: ({each.pid: each for each in processes}, 0))
        monkeypatch.setattr(
            self_told, "ends_of", lambda pid: self_told.Ends(frozenset({1} if pid in {900_001, 900_003} else ()), store)
        )
        job = examine.find([])

        assert [(each.pid, each.identity.rank) for each in job.ranks] == [(900_001, 0), (900_002, 1)]

    @pytest.mark.parametrize("more", [{"RANK": "1"}, {"LOCAL_RANK": "0"}, {"WORLD_SIZE": ""}, {"NODE_RANK": "x"}])
    def test_other_launchers_tell_more(self, monkeypatch: pytest.MonkeyPatch, more: dict[str, str]) -> None:
        """Their ranks are known by that."""
        monkeypatch.setattr(Python, "has_torch", property(lambda _: True))
        environ = {"LOCAL_RANK": "1", **self.TOLD, **more}
        processes = [python(900_001, 1, None), python(900_002, 900_001, None, **environ)]

        assert with_children({each.pid: each for each in processes}) == {}


def test_sources_are_read_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes are looked at together; trees that threads make at once end in a SystemError of Python 3.11."""
    program = tmp_path / "py-spy"
    program.write_text("#!/bin/sh\necho []\n")
    program.chmod(0o755)
    within: list[int] = []
    most: list[int] = []

    def parse(*_: object) -> spy.Stack:
        within.append(1)
        most.append(len(within))
        time.sleep(0.05)
        within.pop()
        return spy.Stack(())

    monkeypatch.setattr(spy, "py_spy", lambda: str(program))
    monkeypatch.setattr(spy, "parse", parse)

    assert len(spy.stacks(range(os.getpid(), os.getpid() + 6)).read) == 6
    assert max(most) == 1
