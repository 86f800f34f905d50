from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ddpdoctor.examine.blame import blame
from ddpdoctor.examine.model.exam import examine_model
from ddpdoctor.examine.target import parse
from ddpdoctor.facets import BadTarget
from ddpdoctor.jobs.outcome import Died, Raised

if TYPE_CHECKING:
    from ddpdoctor.facets import Check
    from ddpdoctor.jobs.pool import Jobs

Run = Callable[..., "subprocess.CompletedProcess[str]"]

USERS = """
import sys, threading, time
import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

def model(): return torch.nn.Linear(4, 2)
def batch(): return torch.ones(3, 4)
def raises():
    return helper()
def helper():
    raise ValueError("no data at /data/imagenet")
def hangs(): time.sleep(600)
def leaves(): sys.exit(5)
def prints():
    print("noise on stdout"); print("noise on stderr", file=sys.stderr)
    return model()
def threads():
    threading.Thread(target=time.sleep, args=(600,)).start()
    return model()
def nothing(): return None
not_callable = 3
"""


CRASHES = """
'''A check that fails itself.

## What happens

x

## How to be sure

x

## How to mend it

x

## Versions and sources

x
'''
from ddpdoctor.check import Ailment, Facts, Severity, probe
AILMENT = Ailment("ACME100", Severity.ERROR)

@probe
def look(facts: Facts):
    1 / 0
    yield
"""


@pytest.fixture
def users(tmp_path: Path) -> Path:
    """Return a file of factories, as a user would have it."""
    path = tmp_path / "train.py"
    path.write_text(textwrap.dedent(USERS))
    return path


def test_a_healthy_machine_has_no_finding_above_note(ddpdoctor: Run) -> None:
    """Run without a target, everything that can be looked at here passes, and the exit status is 0."""
    done = ddpdoctor("check")

    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert "Nothing wrong was found" in done.stdout
    assert "\x1b" not in done.stdout
    assert "\r" not in done.stdout


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("raises", "ValueError: no data at /data/imagenet"),
        ("leaves", "exit status 5"),
        ("nothing", "NoneType"),
    ],
)
def test_a_factory_that_fails_is_one_clear_line_about_the_users_code(
    ddpdoctor: Run, users: Path, name: str, said: str
) -> None:
    """Whose error it is, where, no traceback, exit status 2; and the other checks still run."""
    done = ddpdoctor(
        "check", "--only", "model,gloo-collectives-fail", "--model", f"{users}:{name}", "--batch", f"{users}:batch"
    )

    assert done.returncode == 2
    assert said in " ".join(done.stdout.split())
    assert "Traceback" not in done.stdout + done.stderr
    assert "site-packages" not in done.stdout
    assert "Nothing wrong was found" not in done.stdout
    assert "Incomplete: 1 target could not be examined" in done.stdout
    assert re.search(r"^1 of \d+ checks ran", done.stdout, re.MULTILINE)
    if name == "raises":
        assert "in helper, called from" in done.stdout


ARGUMENTS = """
import argparse
import torch
parser = argparse.ArgumentParser()
parser.add_argument("--data", required=True)
args = parser.parse_args()
def build(): return torch.nn.Linear(4, 2)
"""


@pytest.mark.parametrize("option", ["--model", "--loader"])
def test_a_target_that_reads_arguments_when_it_is_imported_is_shown_with_what_it_printed(
    ddpdoctor: Run, tmp_path: Path, option: str
) -> None:
    """The line that ended the process, argparse's message, and what to do."""
    (tmp_path / "fit.py").write_text(ARGUMENTS)
    done = ddpdoctor("check", "--only", "model,data", option, "fit.py:build", cwd=tmp_path)
    said = " ".join(done.stdout.split())

    assert done.returncode == 2
    assert "fit.py:6 in <module>); it printed: fit.py: error: the following arguments are required: --data;" in said
    assert 'move that under `if __name__ == "__main__":`' in said


def test_what_code_prints_before_it_ends_the_process_is_shown(jobs: Jobs, tmp_path: Path) -> None:
    """A text given to sys.exit, what was printed before; where, and with which status."""
    (tmp_path / "fit.py").write_text(
        "import os, sys\ndef text(): sys.exit('no\\ndata \\x1b[31m')\n"
        "def done():\n    print('all done')\n    sys.exit()\n"
        "def gone():\n    print('bye', flush=True)\n    os._exit(4)\n"
    )
    said = {}
    for name in ("text", "done", "gone"):
        with pytest.raises(BadTarget) as caught:
            examine_model(jobs, parse(f"{tmp_path}/fit.py:{name}"), None)
        said[name] = str(caught.value).partition(": your code ended the process with ")[2]

    place = f"(at {tmp_path}/fit.py"
    assert said["text"].startswith(f"exit status 1 {place}:2 in text); it printed: no / data ")
    assert said["done"] == f"exit status 0 {place}:5 in done); it printed: all done"
    assert said["gone"] == "exit status 4; it printed: bye"


def test_a_rank_that_lost_its_peer_is_not_blamed_for_it(tmp_path: Path) -> None:
    """The one whose code ended the process is, whichever number it has."""
    (tmp_path / "fit.py").write_text("def gone(): ...\n")
    lost = Raised(0, "", "RuntimeError", "Connection closed by peer", "", ())

    with pytest.raises(BadTarget, match="rank 1: your code ended the process with exit status 4; it printed: bye"):
        blame("--model", parse(f"{tmp_path}/fit.py:gone"), (lost, Died(1, "bye", None, 4)))


def test_what_needs_no_torch_does_not_wait_for_it(ddpdoctor: Run, tmp_path: Path) -> None:
    """Of a torch whose import takes for ever, only the checks that need it are not run."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("import time\ntime.sleep(600)\n")
    (tmp_path / "torch" / "version.py").write_text("__version__ = '2.9.0'\ncuda = hip = None\n")
    only = "disk-space-too-low,open-files-limit-too-low,misspelt-variable,torch-not-importable"
    done = ddpdoctor("check", "--only", only, "--timeout", "6", "--format", "json", PYTHONPATH=str(tmp_path))
    results = {each["slug"]: each["status"] for each in json.loads(done.stdout)["results"]}

    assert results.pop("torch-not-importable") == "not run"
    assert set(results.values()) == {"passed"}


def test_a_factory_that_hangs_is_named_with_its_line(ddpdoctor: Run, users: Path) -> None:
    """The line that does not return is told."""
    done = ddpdoctor("check", "--only", "no-trainable-parameters", "--model", f"{users}:hangs", "--timeout", "24")

    assert done.returncode == 2
    assert "did not return in time" in done.stdout
    assert re.search(rf"\(at {users}:\d+ in hangs\b", done.stdout)


@pytest.mark.parametrize("name", ["prints", "threads"])
def test_a_noisy_factory_disturbs_nothing(ddpdoctor: Run, users: Path, name: str) -> None:
    """What it prints stays out of the report; threads that it leaves do not keep us."""
    done = ddpdoctor("check", "--only", "no-trainable-parameters", "--model", f"{users}:{name}")

    assert done.returncode == 0
    assert "noise" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    "args",
    [
        ("--model", "nowhere.py:f"),
        ("--model", "no.such.module:f"),
        ("--model", "just-a-word"),
        ("--loader", ":"),
        ("--checkpoint", "nowhere.pt"),
        ("--only", "no-such-check"),
        ("--skip", "DDP000"),
        ("--only", "gpu", "--skip", "gpu"),
        ("--nproc", "0"),
        ("--nproc", "many"),
        ("--backend", "mpi"),
        ("--timeout", "-1"),
        ("--fail-on", "disaster"),
        ("--format", "yaml"),
        ("--batch", "train.py:batch"),
        ("--output", "no/such/folder/report.json"),
        ("--frobnicate",),
    ],
    ids=" ".join,
)
def test_bad_input_is_one_clear_line_and_exit_status_2(ddpdoctor: Run, args: tuple[str, ...], tmp_path: Path) -> None:
    """Never a traceback."""
    only = () if "--only" in args else ("--only", "checkpoint,model,host")
    done = ddpdoctor("check", *only, *args, cwd=tmp_path)

    assert done.returncode == 2
    assert "Traceback" not in done.stdout + done.stderr


def test_an_unknown_check_to_explain_is_exit_status_2_with_what_is_close(ddpdoctor: Run) -> None:
    """A typo gets a suggestion."""
    done = ddpdoctor("explain", "gloo-colectives")

    assert done.returncode == 2
    assert "gloo-collectives-fail" in done.stderr


def test_explain_prints_the_page(ddpdoctor: Run, checks: dict[str, Check]) -> None:
    """By slug or code, the whole docstring."""
    by_slug, by_code = ddpdoctor("explain", "gloo-collectives-fail"), ddpdoctor("explain", "ddp701")
    page = checks["gloo-collectives-fail"].page.replace("## ", "")

    assert by_slug.stdout == by_code.stdout
    assert page.split() == by_slug.stdout.partition("\n\n")[2].split()


def test_list_shows_every_check(ddpdoctor: Run, checks: dict[str, Check]) -> None:
    """Each with code and slug; --area narrows."""
    everything = ddpdoctor("list").stdout

    assert all(check.code in everything and slug in everything for slug, check in checks.items())
    assert "DDP5" not in ddpdoctor("list", "--area", "collectives").stdout


def test_help_and_list_import_no_torch() -> None:
    """They answer on a machine without torch, and fast."""
    for command in (["--help"], ["list"], ["explain", "DDP701"]):
        program = (
            f"import sys; sys.argv[1:] = {command!r}; from ddpdoctor.cli import cli\n"
            "try: cli()\n"
            "finally: assert 'torch' not in sys.modules"
        )
        assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=False).returncode == 0


@pytest.mark.usefixtures("no_process_left")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
@pytest.mark.parametrize("after", [0.5, 6.0], ids=["at start", "in a job"])
def test_a_signal_ends_the_run_within_two_seconds(users: Path, number: int, after: float) -> None:
    """Nothing is left behind, and the exit status says which signal it was."""
    command = [sys.executable, "-m", "ddpdoctor", "check", "--only", "model,collectives", "--model", f"{users}:hangs"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    time.sleep(after)
    started = time.monotonic()
    process.send_signal(number)
    output, _ = process.communicate(timeout=20)

    assert time.monotonic() - started < 2.5
    before_python_began = -signal.SIGTERM if after < 1 else None
    assert process.returncode in {128 + number, before_python_began}
    assert "Traceback" not in output


@pytest.mark.usefixtures("no_process_left")
def test_timeout_bounds_the_whole_run(ddpdoctor: Run, users: Path) -> None:
    """What could not be looked at any more is not run, and that is no success."""
    started = time.monotonic()
    done = ddpdoctor("check", "--model", f"{users}:hangs", "--timeout", "4")

    assert time.monotonic() - started < 10
    assert done.returncode == 2
    assert re.search(r"Incomplete: .*the time ran out before \d+ checks? \(--timeout\)", done.stdout)


def test_a_run_that_looked_at_nothing_says_so(ddpdoctor: Run) -> None:
    """Every check of models lacks one: that is no success, and the last lines tell what to give."""
    done, quiet = (ddpdoctor("check", *options, "--only", "model", "--skip", "DDP518") for options in ((), ("-q",)))

    assert (done.returncode, quiet.returncode) == (2, 2)
    assert done.stdout.startswith("Nothing was looked at.")
    assert "--model FILE.py:NAME" in done.stdout
    assert quiet.stdout == "Nothing was looked at.\n"


def test_a_crash_of_a_check_is_no_success(ddpdoctor: Run, tmp_path: Path) -> None:
    """The verdict says that it is the tool's fault; status 3."""
    package = tmp_path / "acme"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "broken.py").write_text(CRASHES)
    info = tmp_path / "acme-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[ddpdoctor.checks]\nacme = acme\n")
    done, quiet = (
        ddpdoctor("check", *options, "--only", "ACME100", PYTHONPATH=str(tmp_path)) for options in ((), ("-q",))
    )

    assert (done.returncode, quiet.returncode) == (3, 3)
    for said in (done.stdout, quiet.stdout):
        assert "crashed ACME100 broken: this check itself failed: ZeroDivisionError" in said
        assert "Incomplete: 1 check crashed, which is a fault of the check" in said


def test_quiet_says_nothing_where_nothing_counts(ddpdoctor: Run) -> None:
    """No output is exit status 0; --fail-on decides what counts."""
    variable = {"TORCH_CPP_LOG_LEVEL": "INFO", "NCCL_DEBUG": "TRACE"}
    every, errors = (
        ddpdoctor("check", "-q", "--only", "DDP106", "--fail-on", level, **variable) for level in ("note", "error")
    )

    assert (errors.returncode, errors.stdout, errors.stderr) == (0, "", "")
    assert every.returncode == 1
    assert "DDP106" in every.stdout
    assert "checks" not in every.stdout.splitlines()[-1]


def test_a_deadline_outside_of_any_check_is_one_clear_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Host facts that never come end the command too."""
    from ddpdoctor.cli.screen.interrupt import ending_on_signals

    with pytest.raises(SystemExit) as caught, ending_on_signals(0.2):
        time.sleep(5)

    assert caught.value.code == 3
    assert "--timeout" in capsys.readouterr().err


def test_a_world_without_home_terminal_or_locale(ddpdoctor: Run) -> None:
    """LANG=C, a home that cannot be written and no terminal change nothing."""
    done = ddpdoctor("check", "--only", "host,gloo-collectives-fail", LANG="C", LC_ALL="C", HOME="/proc", TERM="dumb")

    assert done.returncode == 0, done.stdout + done.stderr
    done.stdout.encode("ascii")


def test_output_goes_to_a_stream_as_it_comes(ddpdoctor: Run) -> None:
    """A pipe cannot be written beside and renamed: --output /dev/stdout is the report."""
    done = ddpdoctor("check", "--only", "DDP101", "--format", "json", "--output", "/dev/stdout")

    assert json.loads(done.stdout)["results"][0]["code"] == "DDP101"


def test_output_goes_to_the_file_and_a_killed_run_leaves_no_half_of_it(ddpdoctor: Run, tmp_path: Path) -> None:
    """--output holds the whole report or is not there."""
    target = tmp_path / "report.json"
    done = ddpdoctor("check", "--only", "host", "--format", "json", "--output", str(target))

    assert done.returncode == 0
    assert target.read_text().startswith("{")
    assert os.listdir(tmp_path) == ["report.json"]  # noqa: PTH208 - the names are what counts


def test_a_closed_pipe_is_no_traceback() -> None:
    """`ddpdoctor list | head -1` ends quietly."""
    command = ["bash", "-c", f"{sys.executable} -m ddpdoctor list | head -1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.stderr == ""


def test_env_redacts_secrets(ddpdoctor: Run) -> None:
    """A bug report holds what bears on training, and no token."""
    done = ddpdoctor("env", "--format", "json", NCCL_DEBUG="INFO", WANDB_API_KEY="f00dfeed" * 5, MASTER_ADDR="n0")

    assert "NCCL_DEBUG" in done.stdout
    assert "f00dfeed" not in done.stdout
