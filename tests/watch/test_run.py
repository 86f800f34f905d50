from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

import psutil
import pytest
from helpers import PATIENCE, Command, Port, Run, Script

from ddpdoctor.watch.settings import STACK_SIGNAL

if TYPE_CHECKING:
    from ddpdoctor.host.facts import Facts

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2")

HEAD = """
import os, signal, sys, time
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch._dynamo  # once, where else each rank that is forked does so at its first step
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

def step(model, optimizer, inputs):
    loss = model(inputs).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()

def training():
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(8, 2))
    return model, torch.optim.SGD(model.parameters(), lr=0.1)

def loader():
    data = TensorDataset(torch.randn(64, 8))
    return DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
"""
CONTRAST = """
from torch.distributed.nn.functional import all_gather

def train():
    model, optimizer = training()
    batches = loader()
    for epoch in range(2):
        batches.sampler.set_epoch(epoch)
        for (inputs,) in batches:
            mine = model(inputs)
            logits = mine @ torch.cat(all_gather(mine.contiguous())).t()
            labels = LABELS
            loss = nn.functional.cross_entropy(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""
TAIL = """
def worker(rank):
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:" + os.environ["PORT"], rank=rank, world_size=2)
    train()

if __name__ == "__main__":
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
        train()
    else:
        mp.start_processes(worker, nprocs=2, start_method=os.environ.get("METHOD", "fork"))
"""
BODY = """
def train():
    model, optimizer = training()
    batches = loader()
    for epoch in range(3):
        batches.sampler.set_epoch(epoch)
        for (inputs,) in batches:
            step(model, optimizer, inputs)
    os.write(1, b"rank %d is done\\n" % dist.get_rank())  # whole, whatever the other rank writes
    del model, optimizer  # freed after its group, a model that ran over gloo a moment ago makes torch 2.13 hang
    dist.destroy_process_group()
"""
HEALTHY = HEAD + BODY + TAIL
NO_SET_EPOCH = HEALTHY.replace("        batches.sampler.set_epoch(epoch)\n", "")
STUCK = (
    HEAD
    + """
def train():
    model, optimizer = training()
    step(model, optimizer, torch.randn(4, 8))
    if dist.get_rank() == 0:
        dist.barrier()
    step(model, optimizer, torch.randn(4, 8))
"""
    + TAIL
)


def guilty(text: str, line: str) -> int:
    """Return the number of the line that begins so."""
    return next(number for number, each in enumerate(text.splitlines(), 1) if each.strip().startswith(line))


@pytest.mark.usefixtures("no_process_left")
class TestRun:
    """ddpdoctor run -- COMMAND."""

    def test_a_healthy_training_prints_what_it_prints_alone(
        self, torchrun: Command, ddpdoctor: Run, script: Script
    ) -> None:
        """Output and status are the command's; the watch says at its end, on standard error, what it watched."""
        done = ddpdoctor("run", "--", *torchrun, script(HEALTHY))

        assert done.returncode == 0, done.stderr
        assert sorted(done.stdout.splitlines()) == ["rank 0 is done", "rank 1 is done"]
        assert [line for line in done.stderr.splitlines() if "ddpdoctor" in line] == [
            (
                "ddpdoctor: Nothing wrong was found. Watched 2 ranks, 24 steps of each. "
                "Compared 7 steps, 2 parameters: gradients equal, weights equal; 3 passes over loaders, "
                "random draws of 9 steps."
            )
        ]

    def test_a_command_that_trains_nothing_is_not_called_healthy(self, ddpdoctor: Run) -> None:
        """No rank was there: the watch says so, unless it is to be quiet."""
        loud, quiet = (ddpdoctor("run", *options, "--", "true") for options in ((), ("-q",)))

        assert (loud.returncode, quiet.returncode) == (0, 0)
        assert "no rank was watched" in " ".join(loud.stderr.split())
        assert "Nothing wrong" not in loud.stderr
        assert quiet.stderr == ""

    def test_a_command_that_fails_is_not_called_healthy(self, ddpdoctor: Run) -> None:
        """It says the status; of one that a signal ended it says nothing of the kind."""
        failed, ended = (ddpdoctor("run", "--", "sh", "-c", each) for each in ("exit 3", "kill -TERM $$"))

        assert failed.returncode == 3
        assert "The command failed with status 3, and no check says of what." in failed.stderr
        assert ended.returncode == 143
        assert "failed" not in ended.stderr

    def test_ranks_that_a_killed_launcher_has_left_are_named(
        self, python: str, ddpdoctor: Run, script: Script, tmp_path: Path
    ) -> None:
        """They go on, and hold the GPU and the port: with the command that ends them."""
        rank = """
            import os, signal, sys, time, torch.distributed as dist
            os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
            dist.init_process_group("gloo")
            open(sys.argv[1], "w").write(str(os.getpid()))
            os.kill(int(sys.argv[2]), signal.SIGKILL)
            ends = time.time() + 60
            while os.path.exists(sys.argv[1]) and time.time() < ends:
                time.sleep(0.1)
        """
        pid = tmp_path / "pid"
        done = ddpdoctor("run", "--", "sh", "-c", f"{python} {script(dedent(rank))} {pid} $$ > /dev/null 2>&1; true")
        said, own = " ".join(done.stderr.split()), pid.read_text()
        pid.unlink()  # it ends

        assert done.returncode == 137
        assert "The command was ended by SIGKILL" in said
        assert f"without it rank 0 still runs: kill {own}" in said

    def test_an_error_that_no_check_knows_is_named_at_the_end(
        self, python: str, ddpdoctor: Run, script: Script
    ) -> None:
        """The first rank's exception, with its line; all ranks raise it, so that nobody lost another one."""
        alone = """
            import os, torch.distributed as dist
            os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
            dist.init_process_group("gloo")
            {"model": 1}["model_state_dict"]
        """
        path = script(dedent(alone))
        done = ddpdoctor("run", "--", python, path)
        ended = ddpdoctor("run", "--", "sh", "-c", f"{python} {path}; kill -TERM $$")

        said, then = (" ".join(each.stderr.rpartition("ddpdoctor: ")[2].split()) for each in (done, ended))
        assert done.returncode == 1
        assert said.startswith("The command failed with status 1, of an error that no check knows: rank 0: KeyError:")
        assert f"{path}:5" in said
        assert ended.returncode == 143
        assert then.startswith("The command was ended after an error that no check knows: rank 0: KeyError:")

    def test_a_silent_fault_is_told_with_its_line_and_in_the_report(
        self, python: str, ddpdoctor: Run, script: Script, tmp_path: Path
    ) -> None:
        """A forgotten set_epoch is found at the loop; the status stays that of the command."""
        report = tmp_path / "report.json"
        done = ddpdoctor("run", "-q", "--report", str(report), "--", python, script(NO_SET_EPOCH))
        told = json.loads(report.read_text())
        place, watched = told["results"][0]["findings"][0]["place"], told["facts"]["watched"]

        assert done.returncode == 0
        assert {rank: counts["steps"] for rank, counts in watched.items()} == {"0": 24, "1": 24}
        assert all(0 < counts["seconds_comparing"] < 1 for counts in watched.values())
        assert told["verdict"] == "1 warning found."
        assert done.stderr.startswith("ddpdoctor: warning DDP604 set-epoch-not-called")
        assert place["line"] == guilty(NO_SET_EPOCH, "for (inputs,) in batches") - 1  # the loop over epochs

    @pytest.mark.parametrize("offset", ["0", "dist.get_rank() * len(mine)"])
    def test_what_no_event_shows_is_told_from_the_source(
        self, python: str, ddpdoctor: Run, script: Script, offset: str
    ) -> None:
        """Labels that count from 0 on each rank: their numbers are right or wrong by what the columns mean."""
        text = f"{HEAD}{CONTRAST}{TAIL}"
        labels = "torch.arange(len(mine))"
        healthy = offset != "0"
        text = text.replace("LABELS", f"{offset} + {labels}" if healthy else labels)
        done = ddpdoctor("run", "--", python, script(text))

        assert done.returncode == 0
        assert ("labels-without-rank-offset" in done.stderr) is not healthy, done.stderr
        assert ("Nothing wrong was found" in done.stderr) is healthy
        assert healthy or f"train.py:{guilty(text, 'labels =')}" in done.stderr

    def test_a_finding_ends_the_training_where_that_is_asked_for(
        self, python: str, ddpdoctor: Run, script: Script
    ) -> None:
        """Each rank raises the finding at its next batch, and the status is not 0."""
        slow = NO_SET_EPOCH.replace("range(3)", "range(400)").replace(
            "            step(", "            time.sleep(0.02); step("
        )
        done = ddpdoctor("run", "--on-finding", "raise", "--", python, script(slow))

        assert done.returncode == 1
        assert "FaultFoundError" in done.stderr

    def test_a_watch_that_fails_is_not_said_to_have_found_nothing(
        self, torchrun: Command, ddpdoctor: Run, script: Script
    ) -> None:
        """What was not looked at for a fault of ddpdoctor is no "nothing wrong was found"; the training goes on."""
        fault = """
    def fails(*_): raise KeyError("a fault")
    from ddpdoctor.watch.rank.hooks import backward
    if dist.get_rank() == 1: backward._look_at_losses = fails
    model, optimizer = training()"""
        path = script(HEALTHY.replace("\n    model, optimizer = training()", fault, 1))
        done = ddpdoctor("run", "--", *torchrun, path)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("the watch failed in") == 1
        assert "Incomplete: nothing wrong in what was looked at. Watched 2 ranks" in done.stderr
        assert "The watch itself failed on rank 1 (" in done.stderr

    def test_what_is_wrong_in_the_command_is_told_before_it_begins_and_ends_nothing(
        self, ddpdoctor: Run, tmp_path: Path
    ) -> None:
        """A command is looked at as a launch script is; the training goes on to its own end, and the report has it."""
        (tmp_path / "train.py").write_text("print('trained')\n")
        report = tmp_path / "report.json"
        command = (sys.executable, "-m", "torch.distributed.run", "--standalone", "train.py", "--nproc_per_node=2")
        done = ddpdoctor("run", "--on-finding", "raise", "--report", str(report), "--", *command, cwd=tmp_path)

        assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
        assert "error DDP466 launcher-option-after-script" in done.stderr
        assert "1 error found." in done.stderr
        assert [each["code"] for each in json.loads(report.read_text())["results"]] == ["DDP466"]

    def test_a_hang_is_explained_in_time_and_ended_where_that_is_asked_for(
        self, torchrun: Command, ddpdoctor: Run, script: Script
    ) -> None:
        """A barrier of rank 0 alone: who waits where, under which condition; of the end nothing is said."""
        path = script(STUCK)
        command = (*torchrun, path)
        done = ddpdoctor("run", "--hang-after", "3", "--on-finding", "raise", "--", *command)

        assert done.returncode == 1
        assert "DDP723 rank0-only-collective" in done.stderr
        assert f"{path}:{guilty(STUCK, 'dist.barrier()')}" in done.stderr
        assert "if dist.get_rank() == 0" in done.stderr
        assert set(re.findall(r"DDP\d+", done.stderr)) == {"DDP723"}

    def test_ranks_of_mp_spawn_are_watched(self, python: str, ddpdoctor: Run, script: Script) -> None:
        """Children that import everything anew, as forked ones are in the other tests."""
        done = ddpdoctor("run", "--", python, script(NO_SET_EPOCH), METHOD="spawn")

        assert done.returncode == 0, done.stderr
        assert "DDP604" in done.stderr

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_signals_end_the_command_and_leave_nothing(self, script: Script, number: int) -> None:
        """What is sent to ddpdoctor reaches the command; the status says by which signal it ended."""
        path = script("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(60)\n")
        with subprocess.Popen(
            [sys.executable, "-m", "ddpdoctor", "run", "--", sys.executable, path],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            assert process.stdout is not None
            pid = int(process.stdout.readline())
            if number == signal.SIGINT:
                os.killpg(process.pid, number)  # as a terminal does
            else:
                process.send_signal(number)
            status = process.wait(20)

        assert status in {128 + number, 1}
        assert not psutil.pid_exists(pid)

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (("run",), "Missing argument 'COMMAND...'"),
            (("run", "--", "no-such-command-at-all"), "there is no command no-such-command-at-all"),
            (("run", "--report", "/no/such/folder/r.json", "--", "true"), "there is no folder /no/such/folder"),
            (("run", "--report", "/proc/r.json", "--", "true"), "no file can be made in /proc"),
            (("run", "--hang-after", "0", "--", "true"), "Invalid value for '--hang-after'"),
            (
                ("check", "--only", "DDP604", "--", "no-such-command-at-all"),
                "there is no command no-such-command-at-all",
            ),
        ],
    )
    def test_bad_input_is_one_clear_line(self, ddpdoctor: Run, arguments: tuple[str, ...], said: str) -> None:
        """Status 2, no traceback."""
        done = ddpdoctor(*arguments)

        assert done.returncode == 2
        assert said in done.stderr
        assert "Traceback" not in done.stderr

    def test_the_status_is_that_of_the_command(self, ddpdoctor: Run) -> None:
        """Whatever it is."""
        assert ddpdoctor("run", "--", sys.executable, "-c", "raise SystemExit(7)").returncode == 7
        killed = "import os; os.kill(os.getpid(), 9)"
        assert ddpdoctor("run", "--", sys.executable, "-c", killed).returncode == 137


INSTALLED = "import ddpdoctor\nddpdoctor.install(hang_after=3)\n"


@pytest.mark.usefixtures("no_process_left")
class TestInstall:
    """ddpdoctor.install() in the script."""

    def test_under_the_command_nothing_is_done_twice(self, ddpdoctor: Run, script: Script) -> None:
        """Also where the script has not imported torch yet: two watches in one process hide ranks from each other."""
        train = script(
            f"{INSTALLED}from torch.utils.data import DataLoader\nread = DataLoader.__iter__\n"
            "assert hasattr(read, 'ddpdoctor') and not hasattr(read.__wrapped__, 'ddpdoctor'), 'watched twice'\n"
        )

        done = ddpdoctor("run", "--", sys.executable, str(train))

        assert done.returncode == 0, done.stderr

    @pytest.mark.parametrize("late", [False, True], ids=["first line", "after init_process_group"])
    def test_one_line_in_the_script_finds_the_fault(self, script: Script, *, late: bool, free_port: Port) -> None:
        """The same findings without the command, whether the group is there already or not."""
        inside = "def train():\n    import ddpdoctor\n    ddpdoctor.install()\n"
        text = NO_SET_EPOCH.replace("def train():\n", inside) if late else INSTALLED + NO_SET_EPOCH
        done = subprocess.run(
            [*alone(script(text))] if late else [sys.executable, *TORCHRUN, script(text)],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
            env={**os.environ, "PORT": free_port()},
        )
        until_gone()

        assert done.returncode == 0, done.stderr
        assert done.stderr.count("DDP604 set-epoch-not-called") == 1
        assert not sessions()

    def test_a_rank_that_is_asked_while_it_ends_is_not_killed(self, tmp_path: Path) -> None:
        """The monitor's signal is ignored before faulthandler takes it, and after it has let go of it."""
        text = f"""
import atexit, os, time
def last():
    print(os.getpid(), flush=True)
    time.sleep(1.5)
atexit.register(last)
import torch, faulthandler
from ddpdoctor.watch.rank.recorder import Recorder
from ddpdoctor.watch.settings import Settings
Recorder(Settings(session={str(tmp_path)!r})).become_rank(0)
from ddpdoctor.watch.settings import STACK_SIGNAL
faulthandler.unregister(STACK_SIGNAL)  # as the interpreter does at its end
"""
        with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            process.send_signal(STACK_SIGNAL or 0)

        assert process.returncode == 0

    def test_uninstall_restores_everything(self) -> None:
        """No attribute of torch, and no hook, stays changed."""
        text = """
import sys, torch, torch.distributed as dist, torch.utils.data.dataloader as dataloader
from torch.optim import optimizer
import torch.multiprocessing.spawn
from torch.nn.parallel import DistributedDataParallel as DDP
def state():
    owners = (dist, dist.distributed_c10d, dist.ProcessGroup, dataloader.DataLoader, dataloader._BaseDataLoaderIter,
              DDP, torch.nn.Module, torch, sys, sys.modules["torch.multiprocessing.spawn"])
    found = {(str(owner), name): id(value) for owner in owners for name, value in vars(owner).items()
             if callable(value) and name != "_dynamo"}
    return found, len(optimizer._global_optimizer_pre_hooks)
import ddpdoctor, ddpdoctor.watch.rank.hooks.process.errors
import torch.distributed.elastic.multiprocessing.errors
before = state()
ddpdoctor.install()
assert state() != before
assert ddpdoctor.install() is ddpdoctor.install()
ddpdoctor.uninstall()
changed = {key for key in before[0] if state()[0].get(key) != before[0][key]}
assert not changed, changed
assert state()[1] == before[1]
with ddpdoctor.install():
    assert state() != before
assert state()[1] == before[1]
"""
        done = subprocess.run(
            [sys.executable, "-c", text], capture_output=True, text=True, timeout=PATIENCE, check=False
        )

        assert done.returncode == 0, done.stderr

    def test_wrong_options_are_refused(self) -> None:
        """A ValueError that names what is allowed."""
        import ddpdoctor

        with pytest.raises(ValueError, match="warn, raise, log"):
            ddpdoctor.install(on_finding="shout")


@pytest.mark.usefixtures("no_process_left")
class TestRehearsal:
    """ddpdoctor check -- COMMAND."""

    def test_a_forgotten_set_epoch_is_found_and_no_file_is_left(self, ddpdoctor: Run, script: Script) -> None:
        """A hundred epochs are cut to a few short ones, and nothing that it saves is left."""
        text = (
            NO_SET_EPOCH.replace("range(3)", "range(100)")
            .replace(
                "    os.write(1",
                '    torch.save(model.state_dict(), "model.pt")\n'
                '    os.makedirs("runs/1", exist_ok=True)\n'
                '    shutil.copyfile("model.pt", "best.pt")\n    os.write(1',
            )
            .replace("import os", "import shutil, os", 1)
            .replace("            step(", '            torch.save(model.state_dict(), "latest.pt")\n            step(')
        )
        path = script(text)
        folder = Path(path).parent
        for name in ("latest.pt", "best.pt"):
            (folder / name).write_bytes(b"the user's")
        done = ddpdoctor("check", "--only", "DDP604", "--", *alone(path), cwd=folder)

        assert done.returncode == 1, done.stdout + done.stderr
        assert "DDP604 set-epoch-not-called" in done.stdout
        assert (folder / "latest.pt").read_bytes() == (folder / "best.pt").read_bytes() == b"the user's"
        assert sorted(each.name for each in folder.iterdir()) == ["best.pt", "latest.pt", "train.py"]

    def test_a_script_of_one_process_leaves_files_as_they_were(self, ddpdoctor: Run, script: Script) -> None:
        """What it writes before it imports torch, by torch.save and by code of other libraries, is taken back."""
        path = script(
            'open("log.txt", "w").write("new")\n'
            "import torch\nfrom safetensors.torch import save_file\n"
            "model = torch.nn.DataParallel(torch.nn.Linear(2, 2))\n"
            'torch.save(model.module.state_dict(), "last.pt")\n'
            'save_file({"weight": torch.ones(2)}, "weights.safetensors")\n'
            'torch.jit.script(torch.nn.Linear(2, 2)).save("model.ts")\n'
            'torch.save(model.state_dict(), "another.pt")\n'
        )
        folder = Path(path).parent
        names = ["last.pt", "log.txt", "model.ts", "weights.safetensors"]
        for name in names:
            (folder / name).write_bytes(b"the user's")
        done = ddpdoctor("check", "--only", "DDP604", "--", sys.executable, path, cwd=folder)

        assert "no process of it joined a process group" in done.stdout, done.stdout + done.stderr
        assert sorted(each.name for each in folder.iterdir()) == sorted([*names, "train.py"])
        assert {(folder / name).read_bytes() for name in names} == {b"the user's"}

    def test_ranks_in_sessions_of_their_own_end_with_it(self, ddpdoctor: Run, script: Script) -> None:
        """Launchers start ranks so: those that hang before they join are not left when time is up."""
        name = f"rank-{os.getpid()}"
        path = script(
            "import subprocess, sys, time\n"
            "asleep = 'import time; time.sleep(300)'\n"
            f"subprocess.Popen([sys.executable, '-c', asleep, {name!r}], start_new_session=True)\n"
            "time.sleep(300)\n"
        )
        done = ddpdoctor("check", "--only", "DDP604", "--timeout", "12", "--", sys.executable, path)

        assert "ran out of time" in done.stdout, done.stdout + done.stderr
        assert not [each for each in psutil.process_iter(["cmdline"]) if name in (each.info["cmdline"] or [])]

    def test_an_unused_parameter_hides_no_other_fault(self, ddpdoctor: Run, script: Script) -> None:
        """It ends a training at its second step; a rehearsal goes on, and finds the forgotten set_epoch, too."""
        done = ddpdoctor("check", "--", *alone(script(with_spare(NO_SET_EPOCH))))
        found = set(re.findall(r"(?:error|warning) (DDP\d+)", done.stdout))

        assert done.returncode == 1
        assert "spare.weight, spare.bias" in done.stdout
        assert found == {"DDP501", "DDP604"}

    def test_an_unused_parameter_of_one_rank_is_found(self, ddpdoctor: Run, script: Script) -> None:
        """The other rank waits for its gradient and cannot go on with it: that is told, and nothing else."""
        text = with_spare(NO_SET_EPOCH)
        text = text.replace("self.used(x)", "self.used(x) + (self.spare(x) if dist.get_rank() else 0)")
        done = ddpdoctor("check", "--", *alone(script(text)))
        found = set(re.findall(r"(?:error|warning) (DDP\d+)", done.stdout))

        assert found == {"DDP501"}

    def test_a_pass_that_needs_all_of_its_batches_gets_them(self, ddpdoctor: Run, script: Script) -> None:
        """A pass that counts, before the training and between its epochs, is not cut short; the training still is."""
        count = "assert sum(len(inputs) for (inputs,) in batches) == 32"
        text = NO_SET_EPOCH.replace("    for epoch in", f"    {count}\n    for epoch in").replace(
            "    os.write(1", f"    {count}\n    os.write(1"
        )
        done = ddpdoctor("check", "--only", "DDP604", "--", *alone(script(text)))

        assert done.returncode == 1, done.stdout + done.stderr
        assert "DDP604 set-epoch-not-called" in done.stdout

    def test_the_command_is_looked_at_before_it_is_rehearsed(self, ddpdoctor: Run, tmp_path: Path) -> None:
        """What is wrong in it is a finding of the checkup, though what it starts has no ranks."""
        (tmp_path / "train.py").write_text("print('trained')\n")
        command = (sys.executable, "-m", "torch.distributed.run", "--standalone", "train.py", "--nproc_per_node=2")
        done = ddpdoctor("check", "--only", "DDP466", "--", *command, cwd=tmp_path)

        assert done.returncode != 0
        assert "DDP466 launcher-option-after-script: --nproc_per_node stands behind train.py" in done.stdout

    def test_a_healthy_training_passes(self, ddpdoctor: Run, script: Script) -> None:
        """Nothing is found, the status is 0, and the report says how far the rehearsal came and what looked at it."""
        path = script(HEALTHY.replace("range(3)", "range(100)"))
        done = ddpdoctor("check", "--only", "DDP604,DDP501", "--", *alone(path))
        verdict, rehearsal, scope, *_ = done.stdout.splitlines()

        assert done.returncode == 0, done.stdout + done.stderr
        assert verdict == "Nothing wrong was found."
        assert f"The rehearsal of {' '.join(alone(path))} went well: 2 ranks, 3 epochs, 12 steps of each" in rehearsal
        assert scope.startswith("1 of 2 checks ran")

    @pytest.mark.parametrize("early", ["time.sleep(600)", ""], ids=["before a rank joined", "in the training"])
    def test_a_rehearsal_has_the_time_that_the_user_gives_it(self, ddpdoctor: Run, script: Script, early: str) -> None:
        """What does not end in --timeout is called that, with how far it came; it is no success."""
        slow = HEALTHY.replace(
            "            step(", "            step(model, optimizer, inputs); time.sleep(600); step("
        )
        path = script(slow.replace("import torch\n", f"{early}\nimport torch\n", 1))
        # How long a loaded machine takes to the first step is not known: until one was taken, more time is given.
        for timeout in (4,) if early else (12, 36, 108):
            asked = ("--only", "DDP604", "--timeout", str(timeout), "--format", "json")
            done = ddpdoctor("check", *asked, "--", *alone(path))
            report = json.loads(done.stdout)
            if report["rehearsed"] and report["rehearsed"]["steps"]:
                break

        assert done.returncode == 2, done.stdout + done.stderr
        assert "ran out of time" in report["faults"][0]
        assert "--timeout" in report["faults"][0]
        assert timeout - 5 < report["seconds"] < timeout + 60
        if early:
            assert report["rehearsed"] is None
        else:
            assert report["rehearsed"] == report["rehearsed"] | {"ranks": 2, "steps": 1}

    def test_nccl_is_rehearsed_over_gloo_where_there_is_no_gpu(
        self, ddpdoctor: Run, script: Script, facts: Facts
    ) -> None:
        """The script's mistake is found all the same, and a line says what was done otherwise."""
        if facts.gpus.devices:
            pytest.skip("this machine has a GPU")
        path = script(NO_SET_EPOCH.replace('init_process_group("gloo"', 'init_process_group("nccl"'))
        done = ddpdoctor("check", "--only", "DDP604", "--", *alone(path))

        assert done.returncode == 1, done.stdout + done.stderr
        assert "DDP604 set-epoch-not-called" in done.stdout
        assert "ran over gloo, where the script says nccl" in done.stdout

    def test_a_script_that_needs_a_gpu_is_not_rehearsed_without_one(
        self, ddpdoctor: Run, script: Script, facts: Facts
    ) -> None:
        """One line says so, with the script's own; nothing else is concluded from its failure."""
        if facts.gpus.devices:
            pytest.skip("this machine has a GPU")
        text = HEALTHY.replace("nn.Linear(8, 2)", "nn.Linear(8, 2).cuda()")
        done = ddpdoctor("check", "--only", "DDP604,cpu-only-torch", "--", *alone(path := script(text)))

        assert done.returncode == 2, done.stdout + done.stderr
        assert "is not rehearsed: it needs a GPU, and this machine has none" in done.stdout
        assert f"{path}:{guilty(text, 'model = Dist')}" in done.stdout
        assert done.stdout.startswith("Nothing was looked at: 1 target could not be examined.")

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            (HEAD + 'def train():\n    raise ValueError("no data here")\n' + TAIL, "ValueError: no data here"),
            (
                HEAD
                + 'def train():\n    raise ValueError("no data here")\n'
                + TAIL.replace("    mp.start", "    atexit.register(time.sleep, 60)\n        mp.start").replace(
                    "\n", "\nimport atexit\n", 1
                ),
                "came to no step: all 2 ranks",
            ),
            ("print('hello')\n", "saw no rank"),
        ],
        ids=["fails", "fails, and its launcher lives on", "no training"],
    )
    def test_a_command_that_shows_nothing_is_said_to(
        self, ddpdoctor: Run, script: Script, text: str, said: str
    ) -> None:
        """It is not passed: status 2, with the reason."""
        done = ddpdoctor("check", "--only", "DDP604", "--", *alone(script(text)))

        assert done.returncode == 2
        assert said in done.stdout
        assert "Nothing wrong" not in done.stdout


def with_spare(text: str) -> str:
    """Return a training whose model has a layer that forward forgets."""
    return text.replace("nn.Linear(8, 2)", "WithSpare()").replace(
        "def step(",
        "class WithSpare(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.used, self.spare = nn.Linear(8, 2), nn.Linear(8, 2)\n\n"
        "    def forward(self, x):\n        return self.used(x)\n\ndef step(",
        1,
    )


def alone(path: str) -> tuple[str, str]:
    """Return the command of a script that forks its two ranks: torch is imported once."""
    return sys.executable, path


def sessions() -> list[str]:
    """List the folders that monitors of this user have not removed, those of other tests aside."""
    import tempfile

    return [str(path.parent) for path in Path(tempfile.gettempdir()).glob("ddpdoctor-*/monitor")]


def until_gone(limit: float = 10.0) -> None:
    """Wait for the monitor of a training that has ended."""
    until = time.monotonic() + limit
    while sessions() and time.monotonic() < until:
        time.sleep(0.1)
