from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import workers

from ddpdoctor.bench.links import measure_links, measure_ranks, values
from ddpdoctor.facets import NotRun
from ddpdoctor.jobs.outcome import Died, Raised, Returned, Stuck
from ddpdoctor.jobs.pool import Jobs, ServerLostError


@pytest.fixture(scope="module")
def pool() -> Iterator[Jobs]:
    """Yield a pool whose ranks find the functions of workers.py."""
    with Jobs(2, {**os.environ, "RANK": "7", "TORCH_DISTRIBUTED_DEBUG": "DETAIL"}) as jobs:
        yield jobs


def test_values_come_back_in_rank_order(pool: Jobs) -> None:
    """Each rank's value comes back, and a process group of the asked size is up."""
    for ranks in (1, 2, 5):
        outcomes = pool.run(workers.world, ranks=ranks)

        assert [outcome.value for outcome in outcomes if isinstance(outcome, Returned)] == [
            (rank, ranks) for rank in range(ranks)
        ]


def test_output_of_each_rank_is_kept_apart(pool: Jobs) -> None:
    """What a rank prints, on both streams, is its outcome's output, not ours."""
    for outcome in pool.run(workers.say, "hello", backend=None):
        assert outcome.output == "hello\nHELLO\n"


def test_a_raising_rank_ends_the_job_and_the_others_show_where_they_wait(pool: Jobs) -> None:
    """One rank's exception ends the job soon; the rank in the barrier is stuck at a stack that names it."""
    started = time.monotonic()
    stuck, raised = pool.run(workers.raise_on, 1, deadline=60)

    assert time.monotonic() - started < 15
    assert isinstance(raised, Raised)
    assert (raised.kind, raised.message) == ("ValueError", "no such luck")
    assert raised.frames[-1].function == "raise_on"
    assert isinstance(stuck, Stuck)
    assert "barrier" in [frame.function for frame in stuck.stack]
    assert "raise_on" in [frame.function for frame in stuck.stack]


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL, signal.SIGTERM])
def test_death_by_a_signal_is_told(pool: Jobs, number: int) -> None:
    """A rank that a signal ended says which."""
    outcomes = pool.run(workers.die, number, backend=None, ranks=1)

    assert outcomes == (Died(0, outcomes[0].output, number, None),)


def test_an_exit_is_told(pool: Jobs) -> None:
    """A rank that exits by itself says with which status."""
    assert pool.run(workers.leave, 3, backend=None, ranks=1) == (Died(0, "", None, 3),)


def test_the_stack_is_taken_even_while_c_code_holds_the_gil(pool: Jobs) -> None:
    """No cooperation of the interpreter is needed to see where a rank is stuck."""
    (stuck,) = pool.run(workers.wait_in_c, ranks=1, backend=None, deadline=1)

    assert isinstance(stuck, Stuck)
    assert stuck.stack[0].function == "wait_in_c"


def test_a_rank_deaf_to_signals_does_not_outlive_its_deadline(pool: Jobs) -> None:
    """Ignoring SIGTERM does not help a rank."""
    started = time.monotonic()
    (stuck,) = pool.run(workers.deaf_and_long, ranks=1, backend=None, deadline=1)

    assert isinstance(stuck, Stuck)
    assert time.monotonic() - started < 10


def test_what_a_rank_started_in_another_session_ends_with_the_job(pool: Jobs) -> None:
    """A process that a rank daemonised is not left behind."""
    (outcome,) = pool.run(workers.orphan, ranks=1, backend=None)

    assert isinstance(outcome, Returned)
    assert not psutil.pid_exists(outcome.value)


def test_endless_output_fills_no_disk(pool: Jobs) -> None:
    """Only the end of a flood of output is kept."""
    (outcome,) = pool.run(workers.flood, ranks=1, backend=None, deadline=1.5)

    assert isinstance(outcome, Stuck)
    assert len(outcome.output) <= 20_000


def test_variables_of_the_users_rendezvous_reach_no_job(pool: Jobs) -> None:
    """What other checks judge is left out; what the job lays over counts."""
    (outcome,) = pool.run(
        workers.variables,
        "RANK",
        "TORCH_DISTRIBUTED_DEBUG",
        "SEEN",
        ranks=1,
        backend=None,
        environ={"SEEN": "1"},
    )

    assert isinstance(outcome, Returned)
    assert outcome.value == {"RANK": None, "TORCH_DISTRIBUTED_DEBUG": None, "SEEN": "1"}


def test_ranks_draw_as_processes_of_their_own(pool: Jobs) -> None:
    """Generators that a fresh process seeds from the system are not copies of each other."""
    one, other = (outcome.value for outcome in pool.run(workers.draw, backend=None) if isinstance(outcome, Returned))

    assert one[0] != other[0]
    assert one[1] != other[1]


def test_a_value_that_cannot_travel_is_an_exception_of_the_rank(pool: Jobs) -> None:
    """The job still ends, with the reason."""
    (outcome,) = pool.run(workers.unpicklable, ranks=1, backend=None)

    assert isinstance(outcome, Raised)
    assert "pickle" in outcome.message.lower()


def test_a_script_runs_as_under_torchrun(pool: Jobs, tmp_path: Path) -> None:
    """env:// rendezvous works, arguments arrive, and the store listens on loopback only."""
    script = tmp_path / "train.py"
    script.write_text(
        "import os, sys, psutil, torch.distributed as dist\n"
        "if __name__ == '__main__':\n"
        "    dist.init_process_group('gloo')\n"
        "    dist.barrier()\n"
        "    port = int(os.environ['MASTER_PORT'])\n"
        "    seen = psutil.net_connections('tcp')\n"
        "    hosts = {c.laddr.ip for c in seen if c.status == 'LISTEN' and c.laddr.port == port}\n"
        "    print(dist.get_rank(), dist.get_world_size(), os.environ['LOCAL_RANK'], sys.argv[1:], hosts)\n"
    )
    outcomes = pool.run_script(script, "--lr", "1")

    assert [outcome.output for outcome in outcomes] == [
        f"{rank} 2 {rank} ['--lr', '1'] {{'127.0.0.1'}}\n" for rank in range(2)
    ]
    assert [type(outcome) for outcome in outcomes] == [Returned, Returned]


def test_nothing_is_left_when_the_client_is_killed(tmp_path: Path) -> None:
    """SIGKILL to the process that uses the pool ends the server and the ranks of a running job."""
    program = tmp_path / "client.py"
    program.write_text(
        f"import os, sys\nsys.path.insert(0, {str(Path(workers.__file__).parent)!r})\n"
        "import workers\nfrom ddpdoctor.jobs.pool import Jobs\n"
        "jobs = Jobs(2, os.environ)\njobs.problem()\nprint(jobs._process.pid, flush=True)\n"
        "jobs.run(workers.deaf_and_long, backend=None, deadline=60)\n"
    )
    client = subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, text=True)
    assert client.stdout is not None
    server = psutil.Process(int(client.stdout.readline()))
    ranks: list[psutil.Process] = []
    while len(ranks) < 2:
        ranks = server.children()
    client.kill()
    client.wait()
    client.stdout.close()
    gone, alive = psutil.wait_procs([server, *ranks], timeout=10)

    assert alive == []
    assert len(gone) == 3


def test_ranks_die_with_a_killed_server() -> None:
    """SIGKILL to the server leaves no rank, and the client learns that the server is gone."""
    with Jobs(2, os.environ) as jobs:
        assert jobs.problem() == ""
        server = psutil.Process(jobs._process.pid)
        server.kill()
        server.wait(5)
        with pytest.raises(ServerLostError):
            jobs.run(workers.world)


def test_closing_before_torch_is_imported_is_immediate() -> None:
    """A pool that nobody used costs nothing to end."""
    with Jobs(2, os.environ) as jobs:
        process = psutil.Process(jobs._process.pid)
        started = time.monotonic()

    assert time.monotonic() - started < 2
    assert not process.is_running()


def test_a_torch_that_cannot_be_imported_is_a_reason_not_a_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks that need jobs are not run, because torch cannot be imported, and why."""
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.99: cannot open shared object file')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with Jobs(2, os.environ) as jobs, pytest.raises(NotRun, match=r"libcudart\.so\.99"):
        jobs.run(os.getpid)


def test_a_run_whose_time_is_used_up_starts_no_job(pool: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline of the whole run bounds the jobs."""
    assert pool.problem() == ""
    monkeypatch.setattr(pool, "_ends_at", time.monotonic() - 1)

    with pytest.raises(NotRun, match="--timeout"):
        pool.run(os.getpid)


def test_everything_works_without_numpy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch does not need it; what of torch does, fails as the check numpy-missing says; links are measured."""
    (tmp_path / "numpy").mkdir()
    (tmp_path / "numpy/__init__.py").write_text("raise ModuleNotFoundError('no numpy here', name='numpy')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with Jobs(2, os.environ) as jobs:
        gathered = jobs.run(workers.gather_own)
        refused = jobs.run(workers.gather_torchs)
        with pytest.raises(NotRun, match="rank 0 raised RuntimeError: Numpy is not available"):
            values(refused)
        assert measure_links(jobs, "gloo", (1024,), 0.05).link > 0
        assert {(each.a, each.b) for each in measure_ranks(jobs, "gloo").links} == {(0, 1), (1, 0)}

    assert [outcome.value for outcome in gathered if isinstance(outcome, Returned)] == [[{"rank": 0}, {"rank": 11}]] * 2
    assert [outcome.message for outcome in refused if isinstance(outcome, Raised)] == ["Numpy is not available"] * 2


def test_a_twin_is_a_pool_of_its_own_and_leaves_nothing() -> None:
    """Twins run jobs beside each other, in servers of which none outlives its client's word that it is closed."""
    with Jobs(2, os.environ) as first:
        assert not first.problem()
        with first.twin() as one, first.twin() as other:
            ended = [outcome for pool in (one, other) for outcome in pool.run(workers.parent, backend=None)]

        servers = {outcome.value for outcome in ended if isinstance(outcome, Returned)}
        assert len(servers) == 2
        assert not any(map(psutil.pid_exists, servers))
