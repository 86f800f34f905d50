"""Errors of ranks that really run: explained once, where they are raised, with what the process knows of them."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from helpers import CHECKS, COLD_TORCHRUN, FIXTURES, Command, Port, Run, Script

from ddpdoctor.facets import NotRun
from ddpdoctor.selftest.trainings import watched
from ddpdoctor.watch.dispatcher import Dispatcher
from ddpdoctor.watch.events import Failed
from ddpdoctor.watch.failure_explainer import Explainer
from ddpdoctor.watch.rank.end.failures import Failures
from ddpdoctor.watch.rank.end.traceback_format import is_error
from ddpdoctor.watch.rank.hooks.process.errors import _excepthook, _ignored

if TYPE_CHECKING:
    from ddpdoctor.jobs.pool import Jobs

RAISED = (
    "accelerator-missing", "graph-used-twice", "message-to-itself",
    "attribute-of-wrapped-model", "batchnorm-single-value", "cuda-call-on-cpu-device", "device-ids-for-cpu-module",
    "integer-tensor-divided", "predicate-not-called", "uninitialized-lazy-parameters", "mixed-devices",
    "module-prefix", "no-trainable-parameters", "orig-mod-prefix",
    "parameter-ready-twice", "sampler-and-shuffle", "strides-differ", "syncbn-on-cpu", "unknown-keyword",

)  # fmt: skip
"""Broken cases that raise; the self-test watches those of checks that watch."""


@pytest.mark.parametrize("slug", RAISED)
def test_the_patient_is_explained_and_the_control_is_left_in_peace(slug: str, jobs: Jobs) -> None:
    """One finding, by the check whose ailment it is, at a line of the script; nothing on the healthy twin."""
    folder = FIXTURES / slug.replace("-", "_")
    try:
        found = watched(folder / "broken.py", CHECKS, jobs)
    except NotRun as exc:
        pytest.skip(str(exc))

    assert [each.check.slug for each in found] == [slug]
    assert found[0].finding.place.file == str(folder / "broken.py")
    assert found[0].finding.place.line
    assert not watched(folder / "healthy.py", CHECKS, jobs)


HEAD = """
import os, socket, time
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

RANK = int(os.environ["RANK"])
"""
SCRIPTS = {
    "a variable of the rendezvous is missing": (
        "rendezvous-variable-missing",
        "MASTER_ADDR is not set",
        "WORLD_SIZE=2",
        """
        del os.environ["MASTER_ADDR"]
        dist.init_process_group("gloo")  # guilty
        """,
    ),
    "a time-out of a second": (
        "group-timeout-too-short",
        "the group's time-out, which is 1 s",
        "",
        """
        from datetime import timedelta
        dist.init_process_group("gloo", timeout=timedelta(seconds=1))
        if RANK == 0:
            dist.barrier()  # guilty
        time.sleep(4)
        """,
    ),
    "a number for device_ids": (
        "device-ids-not-a-list",
        "of type int",
        "",
        """
        dist.init_process_group("gloo")
        DDP(nn.Linear(4, 4), device_ids=RANK)  # guilty
        """,
    ),
    "a number for map_location": (
        "map-location-is-number",
        "of type int",
        "",
        """
        dist.init_process_group("gloo")
        torch.save({"w": torch.ones(2)}, f"{RANK}.pt")
        torch.load(f"{RANK}.pt", map_location=RANK)  # guilty
        """,
    ),
    "a number for the time-out": (
        "init-arguments-refused",
        "timeout=60",
        "",
        """
        dist.init_process_group("gloo", timeout=60)  # guilty
        """,
    ),
    "an operation as text": (
        "collective-on-number",
        "op='sum'",
        "",
        """
        dist.init_process_group("gloo")
        dist.all_reduce(torch.ones(2), op="sum")  # guilty
        """,
    ),
    "no list for objects": (
        "collective-on-number",
        "all_gather_object is given None",
        "",
        """
        dist.init_process_group("gloo")
        dist.all_gather_object(None, {"loss": 1.0})  # guilty
        """,
    ),
    "an object that cannot be sent": (
        "spawn-unpicklable-object",
        "is handed to the other ranks",
        "",
        """
        dist.init_process_group("gloo")
        def told():
            dist.all_gather_object([None, None], lambda: 1)  # guilty
        told()
        """,
    ),
    "a root that is no rank": (
        "group-beyond-world-size",
        "rank 2 as its src",
        "",
        """
        dist.init_process_group("gloo")
        dist.broadcast(torch.ones(2), src=2)  # guilty
        """,
    ),
    "text for a rank": (
        "rank-option-is-text",
        "DistributedSampler",
        "",
        """
        from torch.utils.data.distributed import DistributedSampler
        dist.init_process_group("gloo")
        DistributedSampler(range(8), num_replicas=os.environ["WORLD_SIZE"], rank=RANK)  # guilty
        """,
    ),
    "no process group": (
        "process-group-not-initialized",
        "init_process_group",
        "",
        """
        DDP(nn.Linear(4, 4))  # guilty
        """,
    ),
    "a state dict within a checkpoint, with keys of DDP": (
        "module-prefix",
        "4 keys of the checkpoint carry module.",
        "",
        """
        dist.init_process_group("gloo")
        def net():
            return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        path = f"{RANK}.ckpt"
        torch.save({"epoch": 3, "state": {"model": DDP(net()).state_dict()}}, path)
        checkpoint = torch.load(path)
        net().load_state_dict(checkpoint["state"]["model"])  # guilty
        """,
    ),
    "more parameters on one rank": (
        "parameters-differ",
        "rank 1 builds another model than rank 0: parameter 2 is 1.weight [4, 4], on rank 0 (no more)",
        "1.weight [4, 4], of 4",
        """
        dist.init_process_group("gloo")
        net = nn.Sequential(*[nn.Linear(4, 4) for _ in range(RANK + 1)])
        DDP(net)  # guilty
        """,
    ),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_errors_of_scripts_are_explained(name: str, tmp_path: Path, jobs: Jobs) -> None:
    """The check, what it says, what the process has seen besides, and the guilty line."""
    slug, message, seen, text = SCRIPTS[name]
    script = tmp_path / "train.py"
    script.write_text(HEAD + dedent(text))
    found = watched(script, CHECKS, jobs)

    assert [each.check.slug for each in found] == [slug]
    finding = found[0].finding
    assert message in finding.message
    assert any(seen in each.seen for each in finding.evidence)
    assert finding.place.line == line_of("# guilty", script)


LATE = (
    "RuntimeError: [/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 20000ms for recv operation to complete"
)
WAITED = f"""Traceback (most recent call last):
  File "/home/u/train.py", line 28, in main
    dist.barrier()
{LATE}
"""
IN_FINALLY = f"""Traceback (most recent call last):
  File "/home/u/train.py", line 18, in train
    use(batch["label"])
KeyError: 'label'

During handling of the above exception, another exception occurred:

{WAITED}"""


def test_an_error_before_a_barrier_in_finally() -> None:
    """The error of rank 1 comes first, at its own line, though both ranks end of a time-out, rank 0 before rank 1."""
    failures = [
        Failed(pid=10 + rank, time=rank, rank=rank, site=None, error="RuntimeError", text=text)
        for rank, text in enumerate((WAITED, IN_FINALLY))
    ]
    found = Explainer(CHECKS).explain(failures, Dispatcher(CHECKS))

    assert [each.check.slug for each in found] == ["one-rank-failed"]
    finding = found[0].finding
    assert (
        finding.message == "rank 1 failed first: KeyError: 'label': rank 1 asked for 'label', which is no key of batch"
    )
    assert (finding.place.file, finding.place.line, finding.place.rank) == ("/home/u/train.py", 18, 1)
    assert [each.source for each in finding.evidence] == ["rank 1", "rank 0, -1.0 s later"]


GONE = "[pair.cc:553] Connection closed by peer [127.0.0.1]:22921"


@pytest.mark.parametrize(
    ("where", "called", "text", "is_told"),
    [
        ("Exception ignored in atexit callback <function summary>", "all_reduce", GONE, True),
        ("Exception ignored in atexit callback", "all_reduce", "no such folder", False),
        ("Exception ignored in atexit callback", "barrier", GONE, False),
        ("Exception ignored in: <function Pool.__del__>", "all_reduce", GONE, False),
        (None, "all_reduce", GONE, False),
    ],
)
def test_a_rank_that_is_lost_at_exit(
    where: str | None, called: str, text: str, monkeypatch: pytest.MonkeyPatch, *, is_told: bool
) -> None:
    """Told where a collective of an atexit callback has lost it, and printed by Python in any case."""
    told: list[BaseException] = []
    monkeypatch.setattr(Failures, "leaves", lambda _, exc: told.append(exc))
    recorder: Any = SimpleNamespace(is_rank=True, safely=lambda function, *args: function(*args))
    recorder.failures = Failures(recorder)
    namespace: dict[str, Any] = {}
    exec(f"def {called}():\n    raise RuntimeError({text!r})", namespace)  # noqa: S102 - named as torch names it
    with pytest.raises(RuntimeError) as raised:
        namespace[called]()
    shown: list[object] = []
    unraisable = SimpleNamespace(err_msg=where, exc_value=raised.value)
    _ignored(recorder)(shown.append)(unraisable)

    assert told == ([raised.value] if is_told else [])
    assert shown == [unraisable]


@pytest.mark.parametrize(("nodes", "is_told"), [("--nnodes=1", True), ("--nnodes=2", False)])
def test_a_torchrun_that_lost_the_first_node_explains_nothing(
    nodes: str, monkeypatch: pytest.MonkeyPatch, *, is_told: bool
) -> None:
    """Of several nodes: the ranks tell what became of the others. Of one, another job has hosted the store."""
    monkeypatch.setattr(sys, "argv", ["torchrun", nodes, "--rdzv_endpoint=10.0.0.1:29500", "train.py"])
    lost = type("RendezvousConnectionError", (Exception,), {"__module__": "torch.distributed.elastic.rendezvous.api"})
    recorder: Any = SimpleNamespace(is_rank=False, rank=None, settings=SimpleNamespace(session=""))
    exc = lost("The connection to the C10d store has failed. See inner exception for details.")
    monkeypatch.setattr(Failures, "_note", lambda *_: ("what it was", ()))
    Failures(recorder).leaves(exc)

    assert any("what it was" in str(each) for each in (*getattr(exc, "__notes__", ()), *vars(exc).values())) is is_told


ALONE = """
import os, subprocess, sys
import torch, torch.distributed as dist
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29500", RANK="0", WORLD_SIZE="1")
"""


@pytest.mark.usefixtures("no_process_left")
class TestOneProcess:
    """What a script of one process, started by hand, is told."""

    def test_who_has_the_port(self, python: str, ddpdoctor: Run, script: Script) -> None:
        """The port, the process that listens on it, and the variables as they are; nothing of gloo's interface."""
        path = script(
            ALONE
            + dedent("""
            import socket
            with socket.create_server(("", 0)) as holder:
                port = holder.getsockname()[1]
                os.environ["MASTER_PORT"] = str(port)
                if os.fork() == 0:
                    holder.close()
                    dist.init_process_group("gloo")  # guilty
                else:
                    os.wait()
            """)
        )
        done = ddpdoctor("run", "--", python, path)

        assert "torch.distributed.DistNetworkError" in done.stderr
        assert re.search(r"ddpdoctor: DDP353 master-port-in-use: port \d+ is in use", done.stderr)
        assert re.search(r"seen: pid \d+ \(.*\) listens on port \d+", done.stderr)
        assert re.search(r"seen: MASTER_ADDR=127.0.0.1, MASTER_PORT=\d+, RANK=0, WORLD_SIZE=1", done.stderr)
        assert "seen: gloo uses" not in done.stderr
        assert f"{path}:{line_of('# guilty', path)}" in done.stderr

    def test_the_process_itself_has_the_port(self, python: str, ddpdoctor: Run, script: Script) -> None:
        """A server of the script's own took it before."""
        path = script(
            ALONE
            + dedent("""
            import socket
            with socket.create_server(("", 0)) as holder:
                os.environ["MASTER_PORT"] = str(holder.getsockname()[1])
                dist.init_process_group("gloo")
            """)
        )
        done = ddpdoctor("run", "--", python, path)

        assert re.search(r"seen: this process itself listens on port \d+ already", done.stderr)

    def test_an_error_of_a_worker_is_placed_in_its_own_traceback(
        self, python: str, ddpdoctor: Run, script: Script
    ) -> None:
        """The loop over the loader is where it came out, not where it is."""
        path = script(
            ALONE
            + dedent("""
            from torch.utils.data import DataLoader, Dataset
            class Rows(Dataset):
                def __len__(self):
                    return 4
                def __getitem__(self, index):
                    return torch.stack([])  # guilty
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
            for _ in DataLoader(Rows(), num_workers=1):
                pass
            """)
        )
        done = ddpdoctor("run", "--", python, path)

        assert f"({path}:{line_of('# guilty', path)})" in done.stderr.partition("ddpdoctor: The command failed")[2]

    def test_a_download_that_fails_says_nothing_of_gloo(self, python: str, ddpdoctor: Run, script: Script) -> None:
        """The interface between ranks has nothing to do with a server on the internet."""
        path = script("import torch, urllib.request\nurllib.request.urlopen('https://models.invalid/a.pth')\n")
        done = ddpdoctor("run", "--", python, path)

        assert "DDP347 internet-unreachable" in done.stderr
        assert "gloo uses" not in done.stderr

    def test_the_repair_names_the_very_file(self, python: str, ddpdoctor: Run, script: Script, tmp_path: Path) -> None:
        """No rank, no launcher: the command mends the file, and then it loads."""
        net = "net = torch.nn.Sequential(torch.nn.Linear(2, 2))\n"
        saved = f"torch.save(torch.nn.DataParallel(net).state_dict(), {str(tmp_path / 'my model.pt')!r})\n"
        path = script("import sys, torch\n" + net + saved + "net.load_state_dict(torch.load(sys.argv[1]))  # guilty\n")
        done = ddpdoctor("run", "--", python, path, str(tmp_path / "my model.pt"))
        command = re.search(r"ddpdoctor repair .*", done.stderr)
        assert command is not None, done.stderr
        repaired = ddpdoctor(*shlex.split(command[0])[1:])
        again = ddpdoctor("run", "-q", "--", python, path, shlex.split(command[0])[-1])

        assert done.returncode == 1
        assert repaired.returncode == 0, repaired.stderr
        assert again.returncode == 0, again.stderr
        assert "ddpdoctor" not in again.stderr


FAULTY = """
import os, sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

def train():
    model = DDP(nn.Linear(4, 4))
    model(torch.randn(2, 4)).sum().backward()
    model.encode(3)  # guilty

def worker(rank):
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{os.environ['PORT']}", rank=rank, world_size=2)
    train()

def alone():
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ["PORT"], RANK="0", WORLD_SIZE="1")
    dist.init_process_group("gloo")
"""
MAIN = """
if __name__ == "__main__":
    dist.init_process_group("gloo")
    train()
"""
NOTE = "ddpdoctor: DDP516 attribute-of-wrapped-model: encode is read from the wrapper DistributedDataParallel"
SAID = "AttributeError: 'DistributedDataParallel' object has no attribute 'encode'"


@pytest.mark.usefixtures("no_process_left")
class TestLaunchers:
    """Where an exception leaves a rank, its explanation goes with it."""

    def test_the_traceback_is_the_users_own_and_torchruns_summary_has_the_note(
        self, ddpdoctor: Run, script: Script
    ) -> None:
        """Frames, type and message as without the watch; without @record, the summary has them too."""
        path = script(FAULTY + MAIN)
        done = ddpdoctor("run", "--", *COLD_TORCHRUN, path)
        printed = done.stderr.replace("[rank0]: ", "").replace("[rank1]: ", "")

        assert done.returncode == 1
        assert f'File "{path}", line {line_of("# guilty", path)}, in train' in printed
        assert f"{SAID}\n\n{NOTE}" in printed
        assert f"{SAID}\n  \n  {NOTE}" in printed.partition("Root Cause")[2]
        assert "/ddpdoctor/watch/" not in done.stderr
        assert f"where     {path}:{line_of('# guilty', path)}" in done.stderr

    @pytest.mark.parametrize("method", ["spawn", "fork"])
    def test_the_message_of_mp_spawn(self, python: str, ddpdoctor: Run, script: Script, method: str) -> None:
        """The parent's exception quotes the child's with its explanation, which is made once."""
        start = f'mp.start_processes(worker, nprocs=2, start_method="{method}")'
        done = ddpdoctor("run", "--", python, script(f"{FAULTY}\nif __name__ == '__main__':\n    {start}\n"))

        assert "ProcessRaisedException" in done.stderr
        assert f"{SAID}\n\n{NOTE}" in done.stderr
        assert done.stderr.count("\nddpdoctor: DDP") == 1
        assert "/ddpdoctor/watch/" not in done.stderr

    def test_processes_of_multiprocessing(self, python: str, ddpdoctor: Run, script: Script) -> None:
        """As in torch's tutorial: mp.Process, whose children print their traceback themselves."""
        start = "[each.start() for each in [mp.Process(target=worker, args=(r,)) for r in range(2)]]"
        done = ddpdoctor("run", "--", python, script(f"{FAULTY}\nif __name__ == '__main__':\n    {start}\n"))

        assert f"{SAID}\n\n{NOTE}" in done.stderr

    @pytest.mark.parametrize(
        ("prologue", "said"),
        [
            ("import faulthandler; faulthandler.enable()", SAID),
            ("sys.excepthook = lambda kind, exc, trace: print('MINE', exc, file=sys.stderr)", "MINE '"),
        ],
        ids=["faulthandler, in development mode", "an excepthook of its own"],
    )
    def test_what_else_looks_at_exceptions(
        self, python: str, ddpdoctor: Run, script: Script, prologue: str, said: str
    ) -> None:
        """The note is there, once; what the script asked for happens as well."""
        command = (sys.executable, "-X", "dev") if "faulthandler" in prologue else (python,)
        done = ddpdoctor("run", "--", *command, script(f"{FAULTY}\nalone()\n{prologue}\ntrain()\n"))

        assert said in done.stderr
        assert done.stderr.replace("[rank0]: ", "").count(f"\n{NOTE}") == 1
        assert "watch failed" not in done.stderr

    @pytest.mark.parametrize(
        ("end", "said"),
        [
            ("os.kill(os.getpid(), 9)", "DDP720 rank-died-or-stuck: rank 1 is gone without an exception; rank 0 lost"),
            ("sys.exit()", "DDP744 loop-left-early: rank 1 has left the loop at train.py:"),
            (
                "{}['label']",
                "DDP480 one-rank-failed: rank 1 failed first: KeyError: 'label': rank 1 asked for 'label', ",
            ),
            ("raise OSError('odd')", "DDP480 one-rank-failed: rank 1 failed first: OSError: odd"),
        ],
        ids=["killed", "ended", "failed as any program does", "failed"],
    )
    def test_who_is_to_blame_where_a_rank_only_lost_another(
        self, torchrun: Command, ddpdoctor: Run, script: Script, end: str, said: str
    ) -> None:
        """One finding: that of the rank that went first, however it went."""
        loop = f"""
def train():
    model = DDP(nn.Linear(4, 4))
    for step in range(6):
        if step == 3 and dist.get_rank() == 1:
            {end}
        model(torch.randn(2, 4)).sum().backward()
"""
        done = ddpdoctor("run", "--", *torchrun, script(FAULTY + loop + MAIN))

        assert done.stderr.count("\nddpdoctor: error ") == 1
        assert said in done.stderr.partition("\nddpdoctor: error ")[2]

    def test_an_exception_without_a_place_for_notes(self, python: str, ddpdoctor: Run, script: Script) -> None:
        """As all are in Python 3.10: the explanation is printed, once."""
        path = script(
            FAULTY
            + dedent(f"""
            class Old(AttributeError):
                add_note = property(lambda self: self.__no_such_thing)
            raise Old({SAID.partition(": ")[2]!r})
            """)
        )
        done = ddpdoctor("run", "--", python, path)

        assert done.stderr.count(f"\n{NOTE}") == 1
        assert done.stderr.rstrip().count("Old: 'DistributedDataParallel' object") >= 1

    def test_an_exception_that_the_script_handles_is_no_failure(
        self, python: str, ddpdoctor: Run, script: Script
    ) -> None:
        """Nothing is told, and the exception is the same object with the same traceback."""
        path = script(
            FAULTY
            + dedent("""
            alone()
            for strict in range(3):
                try:
                    nn.Linear(2, 2).load_state_dict({"module.weight": torch.ones(2, 2)})
                except RuntimeError as exc:
                    trace = exc.__traceback__
                    while trace is not None:
                        assert "ddpdoctor" not in trace.tb_frame.f_code.co_filename
                        trace = trace.tb_next
                    assert type(exc) is RuntimeError
            try:
                train()
            except AttributeError:
                print("went on")
            """)
        )
        done = ddpdoctor("run", "-q", "--", python, path)

        assert (done.returncode, done.stdout) == (0, "went on\n"), done.stderr
        assert "ddpdoctor" not in done.stderr


def test_uninstall_gives_back_what_sees_exceptions(free_port: Port) -> None:
    """The excepthook that torch made while the watch was on, mp's process, and what writes torchrun's error file."""
    text = """
import inspect, multiprocessing.process, os, sys
import torch, torch.distributed as dist, torch.multiprocessing.spawn
from torch.distributed.elastic.multiprocessing.errors import ErrorHandler
import ddpdoctor
spawn = sys.modules["torch.multiprocessing.spawn"]
def state():
    return multiprocessing.process.BaseProcess.run, ErrorHandler.record_exception, spawn._wrap
before = state()
ddpdoctor.install()
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[1], RANK="0", WORLD_SIZE="1")
dist.init_process_group("gloo")
changed = state()
ddpdoctor.uninstall()
assert state() == before != changed
if "sys.excepthook" in inspect.getsource(dist.distributed_c10d):  # not in torch 2.2
    assert sys.excepthook.__module__ == "torch.distributed.distributed_c10d"
"""
    done = subprocess.run([sys.executable, "-c", text, free_port()], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


def line_of(text: str, script: str | Path) -> int:
    """Return the number of the first line that holds this text."""
    return next(number for number, line in enumerate(Path(script).read_text().splitlines(), 1) if text in line)


def test_a_worker_that_ends_meanwhile_does_not_cut_off_what_is_told() -> None:
    """DataLoader raises where the system says that a worker has ended, in whatever the process is doing."""
    said: list[str] = []

    def raises(_number: int, _frame: Any) -> None:
        raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed.")

    def tells(exc: BaseException) -> None:
        os.kill(os.getpid(), signal.SIGCHLD)
        said.append(f"told {exc}")

    recorder: Any = SimpleNamespace(failed=tells, safely=lambda *_: None)
    before = signal.signal(signal.SIGCHLD, raises)
    try:
        _excepthook(recorder)(lambda _kind, exc, _trace: said.append(f"printed {exc}"))(KeyError, KeyError(1), None)

        assert signal.getsignal(signal.SIGCHLD) is raises
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert said == ["told 1", "printed 1"]


def test_errors_that_are_no_exception_are_told() -> None:
    """Those of torch.distributed.checkpoint are; what merely asks to end is none."""
    from torch.distributed.checkpoint.api import CheckpointException

    assert is_error(CheckpointException("planning", {}))
    assert not any(map(is_error, (SystemExit(1), KeyboardInterrupt(), GeneratorExit(), None)))
