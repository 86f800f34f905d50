"""A rank is said to stand still only where nothing of it moves: slow, loaded and waiting for a helper is no fault."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from helpers import Command, Run, Script

from ddpdoctor.checks.collectives.hangs._hangs import hang_of
from ddpdoctor.checks.collectives.hangs._kinds import Hang
from ddpdoctor.host.process.threads import thread_folders
from ddpdoctor.host.stack import Frame
from ddpdoctor.watch.events import Doing, Position, Site, Stalled
from ddpdoctor.watch.monitor.seen.activity import Activity, follow
from ddpdoctor.watch.monitor.seen.operation import OF_GROUP, inner_function, operation_of
from ddpdoctor.watch.monitor.seen.usage import Thread, Usage
from ddpdoctor.watch.rank.hooks import communications
from ddpdoctor.watch.training import Training

SPIN = "while True: pass"
IDLE = {
    "in a lock": "import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()",
    "in a sleep": "import time; time.sleep(60)",
    "looks for its workers every five seconds": "import time\nwhile True: time.sleep(5)",
    "the monitor, which it has started, computes": (
        "import subprocess, sys\nsubprocess.Popen([sys.executable, '-S', '-c', 'while True: pass', '-m', 'ddpdoctor', "
        "'monitor']).wait()"
    ),
    "its helpers wait": "import os\nif not os.fork(): os.read(os.pipe()[0], 1)\nos.wait()",
}
AT_WORK = {
    "computes": SPIN,
    "a thread of it computes": f"import threading\ndef work():\n    {SPIN}\nthreading.Thread(target=work).start()",
    "a process that it has started computes": f"import os\nif not os.fork():\n    {SPIN}\nos.wait()",
    "is let run now and then": SPIN,
}
ASKING = {"polls for a file": "import os, time\nwhile not os.path.exists('/no/such'): time.sleep(0.05)"}
ANSWER = "import os, socket, time\nhere, there = socket.socketpair()\nif not os.fork():\n    {}\n"
READS = "there.close(); here.makefile('rb').read(65536)"
SERVED = {"reads what comes now and then": ANSWER.format("while True: time.sleep(0.4); there.send(b'some')") + READS}
UNSERVED = {"reads what never comes": ANSWER.format("time.sleep(60)") + READS}
COPYING = {"copies": "import os, time\nwhile True: os.read(os.open('/dev/zero', 0), 1 << 20); time.sleep(0.3)"}


@contextmanager
def running(text: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program; its helpers are ended with it."""
    with subprocess.Popen([sys.executable, "-S", "-c", text], start_new_session=True) as process:
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_what_a_process_does_is_told_apart_from_outside() -> None:
    """Idle ones, those at work, also by a thread, a helper, or on a machine that seldom lets them; those that ask.

    An answer that comes in parts, slowly, is told from one that never comes.

    One that asks, and has to wait for a core each time, is at work: what this test starts loads the machine.
    """
    with ExitStack() as stack:
        programs = IDLE | AT_WORK | ASKING | COPYING | SERVED | UNSERVED
        started = {name: stack.enter_context(running(text)) for name, text in programs.items()}
        held = started["is let run now and then"]
        known = {process.pid: Activity() for process in started.values()}
        time.sleep(1)
        for _ in range(6):
            held.send_signal(signal.SIGSTOP)
            time.sleep(0.5)
            held.send_signal(signal.SIGCONT)
            time.sleep(0.05)
            follow(known)
        found = {name: known[process.pid] for name, process in started.items()}

    at_work = {name for name, each in found.items() if each.still == 0}
    assert at_work >= set(AT_WORK)
    assert not at_work & set(IDLE)
    assert {name for name, each in found.items() if each.asks} | at_work >= set(ASKING)
    assert {name for name, each in found.items() if each.moves_data} | at_work >= set(COPYING)
    assert {name for name, each in found.items() if each.is_served} | at_work >= set(SERVED)
    assert not any(each.is_served for name, each in found.items() if name in UNSERVED)
    assert not any(each.asks or each.moves_data for name, each in found.items() if name in IDLE | UNSERVED)


def test_a_thread_that_waits_for_a_core_is_at_work() -> None:
    """On a machine under load 50 it ran for a fiftieth of the time; one that only looks for work waits as long."""
    before = Usage(1, 0.0, "sleeping", {1: Thread(0, 0, 0), 2: Thread(0, 0, 0)})

    assert Usage(1, 1.0, "sleeping", {1: Thread(0, 0, 0), 2: Thread(0.02, 0.9, 5)}).works_since(before)
    assert not Usage(1, 1.0, "sleeping", {1: Thread(0, 0, 0), 2: Thread(0.01, 0.9, 98)}).works_since(before)
    assert Usage(1, 1.0, "disk-sleep", dict(before.threads)).works_since(before)


TORCH = "/lib/site-packages/torch"
WAITS = (
    Frame(f"{TORCH}/distributed/distributed_c10d.py", 3064, "all_reduce"),
    Frame(f"{TORCH}/distributed/c10d_logger.py", 83, "wrapper"),
    Frame("/home/me/train.py", 30, "main"),
)
COMPUTES = (
    Frame(f"{TORCH}/nn/modules/linear.py", 125, "forward"),
    Frame(f"{TORCH}/nn/parallel/distributed.py", 1650, "forward"),
    Frame("/home/me/train.py", 30, "main"),
)
REDISTRIBUTES = (
    Frame(f"{TORCH}/_ops.py", 1275, "__call__"),
    Frame(f"{TORCH}/distributed/_functional_collectives.py", 140, "wait_tensor"),
    Frame(f"{TORCH}/distributed/tensor/_api.py", 620, "full_tensor"),
    Frame("/home/me/train.py", 30, "main"),
)
REDISTRIBUTES_NOW = (
    Frame(f"{TORCH}/_ops.py", 882, "redispatch"),
    Frame(f"{TORCH}/_library/autograd.py", 41, "forward_no_grad"),
    Frame(f"{TORCH}/_library/autograd.py", 123, "autograd_impl"),
    *REDISTRIBUTES[:2],
    Frame(f"{TORCH}/distributed/_functional_collectives.py", 1122, "wait"),
    Frame(f"{TORCH}/distributed/tensor/_redistribute.py", 1766, "redistribute_local_tensor"),
    Frame(f"{TORCH}/distributed/tensor/_redistribute.py", 1918, "forward"),
    Frame(f"{TORCH}/autograd/function.py", 625, "apply"),
    *REDISTRIBUTES[2:],
)
"""As torch 2.13 does it: a function of autograd around it has a method of DDP's name."""


def test_a_handle_that_deepspeed_waits_for_is_a_communication(tmp_path: Path) -> None:
    """Of its wait the stack shows DeepSpeed's line alone, or what it wraps around each function for profiles."""
    zero = tmp_path / "deepspeed/runtime/zero"
    zero.mkdir(parents=True)
    gathers, reduces = zero / "partition_parameters.py", zero / "stage3.py"
    gathers.write_text("class Handle:\n    def wait(self):\n        nvtx(self.handle.wait)()\n        copy(self)\n")
    reduces.write_text("def reduce(grads):\n    momentum.wait()\n")
    nvtx = Frame(str(tmp_path / "deepspeed/utils/nvtx.py"), 33, "wrapped_fn")
    users = Frame("/home/me/train.py", 30, "main")

    assert operation_of((nvtx, Frame(str(gathers), 3, "wait"), nvtx, users)) == "all_gather"
    assert operation_of((Frame(str(reduces), 2, "reduce"), users)) == "Work.wait"
    assert operation_of((Frame(str(gathers), 4, "wait"), nvtx, users)) == "", "it computes"
    assert operation_of((Frame("/venv/tensor.py", 1, "to"), Frame(str(gathers), 3, "wait"), users)) == ""


def test_a_rank_that_computes_within_ddps_forward_is_in_no_communication() -> None:
    """What counts is the innermost frame; the library's function is told with its module."""
    assert operation_of(WAITS) == "all_reduce"
    own = Frame(f"{communications.__file__} (importlib._bootstrap)", 1, "wait")
    assert operation_of((own, *WAITS)) == "all_reduce"
    assert operation_of((own, *WAITS[-1:])) == "Work.wait", "the script's own call"
    method = Frame(f"{communications.__file__} (importlib._bootstrap)", 1, "communicate")
    assert operation_of((method, *WAITS)) == "all_reduce"
    of_fabric = Frame("/venv/lib/python3.11/site-packages/lightning/fabric/utilities/distributed.py", 1, "__exit__")
    assert operation_of((method, of_fabric, *WAITS[-1:])) == OF_GROUP, "no function of torch is around"
    assert operation_of(REDISTRIBUTES) == "redistribute"
    assert operation_of(REDISTRIBUTES_NOW) == "redistribute"
    of_the_users = (*REDISTRIBUTES_NOW[:3], Frame("/home/me/ops.py", 3, "my_op"))
    assert operation_of(of_the_users) == "", "an operation of the user's own that computes"
    assert operation_of(COMPUTES) == ""
    assert operation_of(COMPUTES[1:]) == "forward of DistributedDataParallel"
    assert inner_function(COMPUTES) == "linear.forward"
    assert inner_function(COMPUTES[2:]) == ""
    assert inner_function((own, *WAITS)) == "distributed_c10d.all_reduce", "not what the watch has put around it"


def test_a_rank_of_horovod_waits_in_what_the_script_called_of_it() -> None:
    """Told by its outermost function, where the innermost one is Horovod's own wait; not where it computes."""
    home = "/venv/lib/python3.11/site-packages"
    user = Frame("/home/me/train.py", 28, "main")
    synchronize = Frame(f"{home}/horovod/torch/mpi_ops.py", 1284, "synchronize")
    step = (
        Frame(f"{home}/horovod/torch/optimizer.py", 250, "synchronize"),
        Frame(f"{home}/horovod/torch/optimizer.py", 290, "step"),
        Frame(f"{home}/torch/optim/optimizer.py", 533, "wrapper"),
    )
    assert operation_of((synchronize, *step, user)) == "hvd.DistributedOptimizer.step"
    allreduce = Frame(f"{home}/horovod/torch/mpi_ops.py", 256, "allreduce")
    assert operation_of((synchronize, allreduce, user)) == "hvd.allreduce"
    assert operation_of((Frame(f"{home}/torch/optim/adam.py", 9, "adam"), *step[1:], user)) == ""


@pytest.mark.parametrize(("world_size", "expected"), [(2, Hang.SAME), (4, Hang.UNSEEN)])
def test_of_ranks_that_are_not_seen_nothing_is_concluded(world_size: int, expected: Hang) -> None:
    """All ranks of this host wait in one collective: with those of another host it can still end."""
    site = Site("/home/me/train.py", 30, "main")
    ranks = tuple(
        Position(rank=rank, pid=rank, doing=Doing.WAITING, seconds=40, operation="all_reduce", site=site)
        for rank in range(2)
    )

    assert hang_of(Stalled(pid=0, time=0.0, ranks=ranks, world_size=world_size), Training()) is expected


SLOW = """
import os, signal, subprocess, sys, time, zlib
import torch, torch.distributed as dist

def now_and_then():
    pid = os.getpid()
    if (helper := os.fork()) == 0:  # a machine under load: this rank comes to run for a tenth of the time
        try:
            for _ in range(12):
                os.kill(pid, signal.SIGSTOP)
                time.sleep(0.45)
                os.kill(pid, signal.SIGCONT)
                time.sleep(0.05)
        finally:
            os._exit(0)
    return helper

dist.init_process_group("gloo")
if dist.get_rank() == 0:
    helper = now_and_then()
    data = os.urandom(1 << 20)
    zlib.compress(data * 8, 9)  # in C
else:
    subprocess.run([sys.executable, "-S", "-c", "sum(range(150_000_000))"])
dist.all_reduce(torch.ones(1))
if dist.get_rank() == 0:
    os.waitpid(helper, 0)
dist.destroy_process_group()
"""


@pytest.mark.usefixtures("no_process_left")
def test_slow_ranks_of_a_real_training_are_no_fault(torchrun: Command, ddpdoctor: Run, script: Script) -> None:
    """One is seldom let run, the other waits for a compiler: a note at most, with the user's line and function."""
    path = script(SLOW)
    done = ddpdoctor("run", "--hang-after", "2", "--", *torchrun, path)

    assert done.returncode == 0, done.stderr
    assert "Nothing wrong was found" in done.stderr
    assert set(re.findall(r"DDP\d{3}", done.stderr)) <= {"DDP711"}


def test_a_process_that_ends_while_it_is_looked_at_has_no_threads() -> None:
    """The monitor looks at ranks while they end: at each moment of it the answer is a list, and never an error."""
    for _ in range(20):
        with subprocess.Popen(["true"]) as process:
            seen = [thread_folders(process.pid) for _ in range(200)]
        assert all(each.parent.name == "task" for found in seen for each in found)
    assert thread_folders(process.pid) == []
