"""``ddpdoctor stuck --hosts``: how a host is reached, and what is said where it is not."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import psutil
import pytest
from helpers import Run

from ddpdoctor.facets import BadTarget
from ddpdoctor.stuck import hosts
from ddpdoctor.stuck.hosts import SSH, look_on, named, reaching
from ddpdoctor.stuck.looks.spy import py_spy
from ddpdoctor.watch.monitor.seen import usage

COMMAND = ("/opt/my env/bin/python", "-m", "ddpdoctor", "stuck")


def test_hosts_are_a_list_with_commas_or_spaces() -> None:
    """As `scontrol show hostnames` and people write it."""
    assert named("a, b c") == ("a", "b", "c")


@pytest.mark.parametrize(
    ("given", "said"), [(" , ", "names no host"), ("a,-oProxyCommand=x", "is no host"), ("a,b,a", "a is there twice")]
)
def test_what_is_no_host_is_refused(given: str, said: str) -> None:
    """Above all what the command that reaches it would take for an option."""
    with pytest.raises(BadTarget, match=said):
        named(given)


def test_ssh_is_handed_a_text_that_its_shell_parts_again() -> None:
    """A space in a path stays in one word; what is no ssh gets words."""
    *way, text = reaching(SSH, "node1", COMMAND)
    assert way[-1] == "node1"
    assert shlex.split(text) == list(COMMAND)
    assert reaching("kubectl exec {} --", "pod", COMMAND) == ["kubectl", "exec", "pod", "--", *COMMAND]


@pytest.mark.parametrize(("via", "said"), [("ssh", "which host"), ("ssh '{}", "--via: "), ("", "which host")])
def test_a_way_that_leads_nowhere_is_refused(via: str, said: str) -> None:
    """Before anything is started."""
    with pytest.raises(BadTarget, match=said):
        reaching(via, "a", COMMAND)


@pytest.mark.usefixtures("no_process_left")
def test_a_host_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its shell, and what that has started, are ended; the others are heard."""
    monkeypatch.setattr(hosts, "STARTS", 1.0)
    slow, fast = look_on(("100", "0"), "sh -c 'sleep {}; echo \"{}\" | tr 0 []'", 1.0)
    assert (slow.report, slow.why) == ("", "no answer within 2 s")
    assert not fast.report
    assert not [each for each in psutil.Process().children(recursive=True) if each.name() == "sleep"]


def test_a_host_without_a_training_is_told(ddpdoctor: Run) -> None:
    """Where no host has a look to give, that is the end, with each one's reason."""
    done = ddpdoctor("stuck", "--hosts", "a,b", "--via", f"{sys.executable} -c 'raise SystemExit(\"{{}} is down\")'")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "ddpdoctor: no look on any host; a: a is down (exit status 1); b: b is down (exit status 1)\n"
    )
    assert ddpdoctor("stuck", "--hosts", "a", "7").stderr.startswith("ddpdoctor: --hosts takes no PID")


GREETS = r"""
import json
print("Welcome to {}\n{{this is no report}}")
print(json.dumps({"schema": "ddpdoctor-report/2", "x": 1}, indent=2) + "\nlogout")
"""


def test_a_shell_that_greets_does_not_hide_the_report() -> None:
    """A line of .bashrc that prints stands before what ssh brings, and one of .bash_logout behind it."""
    (looked,) = look_on(["a"], shlex.join([sys.executable, "-c", GREETS, "{}"]), 1.0)
    assert json.loads(looked.report) == {"schema": "ddpdoctor-report/2", "x": 1}


def test_a_py_spy_that_no_path_leads_to_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`pip install --user` writes it to ~/.local/bin, which is not on the PATH of what ssh starts."""
    program = tmp_path / "bin/py-spy"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    kept = tmp_path / "lib/py_spy-0.4.3.dist-info"
    kept.mkdir(parents=True)
    (kept / "METADATA").write_text("Metadata-Version: 2.1\nName: py-spy\nVersion: 0.4.3\n")
    (kept / "RECORD").write_text("../bin/py-spy,,\n")
    monkeypatch.syspath_prepend(tmp_path / "lib")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert py_spy() == str(program)


def test_what_has_led_to_the_look_is_no_work_of_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a rank is the first process of a container, the daemon by which somebody came in is below it."""
    monkeypatch.setattr("os.getpid", lambda: 40)
    parents = {40: 30, 30: 20, 20: 1, 7: 1, 1: 0}
    assert usage._without_own(parents, {1}) == {40: 30, 30: 20, 7: 1, 1: 0}
    assert usage._without_own(parents, {7}) == parents
